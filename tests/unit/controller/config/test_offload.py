"""What hardware offload, DPDK and representors mean is told, and what cannot work is refused.

The records are those of hosts that have them. None of this was tried on hardware.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, PortRow
from tests.said import says
from tests.unit.fake_switch import done, refusal, world
from tests.unit.rows import bond, bridge, host, interface, ours, port, with_interface, without_us

KEYS = {"shares": "100", "reserve-mbps": "20", "limit-mbps": "50"}


def representor(name: str, ofport: int) -> PortRow:
    """The representor of a VF."""
    return port(name, ofport, driver="mlx5e_rep", represents=True)


def switchdev(policy: str = "load-based", **columns: object) -> BridgeRow:
    """A host of SR-IOV in switchdev mode: a bond of a card's two ports, and representors of VFs."""
    cards = (interface(f"enp1s0f{n}np{n}", n + 1, driver="mlx5_core") for n in range(2))
    vfs = [representor(f"enp1s0f0npf0vf{n}", 10 + n) for n in range(2)]
    row = bridge(bond(*cards), *vfs, port("vnet2", 12), ids=ours(policy=policy))
    return replace(row, hw_offload=True, **columns)  # type: ignore[arg-type]


def dpdk(**columns: object) -> BridgeRow:
    """A host of DPDK: two cards that the kernel does not have, and a VM behind vhost-user."""
    cards = (interface(f"dpdk{n}", n + 1, kind="dpdk", driver="net_mlx5") for n in range(2))
    vm = port("vhu0", 10, kind="dpdkvhostuserclient")
    return replace(bridge(bond(*cards), vm), in_userspace=True, **columns)  # type: ignore[arg-type]


def told(row: BridgeRow) -> tuple[str, ...]:
    return read_bridge(row).offload.told


def test_nothing_is_told_where_nothing_is_offloaded() -> None:
    row = host()
    assert told(row) == () and not read_bridge(row).offload.by_tc


def test_of_tc_it_is_told_what_it_takes_and_how_it_counts() -> None:
    takes, not_taken, counts, *_ = told(switchdev())
    assert "results of ovs-lbt tables" in takes and "software" in not_taken and "14 bytes" in counts
    assert read_bridge(switchdev()).offload.by_tc


@pytest.mark.parametrize(
    ("policy", "hashes"),
    [("load-based", False), ("explicit", False), ("dynamic", True), ("adaptive", True)],
)
def test_policies_that_hash_fill_the_card_with_flows(policy: str, hashes: bool) -> None:
    found = [text for text in told(switchdev(policy)) if "each connection" in text]
    assert bool(found) is hashes
    assert all(policy in text for text in found)


@pytest.mark.parametrize("policy", ["dynamic", "adaptive", "address-hash"])
@pytest.mark.parametrize(("connection_hash", "in_software"), [("dp_hash", True), ("auto", False)])
def test_what_dp_hash_hashes_is_said_to_stay_in_software(
    policy: str, connection_hash: str, in_software: bool
) -> None:
    row = switchdev(external_ids=ours(policy=policy, connection_hash=connection_hash))
    found = [text for text in told(row) if text.startswith(f"hw-offload with {policy}: ")]
    assert ["are forwarded in software" in text for text in found] == [in_software]


def test_a_port_s_own_policy_is_one_in_use() -> None:
    row = with_interface(switchdev(), "vnet2", policy="address-hash")
    assert [t for t in told(row) if "hw-offload with address-hash" in t]


@pytest.mark.parametrize("tc_policy", ["skip_hw", "skip_sw"])
def test_a_tc_policy_is_told(tc_policy: str) -> None:
    assert [text for text in told(switchdev(tc_policy=tc_policy)) if tc_policy in text]


def test_representors_without_offload_are_told() -> None:
    (text,) = told(replace(switchdev(), hw_offload=False))
    assert text.startswith("representors enp1s0f0npf0vf0, enp1s0f0npf0vf1: hw-offload is not true")


def test_many_ports_are_counted() -> None:
    vms = [representor(f"pf0vf{i}", 10 + i) for i in range(9)]
    row = replace(bridge(*host(vms=()).ports, *vms), hw_offload=True)
    assert "representors pf0vf0, pf0vf1, pf0vf2, pf0vf3 and 5 more: " in " ".join(told(row))


def test_the_userspace_datapath_offloads_to_dpdk_ports_only() -> None:
    row = replace(host(vms=()), hw_offload=True, in_userspace=True)
    (text,) = told(row)
    assert text.endswith("offloads only to DPDK cards, which this bridge lacks")
    assert not read_bridge(row).offload.by_tc, "only tc counts without headers"


def test_of_dpdk_it_is_told_what_does_not_work() -> None:
    uplinks, vms = told(dpdk())
    assert (
        uplinks.startswith("DPDK uplinks dpdk0, dpdk1 have no Linux device")
        and "rejected" in uplinks
    )
    assert vms.startswith("frames of DPDK ports vhu0 are forwarded by")
    assert "DPDK card" in told(dpdk(hw_offload=True))[-1]


