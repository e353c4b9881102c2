"""Requests with --dry-run: what they say, that they change nothing, and that it then happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.commands import COMMANDS, REQUESTS
from controller.api.engine_commands import Apply, Record, SetPortFlags, Write
from controller.config.rows import BridgeRow
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import (
    backed_up,
    bridge,
    host,
    ours,
    plain_uplinks,
    port,
    with_interface,
    without_us,
)

BARE = without_us(host())
KEEP = "unless confirmed: ovs-lbt confirm br0"
NO_FLOWS = "would remove all ovs-lbt flows and groups from bridge br0"
ROLLED_BACK = f"would roll this back after 60 s, {KEEP}"
DETACHED = [
    "would remove policy, team, threshold from bridge br0",
    "would remove binding from interfaces vnet0, vnet1, vnet2, 1 more",
    NO_FLOWS,
]
DRAINED = ["would move vnet0: eth1 -> eth2 (drain)", "would move vnet2: eth1 -> eth2 (drain)"]
PLAIN = plain_uplinks("standalone")
PLAIN_ATTACHED = 'policy=explicit, uplinks=eth1,eth2, connection-hash=auto, before={"fail_mode"'
# By request: the answer to its dry run, on a bridge with vnet0 and vnet2 on eth1, vnet1 and vnet3 on eth2.
SAID = {
    "move vnet0 eth2": ["would move vnet0: eth1 -> eth2 (manual)"],
    "move vnet0 eth1": ["nothing would change"],
    "pin vnet0 eth2": [
        "would set pin=eth2 on interface vnet0",
        "would move vnet0: eth1 -> eth2 (pin)",
    ],
    "pin vnet0 eth1": ["would set pin=eth1 on interface vnet0"],
    "unpin vnet0": ["nothing would change"],
    "drain eth1": ["would set role=drained on interface eth1", *DRAINED],
    "set bridge br0 policy=adaptive window-s=10": [
        "would set policy=adaptive, window-s=10 on bridge br0"
    ],
    "set bridge br0 policy=explicit": [
        "would set policy=explicit on bridge br0",
        "would move vnet1: eth2 -> eth1 (rebalance)",
        "would move vnet3: eth2 -> eth1 (rebalance)",
    ],
    "set bridge br0 mode=observe": ["would set mode=observe on bridge br0"],
    "set interface eth1 role=standby": ["would set role=standby on interface eth1", *DRAINED],
    "set bridge br0 window-s=7 --rollback-after 60": [
        "would set window-s=7 on bridge br0",
        ROLLED_BACK,
    ],
    "unset bridge br0 threshold": ["would remove threshold from bridge br0"],
    "detach br0": DETACHED,
    "detach br0 --rollback-after 60": [*DETACHED, ROLLED_BACK],
}


def changes(here: World) -> int:
    """How many commands have changed something. Flags are read with a command that changes no port."""
    flags = [c for c in here.commands(SetPortFlags) if isinstance(c, SetPortFlags)]
    done_ = [command for kind in (Apply, Record, Write) for command in here.commands(kind)]
    return len(done_) + sum(bool(c.no_flood or c.flood) for c in flags)


def dry(here: World, request: str) -> list[str]:
    """The answer to the dry run of a request, which changes nothing."""
    rows, bridges = dict(here.rows), dict(here.engine.fleet.bridges)
    installed = {name: switch.installed for name, switch in here.switches.items()}
    before = changes(here)
    said = done(here.ask(*request.split(), "--dry-run")).splitlines()
    assert here.rows == rows
    assert {name: switch.installed for name, switch in here.switches.items()} == installed
    assert changes(here) == before
    assert here.engine.fleet.bridges == bridges
    assert not here.engine.jobs.concerned
    return said


def served() -> World:
    return world(host(threshold="60")).start().run_for(10)


def test_every_command_that_changes_something_has_a_dry_run() -> None:
    with_it = {row.name for row in COMMANDS if any(a.name == "--dry-run" for a in row.arguments)}
    assert with_it == {
        *("attach", "detach", "confirm", "rollback", "set", "unset", "move", "pin", "unpin"),
        *("drain", "undrain", "apply", "rescue"),
    }
    assert all(REQUESTS[name].reads for name in REQUESTS.keys() - with_it - {"revert"})


@pytest.mark.parametrize("request_", SAID)
def test_what_is_said_happens_and_nothing_before(request_: str) -> None:
    here = served()
    before = here.bindings()
    assert dry(here, request_) == SAID[request_]
    here.ask(*request_.split())
    here.run_for(5)
    moved = [line.split() for line in SAID[request_] if line.startswith("would move")]
    then = {words[2].rstrip(":"): words[5] for words in moved}
    if not request_.startswith("detach"):
        assert here.bindings() == before | then
    records = {"br0": here.rows["br0"].external_ids} | {
        i.name: i.external_ids for i in here.rows["br0"].interfaces
    }
    for line in SAID[request_]:
        if line.startswith("would set"):
            keys, record = line.removeprefix("would set ").rsplit(" on ", 1)
            given = ours(**dict(key.replace("-", "_").split("=") for key in keys.split(", ")))
            assert given.items() <= records[record.split()[1]].items()


def test_an_uplink_that_is_used_again_gets_its_vm_ports_back() -> None:
    here = served()
    here.ask("drain", "eth1")
    here.run_for(5)
    assert dry(here, "drain eth1") == ["nothing would change"]
    assert dry(here, "undrain eth1") == [
        "would remove role from interface eth1",
        "would move vnet0: eth2 -> eth1 (failback)",
        "would move vnet2: eth2 -> eth1 (failback)",
    ]


def test_a_change_that_waits_is_confirmed_or_rolled_back() -> None:
    here = served()
    done(here.ask("set", "bridge", "br0", "window-s=7", "--rollback-after", "60"))
    assert dry(here, "confirm br0") == ["bridge br0: would confirm the change by set"]
    back = [
        "would remove window-s from bridge br0",
        "bridge br0: would roll back the change by set",
    ]
    assert dry(here, "rollback br0") == dry(here, "revert br0") == back
    done(here.ask("rollback", "br0"))


@pytest.mark.parametrize(
    ("row", "request_", "said"),
    [
        (
            BARE,
            "attach br0 --rollback-after 60",
            [
                "would set policy=load-based, connection-hash=auto on bridge br0",
                ROLLED_BACK,
                "note: br0: can be attached: load-based over eth1, eth2, 4 VM ports",
            ],
        ),
        (
            PLAIN,
            "attach br0 uplinks=eth1,eth2 policy=explicit",
            [
                f'would set {PLAIN_ATTACHED}: "standalone"}}, fail_mode=secure on bridge br0',
                "would set protected=true on ports eth1, eth2",
                "note: br0: can be attached: explicit over eth1, eth2, 1 VM ports",
                "note: br0: fail mode is standalone; attach sets it to secure, and detach restores it",
            ],
        ),
    ],
    ids=["bond", "plain"],
)
def test_an_attach_tells_what_it_writes_and_what_check_finds(
    row: BridgeRow, request_: str, said: list[str]
) -> None:
    here = world(row).start()
    assert dry(here, request_) == said
    done(here.ask(*request_.split()))


def test_a_detach_restores_the_fail_mode_and_names_what_stays() -> None:
    here = world(with_interface(PLAIN, "vnet0", shares="70")).start()
    done(here.ask("attach", "br0", "uplinks=eth1,eth2", "policy=explicit"))
    said = dry(here, "detach br0")
    assert "would set fail_mode=standalone on bridge br0" in said
    assert said[-1].startswith("br0: settings kept for the next attach: vnet0 shares; ")


def test_vm_ports_gather_before_a_bond_is_given_back() -> None:
    here = world(backed_up()).start().run_for(10)
    away = [name for name, uplink in here.bindings().items() if uplink != "eth2"]
    assert away
    assert f"would first move {', '.join(away)} to eth2" in dry(here, "detach br0")


def test_lost_keys_stay_as_they_are() -> None:
    """A bridge whose keys have disappeared is managed with the last ones, also during a dry run."""
    row = host()
    here = world(replace(row, ports=(port("br0", 65534), *row.ports))).start().run_for(10)
    here.write(replace(here.rows["br0"], external_ids={}))
    assert dry(here, "attach br0")[0].startswith("would set policy=load-based")
    assert NO_FLOWS in dry(here, "detach br0")
    here.run_for(60)
    assert "br0" not in here.engine.fleet.bridges
    assert NO_FLOWS in dry(here, "detach br0")
    assert here.engine.fleet.rows["br0"].external_ids == {}


def test_a_refused_dry_run_is_not_recorded() -> None:
    here = served()
    said = refusal(here.ask("move", "vnet0", "nope", "--dry-run"))
    assert not here.commands(Record)
    assert refusal(here.ask("move", "vnet0", "nope")) == said
    assert here.commands(Record)


def test_many_moves_are_counted() -> None:
    ports = [port(f"vnet{number}", 10 + number) for number in range(60)]
    uplinks = port("eth1", 1), port("eth2", 2)
    row = bridge(*uplinks, *ports, ids=ours(policy="explicit", uplinks="eth1,eth2"))
    said = dry(world(row).start(), "drain eth1")
    assert (len(said), said[-1]) == (22, "would make 40 more moves")
