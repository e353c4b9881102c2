"""Policies that cannot work in a teaming mode, or with a team's uplinks, are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.switch.adopting import refused, state
from tests.switch.bed import BALANCE_SLB, LACP, PLAIN, STATIC_LAG, Bed, BedSpec
from tests.switch.service import Service
from tests.switch.waiting import wait_until

PLAIN_TEAM, BOND = BedSpec(PLAIN, 2), BedSpec(BALANCE_SLB, 2)
STATIC, NEGOTIATED = BedSpec(STATIC_LAG, 2), BedSpec(LACP, 2)
NINE = BedSpec(PLAIN, 9, (None,))
SET_PRESETS = ("set", "set-port")


# For each team, command lines with what they find and what they expect instead.
Refusals = Mapping[BedSpec, Sequence[tuple[str, str, str]]]
AT_ATTACH: Refusals = {
    PLAIN_TEAM: [
        ("--policy ip-hash", "switch-independent", "static"),
        ("--policy set --teaming static", "static", "switch-independent"),
        ("--policy set-port --teaming static", "static", "switch-independent"),
    ],
    BOND: [("--policy ip-hash --teaming switch-independent", "switch-independent", "lacp")],
    NEGOTIATED: [("--policy set", "lacp", "switch-independent")],
    NINE: [
        ("--policy set", "9 uplinks", "at most 8"),
        ("--policy set-port", "9 uplinks", "at most 8"),
    ],
}
AT_SET: Refusals = {
    PLAIN_TEAM: [
        ("bridge {bridge} policy=ip-hash", "switch-independent", "static"),
        ("interface {vm} policy=ip-hash", "switch-independent", "static"),
        ("bridge {bridge} policy=set teaming=static", "static", "switch-independent"),
    ],
    STATIC: [
        ("bridge {bridge} policy=set", "static", "switch-independent"),
        ("interface {vm} policy=set-port", "static", "switch-independent"),
        (
            "bridge {bridge} policy=ip-hash teaming=switch-independent",
            "switch-independent",
            "static",
        ),
    ],
    NEGOTIATED: [("bridge {bridge} policy=set-port", "lacp", "switch-independent")],
}


@pytest.mark.parametrize("bed", AT_ATTACH, ids=str, indirect=True)
def test_attach_refuses_what_cannot_work(bed: Bed, service: Service) -> None:
    before = state(bed)
    uplinks = [w for u in bed.uplinks for w in ("--uplink", u.name)]
    named = uplinks if bed.spec.team == PLAIN else []
    for options, found, expected in AT_ATTACH[bed.spec]:
        line = refused(service, "attach", bed.bridge, *named, *options.split())
        says(line, found, expected)
    assert state(bed) == before


@pytest.mark.parametrize("bed", [PLAIN_TEAM], ids=str, indirect=True)
@pytest.mark.parametrize("preset", SET_PRESETS)
def test_attach_refuses_set_on_a_team_that_it_does_not_allow(
    bed: Bed, service: Service, preset: str
) -> None:
    uplinks = [w for u in bed.uplinks for w in ("--uplink", u.name)]
    for key, value, found, expected in (
        ("capacity-mbps", "40", "40, 100 Mbit/s", "one speed"),
        ("role", "standby", "{standby} standby", "no standby"),
    ):
        with given(bed, {"capacity-mbps": "100"}, {"capacity-mbps": "100", key: value}):
            before = state(bed)
            line = refused(service, "attach", bed.bridge, *uplinks, "--policy", preset)
            says(line, found.format(standby=bed.uplinks[1].name), expected)
            assert state(bed) == before


@pytest.mark.parametrize("bed", AT_SET, ids=str, indirect=True)
def test_set_refuses_what_cannot_work(attached_as_it_is: Bed, service: Service) -> None:
    bed = attached_as_it_is
    before = state(bed)
    names = {"bridge": bed.bridge, "vm": bed.vms[0].port}
    for words, found, expected in AT_SET[bed.spec]:
        says(refused(service, "set", *words.format(**names).split()), found, expected)
    assert state(bed) == before


def settled(bed: Bed) -> dict[str, object]:
    """The state once flows follow what was set: `set` answers as soon as the database has it."""
    seen: list[dict[str, object]] = []

    def stays() -> bool:
        seen.append(state(bed))
        return seen[-1:] == seen[-2:-1]

    wait_until(stays, "the flows are settled", interval_s=0.5)
    return seen[-1]


@pytest.mark.parametrize("bed", [PLAIN_TEAM], ids=str, indirect=True)
def test_a_team_stays_what_its_policy_needs(attached_as_it_is: Bed, service: Service) -> None:
    """With SET in force, no uplink becomes a standby or slower, and the bridge no LAG."""
    bed, uplink = attached_as_it_is, attached_as_it_is.uplinks[1].name
    with given(bed, {"capacity-mbps": "100"}, {"capacity-mbps": "100"}):
        wait_until(lambda: capacities(bed, service) == [100e6] * 2, "equal capacities")
        for preset in SET_PRESETS:
            service.do("set", "bridge", bed.bridge, f"policy={preset}")
            before = settled(bed)
            for words, found, expected in (
                (f"interface {uplink} capacity-mbps=40", "40, 100 Mbit/s", "one speed"),
                (f"interface {uplink} role=standby", f"{uplink} standby", "no standby"),
                (f"bridge {bed.bridge} teaming=static", "static", "switch-independent"),
            ):
                says(refused(service, "set", *words.split()), found, expected)
                assert state(bed) == before
        service.do("set", "bridge", bed.bridge, "policy=originating-port")


@pytest.mark.parametrize("bed", [PLAIN_TEAM], ids=str, indirect=True)
def test_what_is_written_past_us_leaves_the_policy_in_force(
    attached_as_it_is: Bed, service: Service
) -> None:
    bed = attached_as_it_is
    before = state(bed)
    bed.set("bridge", bed.bridge, policy="ip-hash")

    def errors() -> list[str]:
        return [str(e) for e in service.show_json(bed.bridge)["config_errors"]]

    wait_until(errors, "the error is shown")
    (error,) = errors()
    says(error, "switch-independent", "static")
    assert service.show_json(bed.bridge)["policy"] == "originating-port"
    bed.set("bridge", bed.bridge, policy="originating-port")
    wait_until(lambda: not errors(), "no error any more")
    assert state(bed) == before


@pytest.fixture(scope="module")
def attached_as_it_is(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """The bed, attached in its teaming mode."""
    session_service.start()
    session_service.attach(bed, "--policy", "originating-port")
    yield bed
    session_service.do("detach", bed.bridge)


@contextlib.contextmanager
def given(bed: Bed, *keys_by_uplink: dict[str, str]) -> Iterator[None]:
    """Uplinks have these keys in this block."""
    for uplink, keys in zip(bed.uplinks, keys_by_uplink, strict=True):
        bed.set("interface", uplink.name, **{k.replace("-", "_"): v for k, v in keys.items()})
    try:
        yield
    finally:
        for uplink, keys in zip(bed.uplinks, keys_by_uplink, strict=True):
            names = [f"ovs-lbt-{key}" for key in keys]
            bed.ovs.vsctl("remove", "interface", uplink.name, "external_ids", *names)


def capacities(bed: Bed, service: Service) -> list[float]:
    return [u["capacity_bps"] for u in service.show_json(bed.bridge)["uplinks"]]


def says(line: str, found: str, expected: str) -> None:
    """Assert that a refusal names what was found, and what would be right."""
    before, arrow, after = line.partition(" -> ")
    assert arrow and found in before and expected in after, line
