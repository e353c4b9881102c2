"""Keys that vanish from the database apply for some time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.api.events import DatabaseRead
from controller.config.kept_keys import KEYS_COPY, UPLINK_KEYS_COPY
from controller.config.rows import PREFIX, BridgeRow
from controller.dataplane.specs import EMPTY
from tests.unit.controller.engine.told import shown
from tests.unit.controller.story import Story, tell
from tests.unit.fake_switch import refusal, reports, world
from tests.unit.rows import bond, bridge, host, interface, ours, port, with_ids, with_interface


class LostKeysStory(Story):
    def do_protected(self, *names: str) -> None:
        assert [p.name for p in self.rows["br0"].ports if p.protected] == [*names]

    def do_finds_first(self, *text: str) -> None:
        """What `check` finds first besides notes."""
        first, *_ = (f["text"] for f in self._findings() if f["severity"] != "note")
        assert " ".join(text) in first, first

    def do_installed_ours(self) -> None:
        assert self.switch.installed != EMPTY

    def do_bound_ports(self, *names: str) -> None:
        assert [*self.bindings()] == [*names], self.bindings()

    def do_copy_is_right(self) -> None:
        """The copy of the keys at the port of the bridge."""
        own, row = self.rows["br0"].ports[0], self.rows["br0"]
        assert json.loads(own.external_ids[KEYS_COPY]) == row.external_ids


FREE = "plain unattached vms=1 :fail_mode=standalone | add br0 65534"
ATTACH = "attach br0 uplinks=eth1,eth2 threshold=50"
ATTACHED = f"{FREE} | do {ATTACH} | run 1 | watch"
# The service lets the bridge go.
LEFT = f"{ATTACHED} | lose-keys | run 40 | let-go"
GONE = "Bridge br0 ovs-lbt-policy: the key has disappeared from the database…"
KEPT = "sent Disconnect"
KEYS = "set policy=load-based uplinks=eth1,eth2"
STORIES = {
    "the service goes on and says so": f"""{ATTACHED} | lose-keys | warned Bridge br0 ovs-lbt-policy: the
        key was removed from the database, and the service continues…; {GONE} | errors {GONE}
        | finds-first ovs-lbt-policy: the key has disappeared | ask show | told …key lost {GONE}
        | set :fail_mode=standalone | column fail_mode secure | run 25 | {KEPT} | bound-ports br0 vnet0
        | run 6 | let-go | protected eth1 eth2""",
    "keys that return are followed, and the time begins again": f"""{ATTACHED} | lose-keys
        | {KEYS} threshold=60 | errors | ask get bridge br0 threshold | told 60 | run 60 | {KEPT} | lose-keys
        | run 25 | {KEPT}""",
    "detach does not wait": f"""{ATTACHED} | lose-keys | do detach br0 | column fail_mode standalone
        | column external_ids {{}} | protected | let-go""",
    "attach does not wait either": f"""{ATTACHED} | note-row | lose-keys
        | ask attach br0 uplinks=eth1,eth9 | refused …eth9… | errors {GONE} | {KEPT}
        | do attach br0 uplinks=eth1,eth2 | row-as-noted | do detach br0 | column fail_mode standalone""",
    "an interface that may be an uplink waits for the keys": """bond vms=1 | lose-keys | add new0 20 | add tap0 21 | set tap0!iface-id=a | bound-ports tap0 vnet0
        | set policy=load-based | bound-ports new0 tap0 vnet0""",
    "a third uplink that nobody named": f"""{ATTACHED} | add eth3 3 | bound-ports br0 vnet0
        | errors …eth3, a new interface named like eth1, is missing… | protected eth1 eth2 eth3""",
    "the time is not lost with the lead": f"""{ATTACHED} | hear lead no | lose-keys | let-go
        | hear lead yes | run 1 | bound-ports br0 vnet0 | errors {GONE}""",
    "keys may return after the lead was lost": f"""{ATTACHED} | lose-keys | hear lead no | {KEYS} | let-go
        | hear lead yes | run 1 | bound-ports br0 vnet0""",
    "the time is not lost with a restart": f"""{ATTACHED} | lose-keys | restart | run 25
        | bound-ports br0 vnet0 | errors {GONE} | find-keys | errors | lose-keys | run 40 | let-go""",
    "a detach is not cut short when the time ends": f"""{FREE} | note-row | do {ATTACH} | run 1
        | lose-keys | run 28 | hold | ask detach br0 | unanswered | run 4 | answer | run 1 | told …
        | row-as-noted""",
    "keys that vanish later can be given back": f"""{FREE} | note-row | do {ATTACH} | run 1 | lose-keys
        | run 40 | let-go | installed-ours | finds-first ovs-lbt-policy has disappeared | check br0
        | finds-first ovs-lbt-policy has disappeared | do detach br0 | row-as-noted | released | run 1
        | let-go | check br0 uplinks=eth1,eth2 | finds | ask detach br0 | refused …not attached…""",
    "attach restores them": f"""{LEFT} | ask attach br0 policy=explicit
        | told br0: explicit over eth1, eth2… | run 1 | ask get bridge br0 threshold | told 50
        | ask get bridge br0 policy | told explicit | copy-is-right""",
    "an operator may restore them in the database": f"""{LEFT} | {KEYS} :fail_mode=standalone | run 1
        | column fail_mode secure | do detach br0 | column fail_mode standalone""",
    "ports that others protect": """plain unattached vms=1 vnet0:protected=True
        | do attach br0 uplinks=eth1,eth2 | protected vnet0""",
}


@pytest.mark.parametrize("story", STORIES)
def test_lost_keys(story: str) -> None:
    LostKeysStory(STORIES[story]).tell()


@pytest.mark.parametrize("how", ["at once", "in steps", "while the service is stopped"])
def test_keys_of_an_uplink_that_is_created_again_are_restored(how: str) -> None:
    here = world(with_uuids(host(uplinks=3), "a")).start()
    here.write_keys_of("eth2", role="standby", capacity_mbps="500").run_for(1)
    stored, before = here.rows["br0"].external_ids[UPLINK_KEYS_COPY], here.bindings()
    assert set(before.values()) == {"eth1", "eth3"}
    again = with_uuids(with_interface(here.rows["br0"], "eth2"), "b")
    here.log.clear()
    if how == "in steps":
        here.write(replace(again, ports=tuple(p for p in again.ports if p.name != "bond0")))
        again = replace(again, external_ids=here.rows["br0"].external_ids)
    if how == "while the service is stopped":
        here.rows["br0"] = again
        here.restart_service()
    else:
        here.write(again)
    here.run_for(60)
    (eth2,) = (i for i in here.rows["br0"].interfaces if i.name == "eth2")
    assert eth2.external_ids == ours(role="standby", capacity_mbps="500")
    assert here.rows["br0"].external_ids[UPLINK_KEYS_COPY] == stored.replace("eth2-a", "eth2-b")
    assert here.bindings() == before
    told = "Interface eth2: another program has created the record again"
    assert any(told in one for one in reports(here, "info"))
    here.write_keys_of("eth2", capacity_mbps="500").run_for(60)
    assert shown(here)["uplinks"][1]["role"] == "active", "what an operator removes stays removed"
    here.do("detach br0")
    assert here.rows["br0"].external_ids == {}


def with_uuids(row: BridgeRow, life: str) -> BridgeRow:
    return row.with_interfaces(lambda one: replace(one, uuid=f"{one.name}-{life}"))


@pytest.mark.parametrize("text", ["x", "[]", '{"eth2": 1}', '{"eth2": ["", {"a": "b"}]}', "{" * 9])
def test_a_copy_of_uplinks_keys_that_is_none_is_written_anew(text: str) -> None:
    here = world(with_ids(host(), uplink_keys=text)).start()
    assert UPLINK_KEYS_COPY not in here.rows["br0"].external_ids and here.bridge.config.errors == ()


def test_vm_ports_may_be_named_like_uplinks() -> None:
    ports = [port(f"s1-eth{i}", i) for i in range(1, 5)]
    here = world(bridge(*ports, ids={})).start()
    here.do("attach br0 uplinks=s1-eth1,s1-eth2").add_port(port("s1-eth5", 5))
    assert here.bindings().keys() == {"s1-eth3", "s1-eth4", "s1-eth5"}
    here.restart_service()
    assert here.bindings().keys() == {"s1-eth3", "s1-eth4", "s1-eth5"}


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("0", 0), ("much", 30), (None, 30)])
def test_the_time_is_the_operator_s(text: str | None, seconds: float) -> None:
    here = world(host()).start()
    read = DatabaseRead(tuple(here.rows.values()), key_loss_grace_s=text)
    here.say(read, read)
    told = [
        f"Open_vSwitch . {PREFIX}key-loss-grace-s: much is invalid; expected a number of seconds from 0 to 86400"
    ]
    assert reports(here, "warning") == (told if text == "much" else [])
    assert here.engine.fleet.lost_keys.grace_s == seconds


def test_whoever_makes_a_bond_of_plain_uplinks_goes_on_without_us() -> None:
    here = tell(LEFT)
    kept, *others = here.rows["br0"].ports
    vnet0 = others[-1]
    here.rows["br0"] = bridge(kept, bond(interface("eth1", 1), interface("eth2", 2)), vnet0, ids={})
    here.switch.flows.clear()
    here.switch.groups.clear()
    here.restart_service().run_for(5)
    assert here.engine.fleet.bridges == {} and here.switch.installed == EMPTY


@pytest.mark.parametrize("text", ["", "[1]", "{", "7", '{"ovs-lbt-policy": 5}', "[" * 100_000])
def test_what_others_write_in_its_place_is_no_copy(text: str) -> None:
    here = LostKeysStory(LEFT).tell()
    own, *others = here.rows["br0"].ports
    here.write(
        replace(here.rows["br0"], ports=(replace(own, external_ids={KEYS_COPY: text}), *others))
    )
    assert "not attached" in refusal(here.ask("detach", "br0"))
    here.do_check("br0", *ATTACH.split()[2:])
    here.do_finds_first("the ovs-lbt flows forward")
