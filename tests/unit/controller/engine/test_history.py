"""What the engine tells the history: each decision once, with its reason and the loads."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controller.api import history
from controller.api.engine_commands import Record
from controller.api.history import Names
from controller.config.rows import BridgeRow
from controller.decisions.decision_log import OUTCOME_S, WHY
from controller.host.journal import Journal, answer
from controller.load.loads import UPLINK_LAG_S
from controller.text.wording import Refused
from policies.model import Reason
from tests.said import pattern, says
from tests.unit.controller.engine.told import entries, offer
from tests.unit.fake_switch import World, world
from tests.unit.rows import host

GBPS = 1e9


def loaded(row: BridgeRow) -> World:
    """Four VM ports, all of them on eth1 (10 Gbit/s), which they fill to 85 %."""
    return offer(world(row), (3e9, 2e9, 2e9, 1.5e9)).start()


def ratios(uplinks: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: at["transmit_ratio"] for name, at in uplinks.items()}


@pytest.mark.parametrize(("mode", "event"), [("enforce", "moved"), ("observe", "planned")])
def test_a_move_by_load_is_told_with_what_was_found_and_what_is_expected(
    mode: str, event: str
) -> None:
    here = loaded(host(binding="eth1", mode=mode)).run_until(60)
    (entry,) = entries(here, "planned", "moved")
    assert (entry["event"], entry["bridge"]) == (event, "br0")
    assert entry["why"] == "eth1 at 85% over 30 s, above 75%"
    move = {"port": "vnet0", "source": "eth1", "target": "eth2", "reason": "threshold"}
    assert entry["moves"] == [{**move, "vm": "vnet0"}]
    assert ratios(entry["before"]) == pytest.approx({"eth1": 0.85, "eth2": 0.0}, abs=0.001)
    assert ratios(entry["expected"]) == pytest.approx({"eth1": 0.55, "eth2": 0.3}, abs=0.001)


def test_one_that_is_split_is_told_without_a_way_home() -> None:
    split = history.Moved("vnet0", "eth1", "eth1", Reason.SPLIT)
    merged = history.Moved("vnet0", "eth1", "eth1", Reason.MERGE)
    assert split.way == "vnet0: eth1 -> by connection"
    assert merged.way == "vnet0: by connection -> eth1"
    entry = history.Entry(history.Happened.MOVED, 1.0, "br0", "", (split, merged))
    read = history.read(history.as_line(entry, epoch_s=0.0))
    assert read is not None
    assert [move["target"] for move in read["moves"]] == ["eth1", "eth1"], "programs get the home"
    text = history.render([read], False, str)
    assert f"{split.way} (split)" in text and f"{merged.way} (merge)" in text


def test_what_came_of_it_is_measured_afterwards() -> None:
    here = loaded(host(binding="eth1")).run_until(60)
    (moved,), (outcome,) = entries(here, "moved"), entries(here, "outcome")
    assert outcome["at"] - moved["at"] == pytest.approx(OUTCOME_S + UPLINK_LAG_S + 2, abs=0.1)
    assert outcome["moves"] == moved["moves"] and outcome["before"] == moved["before"]
    assert ratios(outcome["after"]) == pytest.approx({"eth1": 0.55, "eth2": 0.3}, abs=0.001)


def test_a_load_beside_the_threshold_is_not_an_event_with_each_poll() -> None:
    """And it is one although the policy does not look at loads."""
    here = world(host(policy="explicit"))
    here.switch.offered_bps[10] = lambda t: (7.6 if t % 60 < 30 else 7.35) * GBPS
    here.start().run_until(600)
    assert [(e["event"], e["uplink"]) for e in entries(here)] == [("unrelieved", "eth1")]


def test_a_link_that_changed_while_the_switch_was_away_is_counted_and_followed() -> None:
    here = world(host()).start().run_until(10)
    assert [uplink.link_changes for uplink in here.status.uplinks] == [0, 0]
    here.disconnect()
    ports = here.switch.ports
    ports[1] = replace(ports[1], up=False)
    here.connect()
    assert [uplink.link_changes for uplink in here.status.uplinks] == [1, 0]
    assert set(here.bindings().values()) == {"eth2"}


def test_buckets_that_go_one_way_are_one_line() -> None:
    here = world(host(policy="dynamic")).start()
    here.set_link(1, up=False).run_for(1)
    moves = entries(here, "moved")[0]["moves"]
    ways = [move for move in moves if "policy" in move]
    assert [(w["policy"], w["buckets"], w["source"], w["target"]) for w in ways] == [
        ("dynamic", 128, "eth1", "eth2")
    ]


def test_every_reason_has_a_sentence() -> None:
    assert WHY.keys() == set(Reason)


# ---- on disk ---------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def written(journal: Journal, *lines: str) -> None:
    """Lines, and the journal's thread has written them."""
    for line in lines:
        journal.write(line)
    over = threading.Event()
    journal._work.put(over.set)
    assert over.wait(10)


def line(at: float, bridge: str = "br0", port: str = "vnet0") -> str:
    moves = [{"port": port, "source": "eth1", "target": "eth2", "reason": "manual"}]
    return json.dumps({"at": at, "bridge": bridge, "event": "moved", "why": "so", "moves": moves})


def asked(path: Path, *words: str) -> list[float]:
    return [json.loads(text)["at"] for text in answer(path, (*words, "--json")).splitlines()]


