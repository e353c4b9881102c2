"""A bridge of another host over TLS, and its metrics for Prometheus, step by step as the documents say.

The hosts are one machine here: what is to be copied to another host goes to a directory, and
another name stands for this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import documents
from tests.documents import Block
from tests.switch import prometheus
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.following import filled, names, typed
from tests.switch.service import Service
from tests.switch.test_delivery import check_everything, settled_homes
from tests.switch.waiting import wait_until
from tests.unit.dashboards.recorded import Prometheus

# As ovs-ctl starts it: what `ovs-vsctl set-ssl` and a manager say is done.
FROM_THE_DATABASE = [
    "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
    "--private-key=db:Open_vSwitch,SSL,private_key",
    "--certificate=db:Open_vSwitch,SSL,certificate",
    "--ca-cert=db:Open_vSwitch,SSL,ca_cert",
]
# `ovs-pki` writes below its directory and to a log; `scp` copies files to a directory after a colon.
PROGRAMS = {
    "ovs-pki": 'exec /usr/bin/ovs-pki --dir={directory}/pki --log={directory}/log "$@"',
    "scp": 'for to; do :; done; while [ $# -gt 1 ]; do cp "$1" "${to#*:}"; shift; done',
}
PLACES = ("/etc/ovs-lbt", "/etc/openvswitch", "/etc/prometheus", "/var/lib/openvswitch/pki")
METRICS_PORT = 9476


@pytest.fixture(scope="module")
def bed(own: Service, tor: Upstream) -> Iterator[Bed]:
    own.ovs.stop("ovsdb-server")
    own.ovs.start_database(*FROM_THE_DATABASE)
    with Bed(own.ovs, tor, BedSpec(BALANCE_SLB, 2)) as made:
        yield made


@pytest.fixture
def places(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the documents' names and directories stand for."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script.replace('{directory}', str(tmp_path))}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    found = {place: str(tmp_path / place.rpartition("/")[2]) for place in PLACES}
    for place in PLACES[1:3]:
        Path(found[place]).mkdir()
    localhost = {"ssl:host1": "ssl:127.0.0.1", "lbt1": "127.0.0.1"}
    return {**names(bed), **found, **localhost}


def block(label: str) -> Block:
    (found,) = documents.labelled(label)
    return found


def settings(label: str, places: dict[str, str]) -> dict[str, str]:
    """The variables of a file for systemd."""
    lines = filled(block(label), places).splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_a_bridge_of_another_host_over_tls(
    bed: Bed, own: Service, places: dict[str, str], tmp_path: Path
) -> None:
    typed(block("tls-certificates"), own, places)
    typed(block("tls-host"), own, places)
    own.variables |= settings("tls-service", places)
    own.start()
    own.attach(bed)
    check_everything(bed, settled_homes(bed))
    own.kill()

    typed(block("tls-readers"), own, places)
    own.variables |= settings("tls-metrics", places)
    own.options = ["--metrics", own.variables["OVS_LBT_METRICS"]]
    own.start()
    config = tmp_path / "prometheus.yml"
    # By default it reads them once a minute.
    scrape = filled(block("tls-prometheus"), places)
    config.write_text(f"global: {{scrape_interval: 500ms}}\n{scrape}\n")
    target = f"127.0.0.1:{METRICS_PORT}"
    with prometheus.running(config, tmp_path) as port:
        reader = Prometheus(port)
        asked = f'ovslbt_build_info{{instance="{target}"}}'
        wait_until(lambda: reader.get("query", query=asked)["result"], "Prometheus reads metrics")
    own.do("detach", bed.bridge)
