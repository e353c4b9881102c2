"""`ovs-lbt support-bundle` on a host that is well, and without a switch."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, on_beds
from tests.switch.service import Service
from topologies.network.private_ovs import PrivateOvs

SECRET = "hunter2-not-for-others"
SPEC = BedSpec(BALANCE_SLB, 2, (None, None))


def bundle(service: Service, directory: Path, *words: str) -> tuple[dict[str, str], str]:
    """The files by their names, and what the command complained about."""
    path = directory / f"{len(list(directory.iterdir()))}.tar.gz"
    done = service.command("support-bundle", "--out", str(path), *words)
    assert (done.returncode, done.stdout) == (0, f"{path}\n"), done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            files[member.name.partition("/")[2]] = content.read().decode()
    return files, done.stderr


@on_beds(SPEC)
def test_it_has_what_is_needed_and_no_secret(
    attached: Bed, service: Service, tmp_path: Path
) -> None:
    bed, vsctl = attached, attached.ovs.vsctl
    key = tmp_path / "key.pem"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
    service.do("move", bed.vms[0].port, bed.uplinks[0].name)
    service.do("move", bed.vms[0].port, bed.uplinks[1].name)
    vsctl("set-ssl", str(key), "/etc/cert.pem", "/etc/ca.pem")
    planted = ["external_ids:agent-password", "other_config:ipsec_psk", "external_ids:words"]
    vsctl("set", "bridge", bed.bridge, *(f'{name}="--password {SECRET}"' for name in planted))
    vsctl("set", "interface", bed.vms[0].port, f"options:psk={SECRET}")
    vsctl("set", "open_vswitch", ".", f"external_ids:url=https://admin:{SECRET}@192.0.2.1/")
    vsctl("set-manager", f"ptcp:0:127.0.0.1 {SECRET}")
    waiting = "import time; time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", waiting, "ovs", "-p", SECRET])
    try:
        files, complaints = bundle(service, tmp_path)
    finally:
        other.kill()
        other.wait()
        vsctl("del-manager")
        vsctl("del-ssl")
        vsctl("clear", "interface", bed.vms[0].port, "options")
        vsctl("remove", "open_vswitch", ".", "external_ids", "url")
    assert all(SECRET not in text for text in files.values())
    removed = files["database/Bridge.json"].count("[removed]")
    assert removed == len(planted), files["database/Bridge.json"]
    assert "[removed]" in files["database/Interface.json"]
    assert "[removed]" in files["database/Open_vSwitch.json"]
    assert "ovs-vswitchd" in files["processes"] and bed.bridge in files["links.json"]
    assert "|INFO|" in files["log/ovs-vswitchd"]

    (shown,) = json.loads(files["show.json"])["bridges"]
    assert shown["name"] == bed.bridge
    assert "findings" in json.loads(files["check.json"])
    assert any(bed.vms[0].port in line for line in files["history.jsonl"].splitlines())
    of = f"bridge/{bed.bridge}"
    assert "cookie=0x6c627400" in files[f"{of}/dump-flows"]
    assert "group_id=" in files[f"{of}/dump-groups"] and "rx pkts=" in files[f"{of}/dump-ports"]
    assert "ovs-lbt-policy" in files["database/Bridge.json"]
    assert "ovs-lbt: " in files["versions"] and "Open vSwitch" in files["versions"]
    assert "MISSING" in files["README"] and "log/ovs-lbt" in complaints, "it logs to this test"


def test_without_a_switch_it_says_what_is_missing(tmp_path: Path) -> None:
    with PrivateOvs(prefix="ovs-lbt-gone-") as gone:
        service = Service(gone)
        gone.stop("ovs-vswitchd")
        gone.stop("ovsdb-server")
        files, complaints = bundle(service, tmp_path)
        assert "versions" in files and "database/Bridge.json" not in files
        assert "database/Bridge.json" in complaints and "switch/bond-show" in complaints
        done = service.command("support-bundle", "--out", str(next(tmp_path.glob("*.gz"))))
        assert done.returncode == 1 and "File exists" in done.stderr, "no file is written over"
