"""Which VM should use which tunnel endpoint."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.endpoints import Vm, assign
from policies.model import Load

TWO = {"a": 100.0, "b": 100.0}


def used(vms: list[Vm], placed: dict[str, str]) -> dict[str, Load]:
    loads = {name: Load() for name in TWO}
    for vm in vms:
        loads[placed[vm.name]] += vm.load
    return loads


Drawn = tuple[str | None, float, float]
# What is special, the endpoint of each VM with what it sends and receives, the endpoints' capacities,
# and the endpoint that each VM should use.
ASSIGNED: dict[str, tuple[Sequence[Drawn], dict[str, float], str]] = {
    "no more VMs leave a full endpoint than need to": ([("a", 20.0, 1.0)] * 4, TWO, "bbaa"),
    # By what they send alone, the VMs are even already.
    "received traffic counts": ([("a", 10.0, 60.0)] * 2 + [("b", 10.0, 1.0)] * 2, TWO, "baab"),
    "little gain moves no VM": ([("a", 50.0, 0.0), ("b", 49.0, 0.0), ("a", 1.0, 0.0)], TWO, "aba"),
    "unknown endpoints": ([("a", 30.0, 0.0), (None, 10.0, 0.0), ("gone", 9.0, 0.0)], TWO, "abb"),
    # They may not stay idle.
    "idle VMs are spread": ([(None, 0.0, 0.0)] * 6, TWO, "ababab"),
    "capacities count": ([(None, 10.0, 0.0)] * 11, {"a": 1000.0, "b": 100.0}, "aaaaaaaabaa"),
}


@pytest.mark.parametrize(("drawn", "capacities_bps", "expected"), ASSIGNED.values(), ids=ASSIGNED)
def test_endpoints_that_vms_should_use(
    drawn: Sequence[Drawn], capacities_bps: dict[str, float], expected: str
) -> None:
    vms = [Vm(f"vm{n}", Load(tx, rx), at) for n, (at, tx, rx) in enumerate(drawn)]
    placed = assign(vms, capacities_bps)
    assert [placed[vm.name] for vm in vms] == [*expected]


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100), st.floats(0, 100), st.sampled_from(["a", "b", None, "elsewhere"])
        ),
        max_size=12,
    )
)
def test_every_vm_has_an_endpoint_and_no_plan_makes_it_worse(
    drawn: list[tuple[float, float, str | None]],
) -> None:
    vms = [Vm(f"vm{n}", Load(tx, rx), at) for n, (tx, rx, at) in enumerate(drawn)]
    placed = assign(vms, TWO)
    assert placed.keys() == {vm.name for vm in vms}
    assert set(placed.values()) <= TWO.keys()
    if all(vm.endpoint in TWO for vm in vms):
        before = used(vms, {vm.name: str(vm.endpoint) for vm in vms})
        worst = max(max(load.tx_bps, load.rx_bps) for load in before.values())
        after = used(vms, placed)
        assert max(max(load.tx_bps, load.rx_bps) for load in after.values()) <= worst + 1e-6
    # Asked again once it is done, nothing is left to do.
    again = [Vm(vm.name, vm.load, placed[vm.name]) for vm in vms]
    if all(vm.endpoint in TWO for vm in vms):
        assert assign(again, TWO) == placed
