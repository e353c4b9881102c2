"""What hardware offload, DPDK and representors mean is told, and what cannot work is refused.

The records are those of hosts that have them. None of this was tried on hardware.
"""

from __future__ import annotations

import re

import pytest

from controller.config.offload import Offload
from controller.config.reader import read_bridge
from tests.goldens.adapter import row_of
from tests.said import pattern
from tests.unit.controller.story import tell
from tests.unit.fake_switch import done, world


def representors(*numbers: int) -> str:
    """VM ports that are representors of VFs."""
    return " ".join(f"vnet{n}@driver=mlx5e_rep vnet{n}@represents=True" for n in numbers)


def both(column: str) -> str:
    """A column of both uplinks."""
    return f"eth1@{column} eth2@{column}"


# A host of SR-IOV in switchdev mode: a bond of a card's two ports, and representors of VFs.
CARD = f"bond vms=3 :hw_offload=True {both('driver=mlx5_core')} {representors(0, 1)}"
# A host of DPDK: two cards that the kernel does not have, and a VM behind vhost-user.
DPDK = f"bond vms=1 :in_userspace=True {both('kind=dpdk')} vnet0@kind=dpdkvhostuserclient"
# A host that was told to offload, and whose uplinks cannot.
VETHS = f"bond vms=1 policy=dynamic :hw_offload=True {both('driver=veth')} {both('offloads=False')}"
IN_USERSPACE = "bond vms=0 :hw_offload=True :in_userspace=True"
LACKS_DPDK = "…offloads only to DPDK cards, which this bridge lacks"


def offload(words: str) -> Offload:
    return read_bridge(row_of(words.split())).offload


TOLD = {
    "nothing where nothing is offloaded": ("bond", ""),
    "what tc takes and how it counts": (
        *(CARD, "…results of ovs-lbt tables… / …software… / …14 bytes…"),
    ),
    "a port's own policy": (
        *(f"{CARD} vnet2.policy=address-hash", "…hw-offload with address-hash…"),
    ),
    **{one: (f"{CARD} :tc_policy={one}", f"…{one}…") for one in ("skip_hw", "skip_sw")},
    "representors without offload": (
        *(f"{CARD} :hw_offload=False", "representors vnet0, vnet1: hw-offload is not true…"),
    ),
    "many ports are counted": (
        f"bond vms=9 :hw_offload=True {representors(*range(9))}",
        "…representors vnet0, vnet1, vnet2, vnet3 and 5 more: …",
    ),
    "the userspace datapath offloads to DPDK ports only": (IN_USERSPACE, LACKS_DPDK),
    "vhost-user ports are no cards": (
        *(f"{VETHS} :in_userspace=True vnet0@kind=dpdkvhostuserclient", LACKS_DPDK),
    ),
    "DPDK": (
        DPDK,
        "DPDK uplinks eth1, eth2 have no Linux device…rejected…"
        " / frames of DPDK ports vnet0 are forwarded by…",
    ),
    "DPDK and offload": (f"{DPDK} :hw_offload=True", "…hw-offload: a DPDK card…"),
    **{
        f"{policy} by {connection_hash}": (
            f"{CARD} policy={policy} connection-hash={connection_hash}",
            f"…hw-offload with {policy}: {what}…",
        )
        for policy in ("dynamic", "adaptive", "address-hash")
        for connection_hash, what in (
            ("dp_hash", "connection-hash is dp_hash…are forwarded in software"),
            ("auto", "each connection or address that is hashed"),
        )
    },
    # dp_hash is chosen where no card forwards, unless a key says otherwise.
    "no card, auto": (
        f"{VETHS} connection-hash=auto",
        "…hw-offload with dynamic: uplinks eth1, eth2 cannot offload tc flows, so connections…",
    ),
    "no card, multipath": (
        f"{VETHS} connection-hash=multipath",
        "…hw-offload with dynamic: each connection…",
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_is_told(case: str) -> None:
    words, told = TOLD[case]
    assert re.fullmatch(pattern(told), " / ".join(offload(words).told))


@pytest.mark.parametrize(
    ("words", "by_tc", "no_card"),
    [
        (VETHS, True, "uplinks eth1, eth2 cannot offload tc flows"),
        (f"{VETHS} eth2@offloads=True", True, None),
        (f"{VETHS} eth2@offloads=None", True, None),
        (f"{VETHS} {both('offloads=None')}", True, None),
        (f"{VETHS} {both('offloads=True')} :tc_policy=skip_hw", True, "tc-policy is skip_hw"),
        (f"{VETHS} {both('offloads=True')} :tc_policy=skip_sw", True, None),
        (CARD, True, None),
        ("bond", False, None),
        (f"{DPDK} :hw_offload=True", False, None),
        (IN_USERSPACE, False, "datapath_type netdev offloads to DPDK cards only"),
        (f"{VETHS} :hw_offload=False", False, None),
    ],
)
def test_tc_counts_without_headers_and_no_card_forwards_only_if_that_is_certain(
    words: str, by_tc: bool, no_card: str | None
) -> None:
    found = offload(words)
    assert (found.by_tc, found.no_card) == (by_tc, no_card)


# ---- what cannot work ------------------------------------------------------------------------

LIMIT = "set interface vnet0 limit-mbps=50"


@pytest.mark.parametrize("key", ["shares=100", "reserve-mbps=20", "limit-mbps=50"])
def test_queues_at_a_dpdk_port_are_refused_and_not_in_force_if_the_database_asks(key: str) -> None:
    error = f"Interface vnet0 ovs-lbt-{key.replace('=', ': ')} …; …eth1, eth2…"
    asked = tell(f"{DPDK} | ask set interface vnet0 {key} | refused {error}")
    written = tell(
        f"{DPDK} vnet0.{key} | errors {error} | learn vnet0 52:54:00:00:00:01 0 | run 30"
    )
    (vm,) = written.bridge.config.vm_ports
    assert (vm.shares, vm.limit_bps, vm.rules.reserve_bps) == (None, None, 0.0)
    assert asked.shapers == written.shapers == {}


@pytest.mark.parametrize(
    "story",
    [
        f"""{CARD} | ask {LIMIT}
        | refused Interface vnet0 ovs-lbt-limit-mbps: 50 …; …bypass the queues…hw-offload…""",
        f"{CARD} :tc_policy=skip_hw | do {LIMIT}",
        f"{CARD} :hw_offload=False | do {LIMIT}",
    ],
    ids=["while a card forwards", "in software", "not offloaded"],
)
def test_queues_for_a_representor_are_refused_while_a_card_forwards(story: str) -> None:
    tell(story)


def test_others_are_queued_and_it_is_told_that_representors_are_not() -> None:
    row = row_of([*CARD.split(), "vnet2.shares=100"])
    here = world(row, speed_bps=100e6).start().run_for(30)
    not_done = here.engine.fleet.status()[0].not_done
    assert [text.split(":")[0] for text in not_done] == ["queues of eth1", "queues of eth2"]


# ---- where it is told ------------------------------------------------------------------------


def test_attach_and_show_tell() -> None:
    here = world(row_of([*CARD.split(), "unattached"])).start()
    answer = done(here.ask("attach", "br0", "policy=dynamic"))
    notes = [line[6:] for line in answer.splitlines() if line.startswith("note: ")]
    (status,) = here.engine.fleet.status()
    *of_offload, of_hash = notes
    assert tuple(of_offload) == status.config.offload.told == offload(f"{CARD} policy=dynamic").told
    assert of_hash.startswith("connections are hashed by multipath: hw-offload is true")
    shown = done(here.ask("show", "br0"))
    assert all(note in shown for note in notes)
