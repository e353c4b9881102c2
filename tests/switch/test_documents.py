"""What the documents tell operators to type, typed: word for word, on a real switch.

A block is followed if a label is before it. Of what labels there are, and that every other
block is checked in another way, tests/unit/docs/test_documents.py sees to.
"""

from __future__ import annotations

import json
import re

from tests import documents
from tests.switch.adopting import state
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.following import bridges, follow
from tests.switch.service import Service
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

on_bond = on_beds(BedSpec(BALANCE_SLB))
on_plain_uplinks = on_beds(BedSpec(PLAIN))
on_three = on_beds(BedSpec(PLAIN, 3), BedSpec(BALANCE_SLB, 3))


# ---- adopt ------------------------------------------------------------------------------


@on_bond
def test_a_bond_is_adopted_step_by_step_and_given_back(bed: Bed, service: Service) -> None:
    before = state(bed)
    steps = follow("adopt", service, bed)
    next(steps)
    assert service.show_json(bed.bridge)["mode"] == "observe"
    service.wait_ready(bed)
    assert bed.bridge in next(steps)
    next(steps)
    assert {u["capacity_bps"] for u in service.show_json(bed.bridge)["uplinks"]} == {1e9}
    next(steps)
    assert service.show_json(bed.bridge)["mode"] == "enforce"
    service.wait_ready(bed)
    stations = {station.port for station in bed.stations}
    wait_until(lambda: bed.not_flooded() == stations, "none is left to NORMAL")
    bed.introduce()
    check_everything(bed, settled_homes(bed))
    next(steps)
    assert next(steps, None) is None
    assert bed.bridge not in bridges(service)
    for uplink in bed.uplinks:
        key = "ovs-lbt-capacity-mbps"
        bed.ovs.vsctl("remove", "interface", uplink.name, "external_ids", key)
    assert state(bed) == before


@on_plain_uplinks
def test_plain_uplinks_are_adopted_and_what_is_left_is_removed(bed: Bed, service: Service) -> None:
    (_,) = follow("adopt-plain", service, bed)
    service.wait_ready(bed)
    assert service.show_json(bed.bridge)["mode"] == "observe"
    bed.introduce()
    check_everything(bed, settled_homes(bed))
    service.do("set", "interface", bed.uplinks[0].name, "capacity-mbps=1000")
    assert len(list(follow("remove", service, bed))) == 2
    assert bed.bridge not in bridges(service)
    assert "ovs-lbt" not in bed.ovs.vsctl("--columns=external_ids", "list", "interface")


@on_bond
def test_changes_are_made_and_confirmed(bed: Bed, service: Service) -> None:
    before = state(bed)
    steps = follow("confirm", service, bed)
    said = next(steps)
    assert f"{bed.bridge}: attach will be rolled back in " in said
    assert said.endswith(f"{bed.bridge}: attach confirmed\n")
    said = next(steps)
    assert "set confirmed" in said and said.endswith(f"{bed.bridge}: detach confirmed\n")
    assert next(steps, None) is None
    assert state(bed) == before


@on_bond
def test_the_readme_takes_a_bond_from_check_to_detach(bed: Bed, service: Service) -> None:
    before = state(bed)
    steps = follow("readme-bond", service, bed)
    said = next(steps)
    assert all(uplink.name in said for uplink in bed.uplinks)
    assert said.endswith("set confirmed\n")
    assert service.show_json(bed.bridge)["mode"] == "enforce"
    next(steps)
    assert bed.bridge not in bridges(service)
    assert next(steps, None) is None
    assert state(bed) == before


@on_bond
def test_the_quick_start_takes_a_bond_from_check_to_detach(bed: Bed, service: Service) -> None:
    before = state(bed)
    steps = follow("quick-start-bond", service, bed)
    assert all(uplink.name in said for said in [next(steps)] for uplink in bed.uplinks)
    next(steps)
    assert service.show_json(bed.bridge)["mode"] == "observe"
    next(steps)
    assert service.show_json(bed.bridge)["uplinks"][0]["capacity_bps"] == 1e9
    assert f"ovs-lbt confirm {bed.bridge}" in next(steps)
    said = next(steps)
    assert "set confirmed" in said and all(vm.port in said for vm in bed.vms)
    next(steps)
    assert bed.bridge not in bridges(service)
    assert next(steps, None) is None
    key = "ovs-lbt-capacity-mbps"
    bed.ovs.vsctl("remove", "interface", bed.uplinks[0].name, "external_ids", key)
    assert state(bed) == before


@on_plain_uplinks
def test_the_quick_start_attaches_plain_uplinks(bed: Bed, service: Service) -> None:
    (_,) = follow("quick-start-plain", service, bed)
    service.wait_ready(bed)
    service.do("detach", bed.bridge)


# ---- day by day -------------------------------------------------------------------------


@on_plain_uplinks
def test_a_day_at_the_terminal(bed: Bed, service: Service) -> None:
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    service.attach(bed)
    looked, *_ = [*follow("daily", service, bed), *follow("check", service, bed)]
    healthy, *_ = follow("check-health", service, bed)
    assert f"{bed.bridge}: no problems found\n" in healthy
    assert bed.bridge in looked and bed.vms[0].port in looked
    wait_until(lambda: all(map(bed.carrier, bed.uplinks)), "both links are up")
    shown = service.show_json(bed.bridge)
    assert {uplink["role"] for uplink in shown["uplinks"]} == {"active"}
    assert (shown["policy"], shown["config_errors"]) == ("load-based", [])
    check_everything(bed, settled_homes(bed))
    service.do("detach", bed.bridge)


