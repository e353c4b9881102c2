"""Bridges of another host: dialled at a passive target, over TLS, or calling us."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switch.bed import Bed
from tests.switch.service import Service, free_tcp_port
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.test_reconnect import flows_of
from tests.switch.waiting import wait_until
from tests.wire.certificates import make

FOREIGN_FLOW = "cookie=0xf0e1,table=200,priority=7,udp,actions=drop"


@pytest.fixture
def remote(own: Service, bed: Bed) -> Iterator[Service]:
    """The service, not started yet, for a database that it reaches by TCP."""
    port = free_tcp_port()
    own.ovs.stop("ovsdb-server")
    own.ovs.start_database(f"--remote=ptcp:{port}:127.0.0.1")
    own.options = ["--ovsdb", f"tcp:127.0.0.1:{port}"]
    yield own
    own.kill()
    own.options = []
    bed.ovs.vsctl("del-controller", bed.bridge, "--", "del-ssl")
    own.start()
    own.command("detach", bed.bridge)
    own.kill()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority `ca`, a `switch` and a `service` that it has signed, and a `stranger`.

    Another one, `readers`, has signed for a `reader` of metrics.
    """
    directory = tmp_path_factory.mktemp("pki")
    for name, issuer in (
        *(("ca", ""), ("switch", "ca"), ("service", "ca"), ("stranger", "")),
        *(("readers", ""), ("reader", "readers")),
    ):
        make(directory, name, issuer)
    return directory


def listen_at(bed: Bed, target: str) -> None:
    """Have the bridge listen without taking anything for its controller."""
    service = ["--", "--id=@c", "create", "controller", f'target="{target}"', "type=service"]
    bed.ovs.vsctl(*service, "--", "set", "bridge", bed.bridge, "controller=@c")


def tls(directory: Path, name: str) -> list[str]:
    return [
        f"--private-key={directory / name}.key",
        f"--certificate={directory / name}.pem",
        f"--ca-cert={directory / 'ca.pem'}",
    ]


def scraped(service: Service, directory: Path, name: str) -> subprocess.CompletedProcess[str]:
    """The metrics, as whoever goes by that name may read them."""
    own = ["--cert", f"{directory / name}.pem", "--key", f"{directory / name}.key"]
    # A certificate is good by its authority; ours names no host.
    url = f"https://service:{service.metrics_port}/metrics"
    to = ["--cacert", f"{directory / 'ca.pem'}", "--connect-to", "::127.0.0.1:"]
    return subprocess.run(["curl", "-s", *own, *to, url], capture_output=True, text=True)


def works(bed: Bed, service: Service) -> None:
    service.attach(bed)
    check_everything(bed, settled_homes(bed))
    service.move(bed.vms[0], bed.uplinks[0])
    service.do("detach", bed.bridge)


def test_a_bridge_that_listens_is_dialled(bed: Bed, remote: Service) -> None:
    bed.ofctl("add-flow", FOREIGN_FLOW)
    before = flows_of(bed)
    listen_at(bed, f"ptcp:{free_tcp_port()}:127.0.0.1")
    assert flows_of(bed) == before, "a controller record of type service flushes flows"
    remote.start()
    works(bed, remote)
    assert flows_of(bed) == before
    bed.ofctl("del-flows", "table=200")


def test_a_bridge_that_listens_for_tls_is_dialled_by_tls(
    bed: Bed, remote: Service, certificates: Path
) -> None:
    """The database, too; and whoever the authority has not signed gets nowhere."""
    bed.ovs.vsctl(
        "set-ssl", *(str(certificates / f) for f in ("switch.key", "switch.pem", "ca.pem"))
    )
    listen_at(bed, f"pssl:{free_tcp_port()}:127.0.0.1")
    port = free_tcp_port()
    tcp, over_tcp = remote.options[1], remote.options
    bed.ovs.stop("ovsdb-server")
    bed.ovs.start_database(
        f"--remote=pssl:{port}:127.0.0.1",
        f"--remote=ptcp:{tcp.rpartition(':')[2]}:127.0.0.1",
        *tls(certificates, "switch"),
    )
    try:
        remote.options = ["--ovsdb", f"ssl:127.0.0.1:{port}", *tls(certificates, "service")]
        remote.options.append(f"--metrics-ca-cert={certificates / 'readers.pem'}")
        remote.start()
        works(bed, remote)
        assert "ovslbt_build_info" in scraped(remote, certificates, "reader").stdout
        assert scraped(remote, certificates, "switch").returncode != 0
        wait_until(
            lambda: "TLS connection for metrics from 127.0.0.1 failed: " in remote.log_tail(50),
            "one line says who is refused",
        )
        remote.kill()
        remote.options = [*over_tcp, *tls(certificates, "stranger")]
        remote.start()
        bed.set("bridge", bed.bridge, policy="load-based")
        found = f"{bed.bridge}: the switch closed the connection immediately"
        story = f"{found}; check that the switch trusts this service's certificate"
        wait_until(lambda: story in remote.log_tail(50), "the stranger is refused")
        assert not remote.show_json(bed.bridge)["connected"]
    finally:
        bed.ovs.vsctl("del-ssl")


@pytest.mark.parametrize("kind", ["tcp", "ssl"])
def test_a_bridge_may_dial_us(bed: Bed, remote: Service, certificates: Path, kind: str) -> None:
    port = free_tcp_port()
    remote.options += ["--listen", f"127.0.0.1:{port}"]
    if kind == "ssl":
        files = (str(certificates / file) for file in ("switch.key", "switch.pem", "ca.pem"))
        bed.ovs.vsctl("set-ssl", *files)
        remote.options += tls(certificates, "service")
    # Else OVS forwards LOCAL's ARP by NORMAL, past every flow that can be seen.
    bed.ovs.vsctl("set", "bridge", bed.bridge, "other_config:disable-in-band=true")
    bed.ovs.vsctl("set-controller", bed.bridge, f"{kind}:127.0.0.1:{port}")
    remote.start()
    wait_until(
        lambda: "no attached bridge has datapath id" in remote.log_tail(50),
        "it is a stranger",
    )
    works(bed, remote)


def test_a_bridge_that_neither_listens_nor_calls_is_named(bed: Bed, remote: Service) -> None:
    remote.start()
    bed.set("bridge", bed.bridge, policy="load-based")
    story = (
        f"bridge {bed.bridge} has no passive controller target (none); add ptcp:PORT or pssl:PORT"
    )
    wait_until(lambda: story in remote.log_tail(50), "one line says so")


def test_what_cannot_be_is_said_in_one_line(own: Service) -> None:
    own.kill()
    for option, framework, found in (
        ("--private-key=/nowhere", "os-ken", "only --private-key is given; "),
        ("--metrics=none", "pox", "OVS_LBT_FRAMEWORK: pox is invalid; expected os-ken or ryu"),
    ):
        env = {**own.ovs.env, "OVS_LBT_FRAMEWORK": framework}
        words = [str(own.executable), "run", option]
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith(f"ovs-lbt: {found}"), done
        assert done.stderr.count("\n") == 1