def test_the_last_entries_come_oldest_first_and_by_bridge_port_and_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(
        "\n".join(line(i, f"br{i % 2}", f"vnet{i % 3}") for i in range(60)) + '\n{"at": 1, "bri'
    )
    assert asked(path) == list(range(40, 60))
    assert asked(path, "--last", "2") == [58, 59]
    assert asked(path, "br1", "--last", "2") == [57, 59]
    assert asked(path, "br1", "--port", "vnet0", "--last", "2") == [51, 57]
    now_s = 60 * 60.0
    monkeypatch.setattr("controller.host.journal.time.time", lambda: now_s)
    path.write_text("\n".join(line(60 * i, f"br{i % 2}") for i in range(60)))
    assert asked(path, "--since", "30m") == [60 * i for i in range(30, 60)]
    assert asked(path, "br1", "--since", "1h", "--last", "2") == [60 * 57, 60 * 59]
    assert answer(path, ("br0", "--since", "1m")) == "no matching entries"
    there_is = Names(frozenset({"br7"}), frozenset({"vnet9"}))
    assert answer(path, ("br7",), there_is) == "no matching entries"
    assert answer(path, ("--port", "vnet9"), there_is) == "no matching entries"
    of_an_address = ("--port", "vnet9/02:00:00:00:00:01")
    assert answer(path, of_an_address, there_is) == "no matching entries"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            "br8",
            "no bridge is named br8 (did you mean br7?); to list the names: ovs-lbt show, or"
            " ovs-lbt history",
        ),
        (
            "br0 --port vnet8",
            "no VM port in the history is named vnet8; to list the names: ovs-lbt",
        ),
    ],
)
def test_what_never_was_is_refused(path: Path, words: str, found: str) -> None:
    path.write_text(line(0, "br0", "vnet0"))
    with pytest.raises(ValueError, match=f"^{re.escape(found)}"):
        answer(path, tuple(words.split()), Names(frozenset({"br7"})))


def test_text_is_for_people(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    here = loaded(host(binding="eth1")).run_until(60)
    records = [command.entry for _, command in here.log if isinstance(command, Record)]
    path.write_text("\n".join(history.as_line(entry, 86400.0) for entry in records))
    try:
        lines = answer(path, ()).splitlines()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert re.match(r"1970-01-02 00:00:\d\d UTC  br0  moved: ", lines[0])
    loads = "    eth1 85% -> 55%, eth2 0% -> 30%"
    assert says(lines[0], "br0  moved: ", "eth1", "85%", "30 s", "75%")
    assert lines[1] == "    vnet0: eth1 -> eth2 (threshold)" and lines[2].startswith(loads)
    assert says(lines[3], "br0  outcome: ", "8 s") and lines[4] == loads
    assert all(len(text) <= 80 for text in lines)


def test_older_files_are_read_as_far_as_they_are_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.host.journal.FILE_BYTES", 1000)
    journal = Journal(path)
    written(journal, *(line(i) for i in range(30)))
    files = sorted(path.parent.iterdir())
    assert len(files) > 3 and all(file.stat().st_size <= 1000 for file in files)
    assert asked(path, "--last", "12") == list(range(18, 30))


@pytest.mark.parametrize("block_bytes", [1, 7, 100, 1 << 16])
def test_a_file_is_read_from_its_end_in_whatever_pieces(
    path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr("controller.host.journal.BLOCK_BYTES", block_bytes)
    path.write_text("rubbish\n\n" + "\n".join(line(i) for i in range(9)) + '\n{"at": 9, "br')
    assert asked(path, "--last", "3") == [6, 7, 8]
    assert asked(path) == list(range(9))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--last", "0"], "--last: 0 is invalid; expected an integer from 1 to 1000000"),
        (["br0", "br1"], "br0 br1 is invalid; expected one name [--json]"),
        (["--port"], "no VM port in the history is named ''; …"),
        (["--since", "1"], "--since: 1 is invalid; expected a duration such as 90m, 12h, 7d or 2w"),
        (["--last", "²"], "--last: ² is invalid; expected an integer from 1 to 1000000"),
        (
            ["--last", "9" * 30],
            f"--last: {'9' * 30} is invalid; expected an integer from 1 to 1000000",
        ),
        (
            ["--last", "9" * 5000],
            f"--last: {'9' * 30}… is invalid; expected an integer from 1 to 1000000",
        ),
    ],
)
def test_a_wrong_question_says_what_is_expected(
    tmp_path: Path, words: list[str], told: str
) -> None:
    with pytest.raises((Refused, ValueError), match=f"^{pattern(told)}$"):
        answer(tmp_path / "none", tuple(words))


def test_a_disk_that_takes_nothing_is_said_once_and_nothing_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "absent"
    journal = Journal(place / "history.jsonl")
    written(journal, line(1), line(2))
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    place.mkdir()
    written(journal, line(3))
    assert asked(place / "history.jsonl") == [3]


@pytest.mark.parametrize(
    "damaged",
    [
        '{"at": "noon", "bridge": "br0", "event": "moved"}',
        '{"at": 1e300, "bridge": "br0", "event": "moved"}',
        '{"at": 5, "bridge": ["br0"], "event": {}}',
        '{"at": 5, "bridge": "br0", "event": "moved", "moves": 7}',
        '{"at": 5, "bridge": "br0", "event": "moved", "moves": [{"port": "vnet0"}]}',
        '{"at": 5, "bridge": "br0", "event": "moved", "after": {"eth1": 0.5}}',
        "[" * 100_000,
    ],
    ids=["no time", "no such time", "lists", "no moves", "half a move", "no loads", "deep"],
)
def test_a_damaged_line_is_left_out(path: Path, damaged: str) -> None:
    good = '{"at": 5, "bridge": "br0", "event": "link-up", "why": "eth1 is up"}'
    path.write_text(f"{good}\n{damaged}\n{good}\n")
    assert answer(path, ()).count("link-up: eth1 is up") == 2
