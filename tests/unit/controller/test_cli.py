"""The command: what it sends to the service, and how it ends."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import ovs.dirs
import pytest

from controller import cli
from controller.api.commands import BY_NAME, GROUPS
from controller.api.commands import COMMANDS as ROWS
from controller.cli import answers, arguments, run
from controller.cli import completion as scripts
from controller.config.keys import BRIDGE_KEYS, POLICIES, UPLINK_KEYS, VM_KEYS, settable
from controller.host import arming, client
from controller.text.wording import Refused
from policies.presets import PRESETS

COMMANDS = [
    str(name)
    for a in arguments.parser()._actions
    if a.dest == "command"
    for name in a.choices or ()
]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What would go to the service."""
    asked: list[tuple[str, list[str]]] = []

    def ask(command: str, words: list[str]) -> int:
        asked.append((command, words))
        return 0

    monkeypatch.setattr(answers, "ask", ask)
    monkeypatch.setattr(client, "running", lambda: True)
    return asked


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "attach br0 --uplink eth1 --uplink eth2 --policy explicit --teaming static --observe",
            ["br0", "policy=explicit", "uplinks=eth1,eth2", "teaming=static", "mode=observe"],
        ),
        ("detach br0 --purge", ["br0", "--purge"]),
        ("revert br0", ["br0"]),
        ("show br0 --json", ["br0", "--json"]),
        ("set bridge br0 threshold=60 window-s=5", ["bridge", "br0", "threshold=60", "window-s=5"]),
        ("set interface eth1 role=standby", ["interface", "eth1", "role=standby"]),
        ("move vnet0 eth2", ["vnet0", "eth2"]),
        ("pin vnet0 eth2", ["vnet0", "eth2"]),
        ("unpin vnet0", ["vnet0"]),
        ("drain eth1", ["eth1"]),
        ("undrain eth1", ["eth1"]),
        ("plan br0 --json", ["br0", "--json"]),
        ("apply br0", ["br0"]),
        ("apply --plan 3f9a2c1e --dry-run", ["--plan", "3f9a2c1e", "--dry-run"]),
        ("set bridge br0 mode=observe --dry-run", ["bridge", "br0", "mode=observe", "--dry-run"]),
        ("explain vnet0 --json", ["vnet0", "--json"]),
    ],
)
def test_a_command_goes_to_the_service_word_by_word(
    sent: list[tuple[str, list[str]]], line: str, words: list[str]
) -> None:
    assert cli.main(line.split()) == 0
    assert sent == [(line.split()[0], words)]


class Armed:
    """Stands in for an armed reversal."""

    def __init__(self) -> None:
        self.for_: list[tuple[str, float, str]] = []
        self.disarmed = False

    def arm(self, *of: object) -> Armed:
        self.for_.append(of)  # type: ignore[arg-type]
        return self

    def disarm(self) -> None:
        self.disarmed = True


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> Armed:
    made = Armed()
    monkeypatch.setattr(arming, "arm", made.arm)
    monkeypatch.setattr(client, "obstacle", lambda: None)
    monkeypatch.setattr(client, "running", lambda: True)
    return made


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("attach br0 --rollback-after 60", ["br0", "--rollback-after", "60"]),
        ("attach br0 --confirm 60", ["br0", "--rollback-after", "60"]),
        ("detach br0 --purge --rollback-after 60", ["br0", "--purge", "--rollback-after", "60"]),
        (
            "set bridge br0 policy=explicit --rollback-after 60",
            ["bridge", "br0", "policy=explicit", "--rollback-after", "60"],
        ),
        (
            "set interface web-1 pin=eth1 --rollback-after 60",
            ["interface", "web-1", "pin=eth1", "--rollback-after", "60"],
        ),
    ],
)
def test_a_reversal_is_armed_before_the_service_is_asked(
    armed: Armed,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    words: list[str],
) -> None:
    def ask(method: str, asked: list[str]) -> str:
        if asked[-1] == "--dry-run":
            return "would set pin=eth1\nwould roll this back, unless confirmed: ovs-lbt confirm br0"
        assert armed.for_ == [("br0", 60.0, "ovs-lbt")], "armed first"
        assert (method, asked) == (f"lbt/{line.split()[0]}", words)
        return "done\nwarning: so\n"

    monkeypatch.setattr(client, "ask", ask)
    assert cli.main(line.split()) == 0
    assert not armed.disarmed
    assert capsys.readouterr() == ("done\n", "warning: so\n")


