"""A host of a fleet: a network and a root of its own, with an Open vSwitch, a bond and a VM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream, run
from tests.switch.packaged import Machine
from tests.switch.systemd import CHECKOUT
from tests.switch.wire import inside
from topologies.network.private_ovs import PrivateOvs

COMMAND = "/usr/local/bin/ovs-lbt"
UNIT = "ovs-lbt.service"
ON_BOND = BedSpec(BALANCE_SLB, 2, (None,))
OUR_FLOWS = "cookie=0x6c627400"


class Host:
    """Use it as a context manager. The service is this checkout's, and does not run yet."""

    def __init__(self, name: str, tor: Upstream) -> None:
        self.name = name
        self._tor = tor
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Host:
        run("ip", "netns", "add", self.name)
        with self.entered(), contextlib.ExitStack() as building:
            building.callback(run, "ip", "netns", "del", self.name)
            run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
            run("ip", "link", "set", "lo", "up")
            ovs = building.enter_context(PrivateOvs(prefix=f"ovs-lbt-{self.name}-"))
            self.bed = building.enter_context(Bed(ovs, self._tor, ON_BOND))
            self.machine = building.enter_context(Machine(ovs))
            self._install()
            self.bed.introduce_to_normal()
            self._running = building.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.entered():
            self._running.close()

    def __str__(self) -> str:
        return self.name

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, is in this host's network."""
        with inside(self.name):
            yield

    @property
    def is_attached(self) -> bool:
        """Whether the bridge forwards by our flows, as the database has it, too."""
        asked = self.bed.ovs.vsctl("get", "bridge", self.bed.bridge, "external_ids")
        by_flows = OUR_FLOWS in self.bed.ofctl("dump-flows")
        assert by_flows == ("ovs-lbt-policy" in asked), f"{self}: {asked}, our flows: {by_flows}"
        assert "ovs-lbt-unconfirmed" not in asked, f"{self} gives its bridge back: {asked}"
        return by_flows

    def give_back(self) -> None:
        """Detach the bridge if it is attached."""
        with self.entered():
            if self.is_attached:
                self.machine.do("ovs-lbt", "detach", self.bed.bridge)

    def _install(self) -> None:
        """As a checkout is installed: the command and the unit, by hand."""
        unit = (Path(CHECKOUT) / "controller/systemd" / UNIT).read_text()
        self.machine.path(f"/etc/systemd/system/{UNIT}").write_text(unit)
        self.machine.do("ln", "-s", f"{CHECKOUT}/.venv/bin/ovs-lbt", COMMAND)
