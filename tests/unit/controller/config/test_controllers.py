"""What bridges say of their controllers: fail mode, what a change of it flushes, versions of OpenFlow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import ReadInstalled, Write
from controller.bridge.installation import AUDIT_INTERVAL_S, FLUSHED_WITHIN_S
from controller.config import controllers
from controller.config.rows import BridgeRow
from tests.unit.controller.story import Story
from tests.unit.fake_switch import world
from tests.unit.rows import bridge, ours, port


class ControllerStory(Story):
    def do_reads(self, least: str, most: str) -> None:
        """How often what is installed was read."""
        assert int(least) <= len(self.commands(ReadInstalled)) <= int(most)

    def do_fail_mode_writes(self, times: str) -> None:
        assert len([w for w in self.commands(Write) if "fail_mode" in str(w)]) == int(times)


CONTROLLER = ":controllers=('tcp:192.0.2.1:6653',)"
# The next audit is not due.
SETTLED = f"bond | run {AUDIT_INTERVAL_S + 1} | watch"
FREE = "plain unattached vms=1 :fail_mode"
ATTACH = "do attach br0 uplinks=eth1,eth2 | run 1 | watch"
OLD = "add bridge br0 protocols OpenFlow13"
STORIES = {
    # And then it is read as often as before.
    **{
        f"what a change flushes is installed again: {changes}": " | ".join(
            [
                SETTLED,
                *(
                    f"""set {change} | run 0.2 | flush | run 0.2 | installed | run {FLUSHED_WITHIN_S}
                    | watch | run {AUDIT_INTERVAL_S - 1} | reads 0 1"""
                    for change in changes.split()
                ),
            ]
        )
        for changes in (
            ":fail_mode=secure :fail_mode=None",
            f"{CONTROLLER} :controllers=()",
        )
    },
    "a switch that is slow to answer is asked once at a time": f"""{SETTLED} | hold
        | set :fail_mode=secure | run 1 | reads 1 1 | answer | run 1 | reads 7 99""",
    **{
        f"nothing is flushed: {change}": f"""bond {CONTROLLER} | run {AUDIT_INTERVAL_S + 1} | watch
        | set {change} | run {FLUSHED_WITHIN_S} | reads 0 0"""
        for change in (
            ":mcast_snooping_enable=True",
            ":mirrors=m",
            ":datapath_id='00000000000000aa'",
            ":controllers=('ptcp:6654','tcp:192.0.2.1:6653')",
        )
    },
    "flows that somebody deletes are installed with the next poll": f"""{SETTLED} | run 0.5 | watch
        | flush | run 1.1 | installed | reads 1 1""",
    # And what the changes have flushed is read.
    **{
        f"the fail mode that attach has set is set again: {changed}": f"""{FREE}=standalone | watch
        | {ATTACH} | warned | set :fail_mode={changed} | column fail_mode secure
        | warned Bridge br0 fail_mode: changed to standalone after attach; secure…is set again…
        | run 60 | fail-mode-writes 1 | reads 2 99 | do detach br0 | column fail_mode standalone"""
        for changed in ("None", "standalone")
    },
    "one that was secure before attach is the operator's": f"""{FREE}=secure | {ATTACH}
        | set :fail_mode=None | column fail_mode None | ask show br0
        | told …not done Bridge br0 fail_mode: standalone…loop…; set secure: ovs-vsctl set-fail-mode br0 secure…""",
    "a bond needs none": "bond | column fail_mode None | warned",
    "a bridge that is not attached keeps its own": f"""{FREE}=None before={{"fail_mode":null}}
        | set :fail_mode=standalone | column fail_mode standalone""",
    "attach to a bridge without our version": f"""bond unattached
        :protocols=('OpenFlow10','OpenFlow14') | note-row | ask attach br0 policy=load-based
        | refused …bridge br0 allows only OpenFlow10, OpenFlow14; …ovs-vsctl {OLD}… | row-as-noted
        | let-go""",
    "an attached bridge without our version": f"""bond | set :protocols=('OpenFlow10',) | gone
        | ask show br0 | told …not done Bridge br0 protocols: OpenFlow10…OpenFlow13…
        | finding not-connected …not connected…lack OpenFlow13; …{OLD}… | set :protocols=() | back
        | shows br0 connected=True not_done=[]""",
}


@pytest.mark.parametrize("story", STORIES)
def test_controller(story: str) -> None:
    ControllerStory(STORIES[story]).tell()


def test_a_service_that_was_dead_meanwhile_sets_the_fail_mode_again() -> None:
    here = ControllerStory(f"{FREE}=standalone | {ATTACH}").tell()
    here.rows["br0"] = replace(here.rows["br0"], fail_mode=None)
    here.restart_service()
    here.do_column("fail_mode", "secure")


def test_a_bridge_that_has_lost_its_bond_has_no_uplinks_to_warn_of() -> None:
    row = bridge(port("vnet0", 10))
    here = world(row).start()
    assert here.engine.fleet.status()[0].not_done == ()
    ids = ours(policy="load-based", uplinks="eth1,eth2")
    vm, eth1, eth2 = port("vnet0", 10), port("eth1", 1), port("eth2", 2)
    here = world(bridge(vm, eth1, eth2, ids=ids)).start()
    here.write(bridge(vm, eth1, ids=ids))
    (text,) = here.engine.fleet.status()[0].not_done
    assert "form a loop" in text, "when it is back"


@pytest.mark.parametrize(
    "allowed", [(), ("OpenFlow13",), ("OpenFlow10", "OpenFlow13", "OpenFlow15")]
)
def test_nothing_is_said_of_a_bridge_that_allows_ours_or_all(allowed: tuple[str, ...]) -> None:
    row = BridgeRow("br0", protocols=allowed)
    assert controllers.refusal(row) is None
    assert not list(controllers.not_done(row, 0))


@pytest.mark.parametrize(
    ("target", "listens_at"),
    [
        ("ssl:192.0.2.9:6653", {"192.0.2.9", "0.0.0.0", "lbt1"}),
        ("tcp:192.0.2.9", {"192.0.2.9", "0.0.0.0", "lbt1"}),
        ("tcp:lbt1:6653", {"192.0.2.9", "0.0.0.0", "lbt1"}),
        ("tcp:[2001:db8::9]:6653", {"0.0.0.0", "lbt1"}),
        *((other, set()) for other in ("tcp:192.0.2.9:6633", "ptcp:6653", "tcp:[", "tcp:")),
    ],
)
def test_a_controller_is_the_service_if_address_and_port_are(
    target: str, listens_at: set[str]
) -> None:
    for address in ("192.0.2.9", "0.0.0.0", "lbt1"):
        assert controllers.is_ours(target, (address, 6653)) == (address in listens_at)
    assert not controllers.is_ours(target, None)
