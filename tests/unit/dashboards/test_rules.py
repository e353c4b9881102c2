"""Recording rules and alerts: what they ask for, that they fire, and that somebody is told what to do."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.dashboards.dashboards import BY_NAME, MATCHER, Query
from tests.unit.dashboards.exported import EXPORTED, TARGET_LABELS

ROOT = Path(__file__).parents[3]
RULES = sorted((ROOT / "dashboards" / "rules").glob("*.yml"))
CASES = sorted((ROOT / "tests" / "rules").glob("*.yml"))
DOCS = ROOT / "docs"
OPERATIONS = DOCS / "operations.md"
ALERTS_PAGE = DOCS / "guide" / "alerts.md"
RUNBOOKS = (DOCS / "runbooks.md", DOCS / "runbooks-service.md")

SEVERITIES = {"critical", "warning", "info"}
PARTS = ["Means", "Look", "Do", "Ignore", "Unsolved"]
BASE = "https://ovs-lbt.example/docs"
# Prometheus's own, of every target.
SCRAPED = {"up": TARGET_LABELS}
# Set by our recording rules.
RECORDED_LABELS = frozenset({"direction"})
RECORDED = re.compile(r"\b[a-z_]+:\w+:\w+\b")
SELECTED = re.compile(r"(?<![\w:])(ovslbt_\w+|up)(?![\w:(])(?:\{([^}]*)\})?")
SERIES = re.compile(r"(\w+)\{(.*)\}")
RUNBOOK = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Case:
    """What a test says of an alert: when it fires, and when it does not."""

    name: str
    alert: str
    fired: tuple[str, ...]
    was_quiet: bool


@functools.cache
def load(path: Path) -> dict[str, Any]:
    """What a file says; nearly every test here asks for all files."""
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def rules() -> Iterator[dict[str, Any]]:
    for path in RULES:
        for group in load(path)["groups"]:
            yield from group["rules"]


def played() -> Iterator[dict[str, Any]]:
    for path in CASES:
        yield from load(path)["tests"]


def cases() -> Iterator[Case]:
    for test in played():
        told: dict[str, list[list[dict[str, Any]]]] = {}
        for check in test.get("alert_rule_test", []):
            told.setdefault(check["alertname"], []).append(check["exp_alerts"])
        for alert, expected in told.items():
            fired = tuple(a["exp_labels"]["severity"] for alerts in expected for a in alerts)
            yield Case(test["name"], alert, fired, was_quiet=[] in expected)


ALERTS = [rule for rule in rules() if "alert" in rule]
NAMES = sorted({alert["alert"] for alert in ALERTS})
RECORDS = {rule["record"] for rule in rules() if "record" in rule}
each_alert = pytest.mark.parametrize(
    "alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}"
)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_they_do_what_their_cases_say(path: Path) -> None:
    command = ["promtool", "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@each_alert
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_never_does(
    alert: dict[str, Any],
) -> None:
    name, severity = alert["alert"], alert["labels"]["severity"]
    own = [case for case in cases() if case.alert == name]
    assert any(severity in case.fired for case in own)
    assert any(case.was_quiet and not case.fired for case in own)
    if "for" in alert:
        waited = [case for case in own if severity in case.fired and case.was_quiet]
        assert waited, "no case in which it waits before it fires"


def test_cases_are_of_alerts_that_there_are() -> None:
    assert {case.alert for case in cases()} == set(NAMES)
    names = [test["name"] for test in played()]
    assert len(names) == len(set(names))


def test_cases_feed_series_as_the_service_exports_them() -> None:
    contract = EXPORTED | SCRAPED
    for test in played():
        for fed in test["input_series"]:
            found = SERIES.fullmatch(fed["series"])
            assert found, fed["series"]
            assert set(MATCHER.findall(found[2])) == contract[found[1]], (
                f"{test['name']}: {fed['series']}"
            )


def test_every_recording_rule_has_a_case() -> None:
    text = (ROOT / "tests" / "rules" / "recording.yml").read_text()
    assert set(RECORDED.findall(text)) == RECORDS


@pytest.mark.parametrize(
    "rule", list(rules()), ids=lambda rule: rule.get("alert", rule.get("record"))
)
def test_rules_ask_for_what_the_service_exports(rule: dict[str, Any]) -> None:
    text, contract = rule["expr"], EXPORTED | SCRAPED
    assert set(RECORDED.findall(text)) <= RECORDS
    selected = SELECTED.findall(text)
    assert selected or RECORDED.search(text)
    for metric, matchers in selected:
        assert metric in contract, f"not exported: {metric}"
        assert set(MATCHER.findall(matchers)) <= contract[metric], f"{metric}{{{matchers}}}"
    texts = " ".join(rule.get("annotations", {}).values())
    shown = set(re.findall(r"\$labels\.(\w+)", texts))
    named = Query("rules", "rule", text).grouped | shown
    assert named <= RECORDED_LABELS.union(*contract.values())


@each_alert
def test_every_alert_says_how_bad_it_is_what_it_is_and_where_to_look(alert: dict[str, Any]) -> None:
    name, told = alert["alert"], alert["annotations"]
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in SEVERITIES
    links = {"runbook_url", "dashboard", "__dashboardUid__"}
    assert told.keys() == {"summary", "description"} | links
    assert told["runbook_url"] == f"{BASE}/operations.md#{name.lower()}"
    dashboard, _, chosen = told["dashboard"].removeprefix("/d/").partition("?")
    assert dashboard in _dashboards(), "no dashboard has that uid"
    # Grafana makes a button of this one, and text of the other.
    assert told["__dashboardUid__"] == dashboard
    # About a bridge: to a dashboard that can show it. Without one, it would be empty.
    of_bridge = "$labels.bridge" in told["summary"] + told["description"]
    assert ("var-bridge" in chosen) == of_bridge
    assert dashboard != "ovs-lbt-bridge" or of_bridge
    variables = dict(item.split("=", 1) for item in chosen.split("&") if item)
    for variable, value in variables.items():
        label = variable.removeprefix("var-")
        assert value == f"{{{{ $labels.{label} }}}}"
        assert label in _dashboards()[dashboard], f"{dashboard} has no variable {label}"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    runbooks = [(page, *one) for page in RUNBOOKS for one in RUNBOOK.findall(page.read_text())]
    assert sorted(heading for _, heading, _ in runbooks) == NAMES
    assert f"s|{BASE}|" in ALERTS_PAGE.read_text(), "nothing says how the links are made to work"
    # Alerts in the field link to the page that had the runbooks.
    index = OPERATIONS.read_text()
    for page, heading, text in runbooks:
        begun = re.findall(r"^\*(?:Do not )?(\w+)(?: this alert\.?)?\*", text, re.MULTILINE)
        assert [part.capitalize() for part in begun] == PARTS, heading
        anchor = heading.lower()
        assert f'<a id="{anchor}"></a>[{heading}]({page.name}#{anchor})' in index


def _dashboards() -> dict[str, set[str]]:
    """The variables of each dashboard, by its uid."""
    return {str(board.json["uid"]): set(board.variables) for board in BY_NAME.values()}
