"""The key `connection-hash` on a real switch: the group comes, stays and goes as the service says.

tests/switch/test_dp_hash.py says what the switch makes of the group, without a service.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest

from controller.dataplane import tables
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Shot, Upstream
from tests.switch.service import Service
from tests.switch.test_dp_hash import PROTOCOLS, batches, left_paced, uplinks_of
from tests.switch.test_hashing import left_by, segment
from tests.switch.waiting import wait_until

SERVED = [BedSpec(PLAIN, 3, (None, None)), BedSpec(BALANCE_SLB, 2, (None, None))]
FEW = 384


@pytest.fixture(scope="module", params=SERVED, ids=str)
def served(request: pytest.FixtureRequest, own: Service, tor: Upstream) -> Iterator[Bed]:
    """A bed on a switch of its own, attached with a policy that hashes connections."""
    own.start()
    with Bed(own.ovs, tor, request.param) as made:
        made.set("bridge", made.bridge, connection_hash="auto", failback_delay_s=0)
        own.attach(made, "--policy", "address-hash")
        yield made
        own.start()
        own.wait_ready(made)
        own.do("detach", made.bridge)
        assert not groups_of(made), "detach leaves no group"


@pytest.fixture
def service(served: Bed, own: Service) -> Service:
    own.start()
    follows(served, own, "dp_hash")
    return own


def follows(bed: Bed, service: Service, wanted: str) -> None:
    """Wait until that hash is shown, and the switch goes by it: it follows a moment later."""
    wait_until(
        lambda: hash_of(bed, service)["used"] == wanted, f"connections are hashed by {wanted}"
    )
    by_group = f"group:{tables.SELECT_GROUP_ID}"

    def does() -> bool:
        is_used = by_group in bed.ofctl("dump-flows")
        return is_used == bool(selecting(bed)) == (wanted == "dp_hash")

    wait_until(does, f"the switch hashes connections by {wanted}")
    bed.settled()


def hash_of(bed: Bed, service: Service) -> dict[str, str]:
    return dict(service.show_json(bed.bridge)["connection_hash"])


def groups_of(bed: Bed) -> list[str]:
    """The groups, sorted: the switch lists a group elsewhere once it was added again."""
    shown = bed.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "dump-groups", bed.bridge)
    return sorted(line for line in shown.splitlines() if "group_id" in line)


def selecting(bed: Bed) -> list[str]:
    return [line for line in groups_of(bed) if "type=select" in line]


def some_connections(bed: Bed) -> list[Shot]:
    """Frames of connections of a VM and of the host itself, over IPv4 and IPv6."""
    kinds = itertools.product((bed.vms[0], bed.stations[-1]), (4, 6), PROTOCOLS)
    return [
        bed.frame_of(
            station,
            functools.partial(segment, version, protocol, port),
            story=f"IPv{version}, protocol {protocol}, port {port}",
        )
        for station, version, protocol in kinds
        for port in range(20000, 20000 + FEW // 8)
    ]


def test_connections_leave_once_by_every_uplink_under_one_address_at_each(
    served: Bed, service: Service
) -> None:
    shots, homes = some_connections(served), service.bindings(served)
    seen = left_paced(served, shots)
    addresses: dict[str, set[str]] = {}
    for shot in shots:
        ((uplink, source, tag),) = seen[shot.frame_id]
        station = next(s for s in served.stations if s.point == shot.point)
        at_home = homes[station.port] == uplink
        assert (source == station.mac) is at_home, f"{shot.story}: {uplink}, {source}"
        assert tag == 0
        addresses.setdefault(uplink, set()).update(set() if at_home else {source})
    assert addresses.keys() == {u.name for u in served.uplinks}
    assert all(len(macs) <= 1 for macs in addresses.values()), addresses


def test_the_key_is_changed_while_frames_are_sent(served: Bed, service: Service) -> None:
    """Each change of the hash moves connections between uplinks: none is doubled or sent back."""
    shots = some_connections(served)
    before = uplinks_of(served, shots)
    for wanted in ("multipath", "dp_hash"):
        served.set("bridge", served.bridge, connection_hash=wanted)
        for batch in itertools.islice(batches(shots), 3):
            copies = left_by(served, batch)
            assert all(len(of_one) <= 1 for of_one in copies.values())
        follows(served, service, wanted)
        now = uplinks_of(served, shots)
        assert (now == before) == (wanted == "dp_hash")
    served.set("bridge", served.bridge, connection_hash="auto")
