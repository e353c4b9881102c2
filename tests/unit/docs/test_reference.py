"""The reference pages and the settings of the man page are as the code generates them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.api.commands import BY_NAME, COMMANDS
from controller.cli import arguments
from controller.config.keys import BRIDGE_KEYS, KEYS, VM_KEYS, Key
from controller.features.shaping import DEFAULT_SHARES
from controller.metrics.exporter import HELP
from policies.presets import DEFAULT_PRESET, PRESETS
from tests import documents
from tests.reference import metrics, settings
from tests.reference.pages import COMMAND, JSON_PAGE, PAGES, Page, generated
from tests.unit.docs.test_pages import words

MOST_WORDS = 300
MARKDOWN = [page for page in PAGES if page.path.suffix == ".md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [*(page.path for page in PAGES), JSON_PAGE], ids=lambda path: path.name
)
def test_a_page_is_as_the_code_generates_it(path: Path) -> None:
    assert generated()[path] == path.read_text(), f"run {COMMAND}"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.path.name)
def test_the_words_around_what_is_generated_are_few(page: Page) -> None:
    text = documents.with_made(page.path.read_text(), page.begin, page.end, "")
    assert 0 < words(text.replace(page.begin, "").replace(page.end, "")) <= MOST_WORDS


def test_pages_with_more_belong_to_keys_and_metrics_that_exist() -> None:
    assert settings.MORE.keys() <= {(k.record, k.name) for k in KEYS}
    assert metrics.MORE.keys() <= HELP.keys()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (VM_KEYS["shares"], [str(DEFAULT_SHARES)]),
        (
            BRIDGE_KEYS["poll-interval-ms"],
            [f"{PRESETS[name].poll_s * 1000:g}" for name in (DEFAULT_PRESET, "adaptive")],
        ),
    ],
)
def test_a_default_that_is_made_elsewhere_is_told_as_it_is(key: Key, words: list[str]) -> None:
    assert all(word in key.otherwise.replace(";", "").split() for word in words)


@pytest.mark.parametrize("command", [row.name for row in COMMANDS if row.examples])
def test_an_example_is_a_command_that_exists(command: str) -> None:
    for typed, _ in BY_NAME[command].example_pairs():
        words = re.findall(r"ovs-lbt ([^)>]+)", typed)[0].split()
        if words[0] in arguments.SEPARATE:
            arguments.separate_parser(words[0]).parse_args(words[1:])
        else:
            arguments.parser().parse_args(words)
