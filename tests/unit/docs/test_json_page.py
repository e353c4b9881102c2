"""docs/reference/json.md lists each field of the JSON that the code produces, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from controller.api import history
from controller.api.events import Faulted
from controller.api.status import BridgeStatus, PathHindrance, PortStatus, UplinkStatus
from controller.cli.answers import FOUND
from controller.cli.answers import check as check_command
from controller.config.offload import Offload
from controller.config.rows import Endpoint
from controller.host import client
from controller.operations import answers as of_show
from controller.operations import diagnosis, explain, planning, plans, unconfirmed
from controller.replay.figures import Figures, Volume
from policies.model import Load, Move, Reason, Unit
from policies.rules import Rule
from policies.verdicts import Standing, Verdict
from tests.reference import json_fields
from tests.unit.controller.metrics.test_exporter import BR0, ETH1, VNET0
from tests.unit.controller.operations.test_endpoint_plan import answered, full
from tests.unit.controller.operations.test_planning import CROWDED
from tests.unit.controller.story import tell
from tests.unit.fake_switch import done, world
from tests.unit.rows import host, with_ids

ENDPOINT = Endpoint(("192.0.2.1",), ("geneve",), ("br-int",))
UPLINK = replace(
    ETH1,
    silent=("BFD",),
    waits="spanning tree blocks it",
    absent=True,
    capacity_guessed=True,
    units=1,
    path_hindered=(PathHindrance("address", "eth1", "found", "expected", ("eth2",)),),
)
PORT = replace(
    VNET0,
    planned_uplink="eth2",
    split=True,
    rules={Rule.PIN.value: "", Rule.ALLOW.value: "found -> expected"},
)
BRIDGE = replace(
    BR0,
    uplinks=(UPLINK,),
    ports=(PORT,),
    not_done=("one",),
    buckets={"dynamic": {"eth1": 64}},
    on_normal=True,
    fallen_back=True,
    config=replace(BR0.config, offload=Offload(told=("one",))),
    connection_hash=("multipath", "why", "cost"),
    failure="an error",
)
FIELDS = json_fields.fields()
MOVED = history.Moved("vnet0", "eth1", "eth2", Reason.THRESHOLD, "web")
BUCKETS = history.Moved("dynamic", "eth1", "eth2", Reason.REBALANCE, buckets=3)


def shown() -> Iterator[Any]:
    change = unconfirmed.Unconfirmed(unconfirmed.What.SET, 60.0, 60.0)
    row = with_ids(host(), unconfirmed=unconfirmed.as_text(change))
    waiting = unconfirmed.as_json({"br0": row}, 0.0)
    faults = [Faulted("engine", "an error", 1.0, 1)]
    yield json.loads(of_show.shown([BRIDGE], True, faults, unconfirmed=waiting))
    yield json.loads(of_show.shown([], True, [], standby=True, leader="ovs-lbt@other"))


def checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    here = world(host(window_s="none")).start()
    here.set_link(1, up=False)
    answer = done(here.ask("check", "--json"))
    monkeypatch.setattr(client, "obstacle", lambda: None)
    monkeypatch.setattr(client, "ask", lambda *_: answer)
    assert check_command((), json_wanted=True) == FOUND
    yield json.loads(capsys.readouterr().out)


def planned() -> Iterator[Any]:
    here = tell(CROWDED)
    found = planning.propose(here.engine.fleet.bridges["br0"], here.now_s)
    (opinion,) = found.opinions
    bucket = Unit("dynamic/1", 0, policy="dynamic", uplink="eth1", load=Load(1.0), is_bucket=True)
    move = Move("dynamic/1", "eth1", "eth2", Reason.REBALANCE)
    rest = replace(opinion.rest, unrelieved=("eth1",)) if opinion.rest else None
    proposal = replace(
        found,
        units={**found.units, bucket.name: bucket},
        opinions=(replace(opinion, moves=(*opinion.moves, move), rest=rest),),
        lines=(*found.lines, BUCKETS),
        waiting=((MOVED, "why"), (BUCKETS, "why")),
        config=replace(found.config, not_done=("one",)),
    )
    yield json.loads(plans.as_json([proposal]))


def explained() -> Iterator[Any]:
    here = tell(CROWDED)
    here.run_until(60)
    bridge = here.engine.fleet.bridges["br0"]
    port = next(p for p in bridge.config.vm_ports if p.name == "vnet0")
    port = replace(port, endpoint=ENDPOINT)
    found = diagnosis.Account(bridge, port, here.now_s)
    yield json.loads(explain.as_json(found))
    rules = replace(port.rules, prefer=("eth1",), avoid=frozenset({"eth2"}))
    found.port = replace(port, allowed=frozenset({"eth1"}), rules=rules)
    found.verdict = Verdict(Standing.NO_ROOM, expected_ratio={"eth1": 0.9})
    found.buckets = {"eth1": 3}
    found.rules = {Rule.ALLOW: "found -> expected"}
    found.kept_off = {"eth2": "mtu"}
    found.split_s = 1.0
    found.dropped = {"address": 3}
    yield json.loads(explain.as_json(found))
    behind = diagnosis.Behind("52:54:00:00:00:01", 0, "eth1", Load(1.0))
    found = diagnosis.Account(bridge, replace(port, unit="source-mac"), here.now_s)
    found.behind = (behind,)
    yield json.loads(explain.as_json(found))


def remembered() -> Iterator[Any]:
    load = {"eth1": history.Utilization(0.8, 0.1)}
    for happened in history.Happened:
        entry = history.Entry(
            happened, 1.0, "br0", "why", (MOVED, BUCKETS), "eth1", load, load, "vnet0"
        )
        yield json.loads(history.as_line(entry, 0.0))


def paths(value: Any, known: set[str], path: str = "") -> Iterator[str]:
    """The paths of all values, and of those objects and lists that are known.

    A key that is not known is a word in capitals, if there is one in its place.
    """
    if isinstance(value, list):
        path = f"{path}[]"
        if path in known:
            yield path
        for one in value:
            yield from paths(one, known, path)
    elif isinstance(value, dict):
        if path in known:
            yield path
        begin = f"{path}." if path else ""
        names = {re.split(r"[.\[]", p[len(begin) :])[0] for p in known if p.startswith(begin)}
        any_key = next((name for name in names if name.isupper()), None)
        for key, one in value.items():
            yield from paths(one, known, begin + (key if key in names else any_key or key))
    else:
        yield path


@pytest.fixture
def answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, list[Any]]:
    figures = Figures(duration_s=1.0)
    return {
        "show --json": [*shown()],
        "check --json": [*checked(monkeypatch, capsys)],
        "plan --json": [*planned()],
        "plan --endpoints --json": [answered(full())],
        "explain --json": [*explained()],
        "history --json": [*remembered()],
        "replay --json": [{"load-based": figures.as_json(Volume())}],
    }


@pytest.mark.parametrize("command", FIELDS)
def test_the_page_has_every_field_and_no_other(command: str, answers: dict[str, list[Any]]) -> None:
    listed = [path for path, _ in FIELDS[command]]
    known = set(listed)
    assert len(known) == len(listed)
    assert {path for one in answers[command] for path in paths(one, known)} == known


def test_the_page_has_every_answer(answers: dict[str, list[Any]]) -> None:
    assert answers.keys() == FIELDS.keys()


def test_values_are_of_fields_that_there_are() -> None:
    paths = {path.rpartition(".")[2] for found in FIELDS.values() for path, _ in found}
    assert json_fields.VALUES.keys() <= paths


@pytest.mark.parametrize("one", [BRIDGE, UPLINK, PORT], ids=lambda one: type(one).__name__)
def test_the_answer_of_show_is_made_of_a_status_that_has_everything(
    one: BridgeStatus | UplinkStatus | PortStatus,
) -> None:
    unset = {f.name for f in fields(one) if getattr(one, f.name) == f.default}
    assert unset == set()
