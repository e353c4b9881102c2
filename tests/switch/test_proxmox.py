"""The network of a Proxmox host by ifupdown2, with the documents' file: booted and reloaded.

It is Debian's ifupdown2; Proxmox has one of its own. Of a bond, ifupdown2 needs the device that only
the kernel's datapath makes for it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import documents
from tests.switch import datapath
from tests.switch.bed import Upstream, run
from tests.switch.service import Service
from tests.switch.waiting import HANG_S, wait_until
from tests.switch.wire import inside
from topologies.network.private_ovs import PrivateOvs

pytestmark = pytest.mark.skipif(datapath.NAME != "kernel", reason="needs the bond's device")

HOST, BRIDGE, UPLINKS = "pve", "vmbr0", ("eno1", "eno2")
UPSTREAM, GATEWAY = "pveup", "192.0.2.1"
VM_PORT = "tap101i0"
UNPACKED = Path(__file__).parents[2] / "out" / "ifupdown2"
# Its files over this machine's, and what it writes in a directory of the test.
LAYOUT = """
set -eu
unpacked=$1 own=$2 operation=$3
mount -t sysfs sysfs /sys
mkdir -p /run/network "$own/run" "$own/var" "$own/upper" "$own/work"
mount --bind "$own/run" /run/network
mount --bind "$own/var" /var/tmp
mount -t overlay overlay -o "lowerdir=$unpacked/usr/share:/usr/share" /usr/share
mount -t overlay overlay -o "lowerdir=$own/etc:$unpacked/etc:/etc,upperdir=$own/upper,workdir=$own/work" /etc
ln -sf /usr/share/ifupdown2/__main__.py "$own/$operation"
exec python3 "$own/$operation" -a
"""


class Proxmox:
    """A host whose network is what its file says. `directory`: for its own files."""

    def __init__(self, ovs: PrivateOvs, service: Service, directory: Path) -> None:
        self.ovs, self.service, self._directory = ovs, service, directory
        (directory / "etc" / "network").mkdir(parents=True)

    def write_interfaces(self, text: str) -> None:
        (self._directory / "etc" / "network" / "interfaces").write_text(f"{text}\n")

    def configure(self, operation: str) -> None:
        """`ifup -a`, as at boot, or `ifreload -a`, as *Apply Configuration*."""
        assert UNPACKED.is_dir(), f"found no {UNPACKED}, expected ifupdown2: run make setup-kernel"
        with inside(HOST):
            done = subprocess.run(
                [
                    *("unshare", "--mount", "--propagation", "private"),
                    *("bash", "-c", LAYOUT, "bash"),
                    *(str(UNPACKED), str(self._directory), operation),
                ],
                env=self.ovs.env,
                capture_output=True,
                text=True,
                timeout=HANG_S,
            )
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "error" not in said, said

    def reaches_the_gateway(self) -> bool:
        asked = ["ip", "netns", "exec", HOST, "ping", "-c", "1", "-W", "1", GATEWAY]
        return subprocess.run(asked, capture_output=True).returncode == 0

    def is_managed(self) -> bool:
        """Whether the service has the bridge, with both uplinks and the policy of the file."""
        if BRIDGE not in self.service.ask("show"):
            return False
        shown = self.service.show_json(BRIDGE)
        up = {uplink["name"] for uplink in shown["uplinks"] if uplink["up"]}
        return bool(shown["connected"]) and shown["policy"] == "load-based" and up == set(UPLINKS)


@pytest.fixture
def host(tor: Upstream, tmp_path: Path) -> Iterator[Proxmox]:
    ends = [f"pve{name}" for name in UPLINKS]
    run("ip", "netns", "add", HOST)
    try:
        lines = [
            f"link add {name} netns {HOST} type veth peer name {end} netns {tor.netns}"
            for name, end in zip(UPLINKS, ends, strict=True)
        ]
        run("ip", "-batch", "-", stdin="\n".join(lines))
        run("ip", "link", "set", "lo", "up", netns=HOST)
        ports = [word for end in ends for word in ("--", "add-port", UPSTREAM, end)]
        tor.ovs.vsctl("add-br", UPSTREAM, "--", "set", "bridge", UPSTREAM, tor.setting, *ports)
        own = [f"addr add {GATEWAY}/24 dev {UPSTREAM}"]
        own += [f"link set {name} up" for name in (UPSTREAM, *ends)]
        run("ip", "-n", tor.netns, "-batch", "-", stdin="\n".join(own))
        with inside(HOST), PrivateOvs(prefix="ovs-lbt-pve-") as ovs:
            service = Service(ovs)
            service.start()
            try:
                yield Proxmox(ovs, service, tmp_path)
            finally:
                service.kill()
    finally:
        run("ip", "netns", "del", HOST)
        tor.ovs.vsctl("--if-exists", "del-br", UPSTREAM)


def test_the_documents_file_is_booted_and_reloaded(host: Proxmox) -> None:
    (block,) = documents.labelled("proxmox")
    host.write_interfaces(block.text)
    host.configure("ifup")
    wait_until(host.is_managed, "the service manages the bridge of the file")
    wait_until(host.reaches_the_gateway, "the host has a network")

    host.service.do("set", "interface", "eno1", "capacity-mbps=1000")
    host.ovs.vsctl("add-port", BRIDGE, VM_PORT, "--", "set", "interface", VM_PORT, "type=internal")
    host.configure("ifreload")
    assert host.is_managed() and host.reaches_the_gateway()
    kept = host.ovs.vsctl("get", "interface", "eno1", "external_ids:ovs-lbt-capacity-mbps")
    assert kept == '"1000"'
    assert VM_PORT not in host.ovs.vsctl("list-ports", BRIDGE).split(), "as the documents say"

    (extra,) = [line for line in block.text.splitlines() if "ovs_extra" in line]
    host.ovs.vsctl("set", "Open_vSwitch", ".", "external_ids:ovs-lbt-key-loss-grace-s=1")
    host.write_interfaces(block.text.replace(f"{extra}\n", "").replace(extra, ""))
    host.configure("ifreload")
    forgotten = f"Bridge {BRIDGE} ovs-lbt-policy: the key has disappeared from the database, so the bridge is no longer"
    wait_until(lambda: forgotten in host.service.log_tail(20), "the service forgets the bridge")
    assert host.reaches_the_gateway(), "its flows forward as before"