@pytest.mark.parametrize("command", ["attach br0", "detach br0", "set bridge br0 mode=observe"])
def test_a_dry_run_arms_nothing(
    armed: Armed, sent: list[tuple[str, list[str]]], command: str
) -> None:
    name, *words = command.split()
    assert cli.main([name, *words, "--rollback-after", "60", "--dry-run"]) == 0
    assert sent == [(name, [*words, "--rollback-after", "60", "--dry-run"])]
    assert armed.for_ == []


@pytest.mark.parametrize(("kind", "disarms"), [(Refused, True), (client.Unanswered, False)])
def test_only_a_refusal_disarms(
    armed: Armed, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], disarms: bool
) -> None:
    """A service that does not answer may have made the change."""

    def ask(*_: object) -> str:
        raise kind("problem; what to do")

    monkeypatch.setattr(client, "ask", ask)
    assert cli.main(["attach", "br0", "--rollback-after", "60"]) == 1
    assert armed.disarmed is disarms


def test_what_cannot_be_armed_is_not_changed(
    monkeypatch: pytest.MonkeyPatch, armed: Armed, capsys: pytest.CaptureFixture[str]
) -> None:
    def arm(*_: object) -> None:
        raise Refused("problem; what to do")

    def ask(*_: object) -> str:
        raise AssertionError("the service was asked")

    monkeypatch.setattr(arming, "arm", arm)
    monkeypatch.setattr(client, "ask", ask)
    assert cli.main(["attach", "br0", "--rollback-after", "60"]) == 1
    assert capsys.readouterr().err == "ovs-lbt: problem; what to do\n"


def test_help_on_set_lists_every_key_that_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["set", "--help"])
    keys_told = capsys.readouterr().out.partition("\nexamples:")[0]
    bridges, uplinks, vm_ports = keys_told.split("\nkeys of ")[1:]
    for told, keys in ((bridges, BRIDGE_KEYS), (uplinks, UPLINK_KEYS), (vm_ports, VM_KEYS)):
        assert re.findall(r"^  ([a-z-]+)", told, re.MULTILINE) == list(settable(keys))