@on_plain_uplinks
def test_bfd_is_enabled_while_an_uplink_is_drained(bed: Bed, service: Service) -> None:
    first, end = bed.uplinks[0], bed.uplinks[0].upstream_end.interface
    bed.set("bridge", bed.bridge, failback_delay_s=0)
    service.attach(bed)
    before = service.bindings(bed)
    bed.tor.ovs.vsctl("set", "interface", end, "bfd:enable=true")
    steps = follow("bfd", service, bed)
    next(steps)
    status = ("get", "interface", first.name, "bfd_status:state")
    wait_until(lambda: bed.ovs.vsctl("--if-exists", *status) == "up", "BFD answers")
    assert next(steps).strip() == "up"
    next(steps)
    wait_until(lambda: service.bindings(bed) == before, f"VM ports use {first} as before")
    next(steps)
    bed.tor.ovs.vsctl("clear", "interface", end, "bfd")
    check_everything(bed, settled_homes(bed))
    service.do("detach", bed.bridge)


@on_three
def test_an_uplink_is_added_and_removed(bed: Bed, service: Service) -> None:
    third = bed.uplinks.pop()
    if bed.spec.on_bond:
        bed.ovs.vsctl("del-bond-iface", bed.bond, third.name)
    else:
        bed.ovs.vsctl("del-port", bed.bridge, third.name)
    service.attach(bed)
    bed.uplinks.append(third)
    steps = follow("bond-member" if bed.spec.on_bond else "plain-member", service, bed)
    next(steps)

    def team() -> list[str]:
        return [uplink["name"] for uplink in service.show_json(bed.bridge)["uplinks"]]

    wait_until(lambda: third.name in team(), "the new uplink is one of the team")
    wait_until(lambda: bed.carrier(third), "its link is seen")
    assert third.name not in service.bindings(bed), "an uplink is no VM port"
    bed.introduce()
    check_everything(bed, settled_homes(bed))
    next(steps)
    bed.uplinks.remove(third)
    wait_until(lambda: third.name not in team(), "it is none any more")
    bed.settled()
    settled_homes(bed)
    service.do("detach", bed.bridge)


@on_beds(BedSpec(PLAIN, 4, (None,) * 4))
def test_every_setting_in_an_example_is_taken(bed: Bed, service: Service) -> None:
    service.attach(bed)
    assert len(list(follow("settings", service, bed))) == 6
    shown = service.show_json(bed.bridge)
    assert (shown["policy"], shown["config_errors"]) == ("dynamic", [])
    first, second, *_ = (json.loads(service.ask("explain", vm.port, "--json")) for vm in bed.vms)
    names = [uplink.name for uplink in bed.uplinks]
    assert (first["allowed"], first["avoid"]) == (names[:3], [names[1]])
    assert (first["affinity"], first["anti_affinity"], first["shares"]) == ("db", None, 100)
    assert (second["reserve_bps"], second["limit_bps"]) == (200e6, 500e6)
    assert service.port(bed, bed.vms[3])["policy"] == "originating-port"
    kept = bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids")
    assert "ovs-lbt-path-check=on" in kept and "198.51.100.1%20" in kept
    service.do("detach", bed.bridge, "--purge")


# ---- others' set-ups --------------------------------------------------------------------


@on_beds(BedSpec(ACTIVE_BACKUP))
def test_a_reload_on_proxmox_changes_nothing_with_our_line(bed: Bed, service: Service) -> None:
    """ifupdown2's addon clears what it does not know in one transaction, extras last."""
    (stanza,) = [b for b in documents.blocks() if b.first_line == "auto eno1"]
    (extra,) = re.findall(r"^\s+ovs_extra (.+)$", stanza.text, re.MULTILINE)
    bridge_columns = "auto_attach controller external-ids fail_mode flood_vlans ipfix mirrors"
    interface_columns = "mtu_request external-ids other_config options"
    reload = [
        *["--", "--may-exist", "add-br", bed.bridge],
        *["--", "--if-exists", "clear", "bridge", bed.bridge, *bridge_columns.split()],
        *["netflow", "other_config", "protocols", "sflow"],
        *["--", "--if-exists", "clear", "interface", bed.bridge, *interface_columns.split()],
    ]
    service.attach(bed)
    homes = settled_homes(bed)
    bed.ovs.vsctl(*reload, "--", *extra.replace("${IFACE}", bed.bridge).split())
    assert service.show_json(bed.bridge)["policy"] == "load-based"
    assert settled_homes(bed) == homes
    check_everything(bed, homes)
    bed.ovs.vsctl(*reload)
    wait_until(lambda: bed.bridge not in bridges(service), "without it we forget the bridge")
    assert settled_homes(bed) == homes, "its flows forward as before"
    service.attach(bed)
    service.do("detach", bed.bridge)


def test_the_database_takes_every_other_command(ovs: PrivateOvs) -> None:
    """Those of blocks that are not followed, by themselves and without effect."""
    unfollowed = [block for block in documents.blocks() if block.label is None]
    found = [c for block in unfollowed for c in block.commands if c.startswith("ovs-vsctl ")]
    bridges = "add-br br-int -- add-br br-ex -- add-br br0"
    ready = f"{bridges} -- add-bond br0 bond0 eth0 eth1 -- add-port br0 vnet3"
    for command in found:
        rest = command.removeprefix("ovs-vsctl ").removeprefix("-- ")
        script = f"ovs-vsctl --no-wait --dry-run -- {ready} -- {rest}"
        ovs.run("bash", "-c", script)
    assert found, "the documents have no such command any more"
