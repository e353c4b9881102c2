"""The hash of connections: dp_hash once the switch has the group for it, multipath until then."""

from __future__ import annotations

import pytest

from controller.api.engine_commands import AddSelectGroup, Apply, Report
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Multipath, ToGroup
from controller.features.connection_hash import OFFLOADED
from controller.features.feature import RETRY_AFTER_S
from tests.unit.controller.engine.told import shown
from tests.unit.controller.story import Story
from tests.unit.fake_switch import done

GROUP_ID = SELECT_GROUP.group_id
REFUSAL = "the switch does not support OpenFlow15; to allow it: ovs-vsctl add bridge br0 protocols OpenFlow15"
COST = "interrupts traffic for {} (docs/guide/datapaths.md, Many connections)"


class HashStory(Story):
    """With steps about the hash, and a switch that can refuse the group."""

    def do_refuse_select(self) -> None:
        self.switch.refuse_select = REFUSAL

    def do_lose_group(self) -> None:
        """Somebody deletes the group, and Open vSwitch the flows that use it."""
        del self.switch.groups[GROUP_ID]
        for key, flow in list(self.switch.flows.items()):
            if ToGroup(GROUP_ID) in flow.actions:
                del self.switch.flows[key]

    def do_asked(self, times: str) -> None:
        """How often the switch was asked for the group; no bundle has it."""
        assert len(self.commands(AddSelectGroup)) == int(times)
        bundles = (changes for _, changes in self.applied())
        assert not any(SELECT_GROUP in (*c.add_groups, *c.modify_groups) for c in bundles)

    def do_used(self, used: str, *why: str) -> None:
        """What operators are told; that multipath costs something; and what flows do."""
        found = shown(self)["connection_hash"]
        assert (found["used"], found["why"]) == (used, " ".join(why)), found
        said = f"connections are hashed by {used}: {found['why']}"
        if used == "multipath":
            silent = "48 ms" if self.rows["br0"].in_userspace else "328 ms in emulation"
            assert COST.format(silent) in found["cost"]
            said += f"; {found['cost']}"
        assert said in " ".join(done(self.ask("show", "br0")).split())
        self.do_flows_use(used)

    def do_flows_use(self, hash_: str) -> None:
        """What flows use for connections. Fragments are hashed by multipath either way."""
        installed = self.switch.installed
        actions = [action for flow in installed.flows.values() for action in flow.actions]
        by_group = ToGroup(GROUP_ID) in actions
        assert not by_group or GROUP_ID in installed.groups
        assert by_group == (hash_ == "dp_hash")
        assert any(isinstance(action, Multipath) for action in actions) == (hash_ != "nothing")

    def do_has_group(self, has: str) -> None:
        assert (GROUP_ID in self.switch.groups) == (has == "yes")


BOND = "bond policy=dynamic vms=2"
VETHS = "eth1@offloads=False eth2@offloads=False"
STORIES = {
    "without the key": f"""{BOND} connection-hash= | run 100 | asked 0
        | used multipath connection-hash is multipath""",
    "in userspace": f"""{BOND} :in_userspace=True connection-hash= | run 5
        | used multipath connection-hash is multipath""",
    **{
        f"asked for as {wanted}": f"""{BOND} connection-hash={wanted} | run 30 | asked 1
        | used dp_hash connection-hash is {wanted}"""
        for wanted in ("auto", "dp_hash")
    },
    # OpenFlow 1.3 does not show whether a group has a method; Open vSwitch's scripts lose it.
    "a service that restarts": f"""{BOND} connection-hash=dp_hash | run 5 | restart | run 30
        | asked 1 | unchanged | flows-use dp_hash""",
    "a group that is there, and a method that is refused": f"""{BOND} connection-hash=dp_hash
        | run 5 | refuse-select | restart | run 5 | used multipath {REFUSAL}""",
    "a switch that restarts": f"""{BOND} connection-hash=dp_hash | run 5 | forget | run 15 | asked 2
        | flows-use dp_hash""",
    "a group that is deleted": f"""{BOND} connection-hash=dp_hash | run 5 | lose-group | run 15
        | asked 2 | flows-use dp_hash""",
    "offload": f"""{BOND} :hw_offload=True connection-hash=auto | run 30 | asked 0
        | used multipath {OFFLOADED} | set connection-hash=dp_hash | run 5
        | used dp_hash connection-hash is dp_hash""",
    "offload without a card that can forward": f"""{BOND} :hw_offload=True {VETHS}
        connection-hash=auto | run 30 | flows-use dp_hash | ask show br0
        | told …connection-hash is auto…hw-offload…eth1, eth2… | set connection-hash=dp_hash | run 5
        | used dp_hash connection-hash is dp_hash""",
    "a policy that spreads no connections": """bond policy=originating-port
        connection-hash=dp_hash | run 30 | asked 0 | flows-use nothing""",
    "a policy that splits": """bond policy=adaptive connection-hash=dp_hash | run 5 | has-group yes
        | flows-use nothing""",
    "the key is changed": f"""{BOND} | run 5 | set connection-hash=dp_hash | run 5
        | flows-use dp_hash | has-group yes | set connection-hash=multipath | run 5
        | flows-use multipath | has-group no""",
    "detach": f"""{BOND} connection-hash=dp_hash | run 5 | do detach br0 | run 5 | released""",
    "notes of attach and check": """bond unattached connection-hash=multipath
        | ask attach br0 policy=dynamic | told …note: connections are hashed by multipath:
        connection-hash is multipath; … | finding connection-hash connections are hashed by
        multipath: connection-hash is multipath; …""",
}


@pytest.mark.parametrize("story", STORIES)
def test_connection_hash(story: str) -> None:
    HashStory(STORIES[story]).tell()


def test_the_group_comes_behind_our_flows_and_before_those_that_use_it() -> None:
    here = HashStory(f"{BOND} connection-hash=auto | run 5").tell()
    order = [type(c) for _, c in here.log if isinstance(c, Apply | AddSelectGroup)]
    at = order.index(AddSelectGroup)
    assert Apply in order[:at] and Apply in order[at:]


def test_no_cost_is_reported_before_the_switch_has_the_group() -> None:
    here = HashStory(f"{BOND} connection-hash=auto")
    here.switch.holds_answers = True
    here.tell().run_for(1)
    why = "the switch does not have the select group for dp_hash yet"
    assert shown(here)["connection_hash"] == {"used": "multipath", "why": why}


def test_a_switch_that_refuses_is_asked_again_and_reported_once() -> None:
    here = HashStory(f"{BOND} connection-hash=auto")
    here.do_refuse_select()
    here.tell().run_for(5)
    here.do_used("multipath", REFUSAL)
    here.do_asked("1")
    here.run_for(2 * RETRY_AFTER_S)
    assert 1 < len(here.commands(AddSelectGroup)) <= 4
    assert len([r for r in here.commands(Report) if REFUSAL in r.text]) == 1
    here.switch.refuse_select = None
    here.run_for(2 * RETRY_AFTER_S)
    here.do_used("dp_hash", "connection-hash", "is", "auto")