def test_help_on_attach_lists_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert POLICIES.keys() == PRESETS.keys()
    with pytest.raises(SystemExit):
        cli.main(["attach", "--help"])
    assert PRESETS.keys() <= set(re.findall(r"[a-z-]+", capsys.readouterr().out))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_on_a_command_says_what_it_does_and_has_examples_that_are_right(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = arguments.parser()
    if command in arguments.SEPARATE:
        parser = arguments.separate_parser(command)
    if parser.prog == "ovs-lbt":
        with pytest.raises(SystemExit):
            parser.parse_args([command, "--help"])
    else:
        parser.print_help()
    told = capsys.readouterr().out
    _, about, *_ = told.split("\n\n")
    assert re.match(r"[A-Z]", about) and not about.startswith("positional")
    _, title, typed = re.split(r"^(examples?):\n", told, flags=re.MULTILINE)
    lines = re.findall(r"^  (?:\. <\()?(ovs-lbt [^)\n]*?)\)?(?:   .*)?$", typed, re.MULTILINE)
    assert title == ("example" if len(lines) == 1 else "examples") and lines
    for line in lines:
        words = line.partition(" >")[0].split()[1:]
        assert words[0] == BY_NAME[command].name
        if words[-1] == "--help":
            continue
        options = parser.parse_args(words[parser.prog != "ovs-lbt" :])
        if command == "set":
            arguments.check_keys(parser, options.table, options.settings)


@pytest.mark.parametrize(
    ("option", "told"), [("--help", ".*attach.*"), ("--version", f"ovs-lbt {version('ovs-lbt')}\n")]
)
def test_help_and_the_version_are_answers(
    option: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([option])
    assert ended.value.code == 0
    assert re.fullmatch(told, capsys.readouterr().out, re.DOTALL)


def test_the_help_lists_each_command_once_with_an_example() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(row.name for row in ROWS)
    assert all(row.examples for row in ROWS)


@pytest.mark.parametrize(
    "line",
    [
        "show br0",
        "top br0 br1 --once",
        "plan br0 --json",
        "rescue --all",
        "get interface vnet0 pin",
        "unset bridge br0 threshold window-s --dry-run",
        "set bridge br0 threshold=60 window-s=7 --rollback-after 60",
    ],
)
def test_the_target_stands_at_any_place(line: str) -> None:
    words, parser = line.split(), arguments.parser()
    expected = vars(parser.parse_args(["-t", "ovs-lbt-b", *words]))
    for at in range(len(words) + 1):
        if words[at - 1 : at] == ["--rollback-after"]:
            continue
        given = [*words[:at], "--target", "ovs-lbt-b", *words[at:]]
        assert vars(arguments.parsed(parser, given)) == expected, given


@pytest.mark.parametrize("line", ["show br0 br1", "set bridge br0 a=b --nope c=d", "unpin a b"])
def test_words_too_many_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments.parsed(arguments.parser(), line.split())
    assert ended.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_nothing_asks_a_question() -> None:
    """Commands also run without a terminal. Only `top` reads keys, and refuses to start without one."""
    folder = Path(cli.__file__).parents[1]
    reads = re.compile(r"(?<![\w.])(input|getpass)\(|\bsys\.stdin\b|/dev/tty")
    found = {
        path.relative_to(folder) for path in folder.rglob("*.py") if reads.search(path.read_text())
    }
    assert found == {Path("cli/top/__init__.py")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_the_one_that_is_installed(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    assert capsys.readouterr().out == scripts.script(shell)


def test_of_two_services_the_one_that_was_named_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path))
    (tmp_path / "db.sock").touch()
    monkeypatch.setenv("OVS_LBT_NAME", "ovs-lbt-b")
    hint = "ovs-lbt: no service is running; start it with: ovs-lbt run"
    for words, started_with in (
        (["show"], " --name ovs-lbt-b"),
        (["-t", "ovs-lbt-c", "show"], " --name ovs-lbt-c"),
        (["-t", "ovs-lbt", "show"], ""),
    ):
        assert cli.main(words) == 1
        assert capsys.readouterr().err == f"{hint}{started_with}\n"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9476", ("127.0.0.1", 9476)),
        ("[::1]:9476", ("::1", 9476)),
        ("none", None),
    ],
)
def test_where_metrics_are_served(text: str, address: tuple[str, int] | None) -> None:
    assert run.address("--metrics", text, "ADDR:PORT or none") == address


@pytest.mark.parametrize("text", ["", "9476", ":9476", "localhost:", "localhost:x", "a:65536"])
def test_a_bad_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"--metrics: .* is invalid; expected ADDR:PORT or none"):
        run.address("--metrics", text, "ADDR:PORT or none")


@pytest.mark.parametrize(
    ("answered", "out"),
    [
        ("", ""),
        ("done", "done\n"),
        ("done\n", "done\n"),
        ('{"vm": "a\u2028b"}', '{"vm": "a\u2028b"}\n'),
    ],
    ids=["nothing", "without a newline", "with a newline", "a separator in a name"],
)
def test_an_answer_ends_with_one_newline(
    capsys: pytest.CaptureFixture[str], answered: str, out: str
) -> None:
    answers.tell(answered)
    assert capsys.readouterr().out == out


def test_without_entries_the_history_has_no_line_of_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with a running service, also if the file is read without it."""
    monkeypatch.setattr(client, "running", lambda: False)
    monkeypatch.setenv("OVS_LBT_HISTORY", str(tmp_path / "history.jsonl"))
    assert answers.history("ovs-lbt", ["--json"]) == 0
    assert capsys.readouterr().out == ""
