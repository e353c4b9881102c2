"""Reverting and confirming where no service does, with ovs-vsctl and a service that stand in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ovs.dirs
import pytest

from controller import announce_endpoints, one_shot, reversal
from controller.api.engine_commands import Setting
from controller.api.events import DatabaseRead
from controller.host import client
from controller.host.sockets import TlsFiles
from controller.operations import unconfirmed
from controller.operations.unconfirmed import GRACE_S, UNCONFIRMED, Unconfirmed, What
from controller.service import Options
from controller.text.wording import Refused

NOW_S = 1000.0


class Host:
    """A database, a clock, and attempts to revert that are counted."""

    def __init__(self, change: Unconfirmed | None = None) -> None:
        self.ids = {"others": "1"}
        if change is not None:
            self.ids[UNCONFIRMED] = unconfirmed.as_text(change)
        self.now_s = NOW_S
        self.away_until_s = 0.0
        self.service = False
        self.attempts: list[float] = []
        # How many attempts fail.
        self.failing = 0
        self.asked: list[tuple[str, ...]] = []
        self.said: list[str] = []

    def vsctl(self, *words: str) -> str:
        if self.now_s < self.away_until_s:
            raise Refused("no answer from ovsdb-server")
        self.asked.append(words)
        if "list" in words:
            there = words[-1] == "br0"
            rows = [[["map", [[k, v] for k, v in self.ids.items()]]]] if there else []
            return json.dumps({"data": rows})
        if words == ("list-br",):
            return "br0\nbr1\n"
        self.ids.pop(UNCONFIRMED)
        return ""

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s

    def attempt(self, bridge: str) -> str:
        assert bridge == "br0"
        self.attempts.append(self.now_s)
        if self.failing:
            self.failing -= 1
            return "the switch does not answer"
        del self.ids[UNCONFIRMED]
        return ""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    made = Host(Unconfirmed(What.ATTACH, NOW_S + 63, 60.0))
    monkeypatch.setattr(reversal, "_vsctl", made.vsctl)
    monkeypatch.setattr(reversal, "_attempt", made.attempt)
    monkeypatch.setattr(reversal, "_say", lambda *lines: made.said.extend(lines))
    clock = SimpleNamespace(sleep=made.sleep, time=lambda: made.now_s, monotonic=lambda: made.now_s)
    monkeypatch.setattr(reversal, "time", clock)
    monkeypatch.setattr(client, "running", lambda: made.service)
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path))
    monkeypatch.setenv("OVS_LBT_HISTORY", str(tmp_path / "history.jsonl"))
    return made


def test_it_reverts_when_the_time_has_passed(host: Host) -> None:
    """The time counts from when the change was made, which is after it was armed."""
    assert reversal.after("br0", 60.0) == 0
    assert host.attempts == [NOW_S + 63 + GRACE_S]


def test_what_was_confirmed_is_left_alone(host: Host) -> None:
    del host.ids[UNCONFIRMED]
    assert reversal.after("br0", 60.0) == 0
    assert host.attempts == [] and host.now_s == NOW_S + 60


def test_a_bridge_that_was_deleted_is_left_alone(host: Host) -> None:
    assert reversal.after("br7", 60.0) == 0
    assert host.attempts == []


def test_what_fails_is_tried_again_and_reported_once(host: Host) -> None:
    host.failing = 5
    assert reversal.after("br0", 60.0) == 0
    assert len(host.attempts) == 6
    assert host.said == ["bridge br0: the switch does not answer"]


def test_a_database_that_is_away_is_waited_for(host: Host) -> None:
    host.away_until_s = NOW_S + 500
    assert reversal.after("br0", 60.0) == 0
    assert host.attempts and host.attempts[0] >= NOW_S + 500
    assert host.said == ["bridge br0: no answer from ovsdb-server"]


def test_an_open_vswitch_that_was_removed_is_not_waited_for(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ovs.dirs, "RUNDIR", str(tmp_path / "gone"))
    host.away_until_s = float("inf")
    assert reversal.after("br0", 60.0) == 1
    assert host.now_s - NOW_S - 60 == pytest.approx(reversal.GONE_S, abs=3)
    assert host.attempts == []


def test_a_service_that_is_alive_has_some_time_and_one_that_hangs_no_more(host: Host) -> None:
    host.service = True
    assert reversal.after("br0", 60.0) == 0
    due_s = NOW_S + 63 + GRACE_S
    assert host.attempts == [pytest.approx(due_s + reversal.PATIENCE_S, abs=1)]


def test_a_clock_that_was_set_back_prolongs_it_by_its_own_time_at_most(host: Host) -> None:
    host.ids[UNCONFIRMED] = unconfirmed.as_text(Unconfirmed(What.ATTACH, NOW_S + 1e6, 60.0))
    assert reversal.after("br0", 60.0) == 0
    assert host.attempts == [NOW_S + 60 + 60 + GRACE_S]


def test_it_is_confirmed_in_the_database(host: Host, tmp_path: Path) -> None:
    assert reversal.confirm("br0") == "br0: attach confirmed"
    assert host.asked[-1] == ("remove", "bridge", "br0", "external_ids", UNCONFIRMED)
    (line,) = (tmp_path / "history.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["at"], entry["event"]) == (NOW_S, "confirmed")
    with pytest.raises(Refused, match="has no unconfirmed change; "):
        reversal.confirm("br0")
    with pytest.raises(Refused, match=r"no bridge is named br7 \(did you mean br1\?\); "):
        reversal.confirm("br7")


@pytest.mark.parametrize("begun", [False, True])
def test_too_late_to_confirm(host: Host, begun: bool) -> None:
    until_s = NOW_S + 30 if begun else NOW_S
    change = Unconfirmed(What.DETACH, until_s, 60.0, begun=begun)
    host.ids[UNCONFIRMED] = unconfirmed.as_text(change)
    with pytest.raises(Refused, match="detach was not confirmed in time, and is being"):
        reversal.confirm("br0")
    assert UNCONFIRMED in host.ids


def test_a_database_on_another_host_is_reached_with_the_certificate_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise `after` never ends, even if the change was confirmed."""
    files = {"private-key": "k.pem", "certificate": "c.pem", "ca-cert": "ca.pem"}
    for option, file in files.items():
        monkeypatch.setenv(f"OVS_LBT_{option.upper().replace('-', '_')}", file)
    monkeypatch.setenv("OVS_LBT_OVSDB", "ssl:192.0.2.1:6640")
    monkeypatch.setattr(reversal, "run", lambda *words, **_: " ".join(words))
    assert {f"--{option}={file}" for option, file in files.items()} <= {*reversal._vsctl().split()}
    made: list[Options] = []
    monkeypatch.setattr(one_shot, "Service", lambda options, _: made.append(options))
    one_shot.revert("ssl:192.0.2.1:6640", "br0")
    assert made[0].tls == TlsFiles(*files.values())
    read = DatabaseRead(())
    monkeypatch.setattr(
        announce_endpoints, "Database", lambda _, put, tls: put(replace(read, leader=str(tls)))
    )
    found = announce_endpoints.read("ssl:192.0.2.1:6640")
    assert found.leader == str(TlsFiles(*files.values())), "for a dry run"


def test_who_is_too_late_learns_when_it_was_reverted() -> None:
    def line(event: str, why: str) -> str:
        return json.dumps({"at": NOW_S, "bridge": "br0", "event": event, "why": why})

    reverted = line("reverted", "attach rolled back by the timer")
    told = reversal.last_reversal("\n".join([line("moved", "x"), reverted, line("moved", "y")]))
    assert told == "attach rolled back by the timer, at 1970-01-01 00:16:40 UTC"
    assert reversal.last_reversal("\n".join([reverted, line("confirmed", "set confirmed")])) is None
    assert reversal.last_reversal("no matching entries") is None


def test_what_waits_is_written_and_read() -> None:
    back = (
        Setting("Bridge", "br0", "ovs-lbt-policy", "explicit"),
        Setting("Interface", "vnet0", "ovs-lbt-pin", None),
    )
    change = Unconfirmed(What.SET, 12.5, 60.0, back, ("eth1",), begun=True)
    assert unconfirmed.parse(unconfirmed.as_text(change)) == change