def veths(**columns: object) -> BridgeRow:
    """A host that was told to offload, and whose uplinks cannot."""
    uplinks = [interface(f"eth{i}", i, driver="veth", offloads=False) for i in (1, 2)]
    row = replace(bridge(bond(*uplinks), port("vnet0", 10), ids=ours(policy="dynamic")), **columns)  # type: ignore[arg-type]
    return replace(row, hw_offload=True)


def of_uplinks(row: BridgeRow, *offloads: bool | None) -> BridgeRow:
    """The row with uplinks that can or cannot offload."""
    said = dict(zip(("eth1", "eth2"), offloads, strict=True))
    return row.with_interfaces(lambda i: replace(i, offloads=said.get(i.name)))


def no_card(row: BridgeRow) -> str | None:
    return read_bridge(row).offload.no_card


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (veths(), "uplinks eth1, eth2 cannot offload tc flows"),
        (of_uplinks(veths(), False, True), None),
        (of_uplinks(veths(), False, None), None),
        (of_uplinks(veths(), None, None), None),
        (of_uplinks(veths(tc_policy="skip_hw"), True, True), "tc-policy is skip_hw"),
        (of_uplinks(veths(tc_policy="skip_sw"), True, True), None),
        (switchdev(), None),
        (dpdk(hw_offload=True), None),
        (veths(in_userspace=True), "datapath_type netdev offloads to DPDK cards only"),
        (replace(veths(), hw_offload=False), None),
    ],
)
def test_that_no_card_forwards_is_said_only_if_it_is_certain(
    row: BridgeRow, why: str | None
) -> None:
    assert no_card(row) == why


def test_vhost_user_ports_are_no_cards() -> None:
    row = replace(dpdk(hw_offload=True), ports=(*veths().ports, *dpdk().ports[1:]))
    assert {i.kind for i in row.interfaces} == {"", "dpdkvhostuserclient"}
    assert no_card(row) is not None
    assert told(row)[-1].endswith("offloads only to DPDK cards, which this bridge lacks")


@pytest.mark.parametrize(("wanted", "in_software"), [("auto", True), ("multipath", False)])
def test_where_no_card_forwards_connections_are_hashed_by_dp_hash_unless_a_key_says_otherwise(
    wanted: str, in_software: bool
) -> None:
    row = replace(veths(), external_ids=ours(policy="dynamic", connection_hash=wanted))
    (text,) = [t for t in told(row) if t.startswith("hw-offload with dynamic: ")]
    assert ("cannot offload tc flows, so connections that use dp_hash" in text) is in_software


# ---- what cannot work ------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "value"), KEYS.items())
def test_queues_at_a_dpdk_port_are_refused_and_not_in_force_if_the_database_asks(
    key: str, value: str
) -> None:
    here = world(dpdk()).start()
    found = refusal(here.ask("set", "interface", "vhu0", f"{key}={value}"))
    assert says(found, f"Interface vhu0 ovs-lbt-{key}: {value} ", "; ", "dpdk0, dpdk1")
    row = with_interface(dpdk(), "vhu0", **{key.replace("-", "_"): value})
    config = read_bridge(row)
    assert [error.key for error in config.errors] == [f"ovs-lbt-{key}"]
    (vm,) = config.vm_ports
    assert (vm.shares, vm.limit_bps, vm.rules.reserve_bps) == (None, None, 0.0)
    asked = world(row, learned=[(10, "52:54:00:00:00:01", 0)]).start().run_for(30)
    assert here.shapers == asked.shapers == {}


def test_queues_for_a_representor_are_refused_while_a_card_forwards() -> None:
    words = ("set", "interface", "enp1s0f0npf0vf0", "limit-mbps=50")
    found = refusal(world(switchdev()).start().ask(*words))
    assert says(
        found,
        "Interface enp1s0f0npf0vf0 ovs-lbt-limit-mbps: 50 ",
        "; ",
        "bypass the queues",
        "hw-offload",
    )
    for in_software in (switchdev(tc_policy="skip_hw"), replace(switchdev(), hw_offload=False)):
        done(world(in_software).start().ask(*words))


def test_others_are_queued_and_it_is_told_that_representors_are_not() -> None:
    row = with_interface(switchdev(), "vnet2", shares="100")
    here = world(row, speed_bps=100e6).start().run_for(30)
    not_done = here.engine.fleet.status()[0].not_done
    queues = ["queues of enp1s0f0np0", "queues of enp1s0f1np1"]
    assert [text.split(":")[0] for text in not_done] == queues


# ---- where it is told ------------------------------------------------------------------------


def test_attach_and_show_tell() -> None:
    here = world(without_us(switchdev())).start()
    answer = done(here.ask("attach", "br0", "policy=dynamic"))
    notes = [line[6:] for line in answer.splitlines() if line.startswith("note: ")]
    (status,) = here.engine.fleet.status()
    *of_offload, of_hash = notes
    assert tuple(of_offload) == status.config.offload.told == told(switchdev("dynamic"))
    assert of_hash.startswith("connections are hashed by multipath: hw-offload is true")
    shown = done(here.ask("show", "br0"))
    assert all(note in shown for note in notes)
