"""Fixtures of the real-switch tests: one private Open vSwitch and one service for all."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pytest

from controller.dataplane.specs import EMPTY
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream, upstream_ovs
from tests.switch.service import Service
from tests.switch.wire import OwnNetwork
from topologies.network.private_ovs import PrivateOvs

if TYPE_CHECKING:
    from tests.switch.direct import Direct

LOG_TAIL_LINES = 15
DAEMONS = ("ovsdb-server", "ovs-vswitchd")


@runtime_checkable
class Logged(Protocol):
    """A fixture's value with daemons of its own."""

    def log_tails(self, lines: int) -> dict[str, str]: ...


_services: list[Service] = []


@functools.cache
def _network() -> OwnNetwork:
    return OwnNetwork()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests of this directory and their fixtures run in a network of their own.

    pytest calls this for all tests, once it has loaded this file.
    """
    if Path(__file__).parent not in item.path.parents:
        yield
        return
    assert os.geteuid() == 0, "the real-switch tests need root: network namespaces, raw sockets"
    with _network().entered():
        yield


@pytest.fixture(scope="session")
def ovs() -> Iterator[PrivateOvs]:
    """An Open vSwitch of our own; without one these tests fail, as nothing is proven."""
    with PrivateOvs(prefix="ovs-lbt-test-") as private:
        yield private


@pytest.fixture(scope="session")
def tor() -> Iterator[Upstream]:
    """Another one, upstream."""
    with upstream_ovs() as made:
        yield made


@pytest.fixture(scope="session")
def session_service(ovs: PrivateOvs) -> Iterator[Service]:
    made = Service(ovs)
    _services.append(made)
    yield made
    _services.remove(made)
    made.kill()


@pytest.fixture
def service(session_service: Service) -> Iterator[Service]:
    """The service, alive. No test leads it to a bug."""
    session_service.start()
    before = session_service.bugs
    yield session_service
    assert session_service.bugs == before


@pytest.fixture(scope="module")
def own(ovs: PrivateOvs, session_service: Service) -> Iterator[Service]:
    """A service of the file's own on that Open vSwitch; a test may stop both.

    Behind the file, both run again as they did before it.
    """
    session_service.kill()
    _forget_services(ovs)
    before = _pids(ovs)
    made = Service(ovs)
    _services.append(made)
    yield made
    _services.remove(made)
    made.kill()
    _forget_services(ovs)
    # A test that started the database again may have had it listen elsewhere.
    if _pids(ovs) != before:
        ovs.start_database()
        ovs.start_switch()


def _forget_services(ovs: PrivateOvs) -> None:
    """Remove what a service leaves for the next one: who led, its history, and faults that it had."""
    with contextlib.suppress(RuntimeError):
        ovs.vsctl("clear", "open_vswitch", ".", "external_ids")
    for file in ovs.rundir.glob("ovs-lbt*"):
        file.unlink()


def _pids(ovs: PrivateOvs) -> list[int | None]:
    """The processes of its daemons; None for one that does not run."""

    def pid(daemon: str) -> int | None:
        try:
            return ovs.pid(daemon)
        except FileNotFoundError:
            return None

    return [pid(daemon) for daemon in DAEMONS]


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest, ovs: PrivateOvs, tor: Upstream) -> Iterator[Bed]:
    """The bed that the test is parametrized with, or a bond of two uplinks; not attached yet."""
    with Bed(ovs, tor, getattr(request, "param", BedSpec(BALANCE_SLB))) as made:
        yield made


@pytest.fixture(scope="module")
def attached(bed: Bed, session_service: Service) -> Iterator[Bed]:
    """The same bed, attached with a policy that moves nothing by itself."""
    bed.set("bridge", bed.bridge, failback_delay_s=1)
    with session_service.attached(bed, "--policy", "originating-port"):
        yield bed


def seen_by_the_switch(ovs: PrivateOvs) -> str:
    """What it has dropped since it was started, why, and how often it began to revalidate; and its log."""
    log = ovs.rundir / "ovs-vswitchd.log"
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if log.exists() else []
    try:
        # It may be the one that hangs.
        counters = ovs.run("ovs-appctl", "coverage/show", timeout_s=3.0).splitlines()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return "\n".join([str(error), *lines])
    told = [line for line in counters if re.match(r"\S*(drop|lost|rev_|error)", line)]
    return "\n".join([*told, *lines])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show beside a failure how the logs end of the service and of the hosts that the test uses."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for service in _services:
            report.sections.append(("ovs-lbt run", service.log_tail()))
            report.sections.append(("ovs-vswitchd", seen_by_the_switch(service.ovs)))
        for used in getattr(item, "funcargs", {}).values():
            if isinstance(used, Logged):
                report.sections.extend(used.log_tails(LOG_TAIL_LINES).items())


@pytest.fixture
def direct(bed: Bed) -> Iterator[Direct]:
    """A connection to the bed's bridge, on which nothing is left afterwards."""
    # Stock Ryu replaces the threads of the process that imports it, and those of ears stand still then.
    from tests.switch.direct import Direct

    with contextlib.closing(Direct(bed)) as made:
        yield made
        made.install(EMPTY)
