"""Which VM should use which tunnel endpoint."""

from __future__ import annotations

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


def test_vms_leave_a_full_endpoint_and_no_more_than_need_to() -> None:
    vms = [Vm(f"vm{n}", Load(20.0, 1.0), "a") for n in range(4)]
    placed = assign(vms, TWO)
    assert sorted(placed.values()) == ["a", "a", "b", "b"]


def test_both_directions_count() -> None:
    # By what they send alone, the VMs are even already.
    vms = [
        Vm("vm1", Load(10.0, 60.0), "a"),
        Vm("vm2", Load(10.0, 60.0), "a"),
        Vm("vm3", Load(10.0, 1.0), "b"),
        Vm("vm4", Load(10.0, 1.0), "b"),
    ]
    loads = used(vms, assign(vms, TWO))
    assert max(load.rx_bps for load in loads.values()) == 61.0


def test_what_is_good_enough_stays() -> None:
    vms = [Vm("vm1", Load(50.0), "a"), Vm("vm2", Load(49.0), "b"), Vm("vm3", Load(1.0), "a")]
    assert assign(vms, TWO) == {"vm1": "a", "vm2": "b", "vm3": "a"}


def test_a_vm_whose_endpoint_is_not_known_gets_one() -> None:
    vms = [Vm("old", Load(30.0), "a"), Vm("new", Load(10.0)), Vm("lost", Load(9.0), "gone")]
    assert assign(vms, TWO) == {"old": "a", "new": "b", "lost": "b"}


def test_idle_vms_are_spread() -> None:
    """They may not stay idle."""
    placed = assign([Vm(f"vm{n}", Load()) for n in range(6)], TWO)
    assert sorted(placed.values()) == ["a", "a", "a", "b", "b", "b"]


def test_capacities_count() -> None:
    vms = [Vm(f"vm{n}", Load(10.0)) for n in range(11)]
    placed = assign(vms, {"a": 1000.0, "b": 100.0})
    assert sorted(placed.values()).count("b") == 1


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
