"""Which Open vSwitch we have run on is said at attach; where we cannot work, attach is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from controller.api.engine_commands import Reply
from controller.operations import advice
from controller.ovsdb import records
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host, without_us

TESTED = [".".join(map(str, release)) for release in advice.RUN_ON]


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("3.1.0", (3, 1)),
        ("3.1.0-dev", (3, 1)),
        ("v3.1", (3, 1)),
        (" 2.17.9-149.el8fdp", (2, 17)),
        ("10.20.1+git5f2c", (10, 20)),
        (None, None),
        ("", None),
        ("3", None),
        ("vendor 3.1.0", None),
        ("３.１.０", None),
        ("3.99999", None),
        ("-3.1", None),
    ],
)
def test_a_release_is_told_from_what_vendors_write(
    version: str | None, release: tuple[int, int] | None
) -> None:
    assert advice.release_of(version) == release


@pytest.mark.parametrize("version", [None, *TESTED, *(f"{one}.7-vendor" for one in TESTED)])
def test_nothing_is_said_of_a_release_we_have_run_on_or_of_none(version: str | None) -> None:
    assert (advice.release_refusal(version), advice.release_warning(version)) == (None, None)


@pytest.mark.parametrize("version", ["2.8.0", "2.17.9", "3.0.1", "99.0", "3.10.0"])
def test_another_one_is_warned_of_and_not_refused(version: str) -> None:
    assert advice.release_refusal(version) is None
    assert advice.release_warning(version) == (
        f"Open vSwitch {version} has not been tested; tested releases are {', '.join(TESTED)}"
    )


@pytest.mark.parametrize("version", ["2.7.3", "2.7.90-dev", "1.12.0"])
def test_one_without_what_we_need_is_refused(version: str) -> None:
    assert advice.release_refusal(version) == (
        f"Open vSwitch {version} cannot limit the number of flows that a learn action adds; upgrade to 2.8 or later"
    )


def test_what_cannot_be_told_is_warned_of_in_one_short_line() -> None:
    assert advice.release_refusal("x\ny") is None
    assert str(advice.release_warning("x\ny")).startswith("Open vSwitch x\\ny has ")
    assert len(str(advice.release_warning("x" * 5000))) < 300


def on(version: str | None) -> World:
    here = world(without_us(host()))
    here.ovs_version = version
    return here.start()


def attach(here: World) -> Reply | None:
    return here.ask("attach", "br0", "policy=load-based")


def test_attach_reports_another_release_and_goes_on() -> None:
    for version in (None, *TESTED):
        assert "ovs_version" not in done(attach(on(version)))
    assert f"\nnote: {advice.release_warning('2.17.9')}" in done(attach(on("2.17.9")))


def test_attach_is_refused_where_we_cannot_work_and_nothing_changes() -> None:
    here = on("2.7.3")
    before = dict(here.rows)
    assert refusal(attach(here)) == advice.release_refusal("2.7.3")
    assert here.rows == before
    assert not here.dialled


@pytest.mark.parametrize(
    ("written", "version"),
    [([["3.5.0"]], "3.5.0"), ([[]], None), ([], None)],
)
def test_the_version_is_what_ovs_ctl_has_written(
    written: list[list[str]], version: str | None
) -> None:
    rows = [SimpleNamespace(ovs_version=v, other_config={}, external_ids={}) for v in written]
    assert records.root(rows)[1].ovs_version == version
