"""The Debian package: installed, upgraded, removed, purged, with a bridge in use all the time."""

from __future__ import annotations

import functools
import io
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.said import says
from tests.switch import packaged
from tests.switch.adopting import records, state
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Upstream
from tests.switch.fleet.rollout import Rollout, roll_out
from tests.switch.judging import few_lost, judges_time
from tests.switch.packaged import Machine
from tests.switch.service import free_tcp_port
from tests.switch.systemd import CHECKOUT
from tests.switch.traffic import FLOW_PPS, Traffic
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

# For as long as packages are installed, again and again.
ROLLOUT_PPS = 200
# Over how long load-based looks back before it decides.
WINDOW_S = 2
# And the bits by which a program runs as its owner.
WRITABLE_BY_OTHERS = 0o7022
UNITS = ("ovs-lbt.service", "ovs-lbt-rescue.service")


@pytest.fixture(scope="module")
def package() -> Path:
    return packaged.build()


@pytest.fixture(scope="module")
def switch() -> Iterator[PrivateOvs]:
    """Of these machines only, one after another: their services have the usual pidfile."""
    with PrivateOvs(prefix="ovs-lbt-package-") as private:
        yield private


@pytest.fixture
def machine(switch: PrivateOvs) -> Iterator[Machine]:
    with Machine(switch) as made:
        yield made


@pytest.fixture
def bond(switch: PrivateOvs, tor: Upstream) -> Iterator[Bed]:
    with Bed(switch, tor, BedSpec(BALANCE_SLB, 2, (None, None))) as made:
        made.introduce_to_normal()
        yield made


@pytest.fixture
def plain(switch: PrivateOvs, tor: Upstream) -> Iterator[Bed]:
    with Bed(switch, tor, BedSpec(PLAIN, 2, (None, None))) as made:
        yield made


@judges_time
def test_a_bridge_stays_attached_over_an_upgrade_and_is_given_back_at_removal(
    package: Path, machine: Machine, bond: Bed, tmp_path: Path
) -> None:
    """Nothing is lost on the way, and nothing is left behind."""
    version = package.name.split("_")[1]
    before, vm, host = state(bond), bond.vms[0], bond.hosts[0]

    said = machine.install(package)
    assert "/usr/local" not in said and "/etc/systemd/system" not in said.replace(
        "/etc/systemd/system/multi-user.target.wants", ""
    )
    assert machine.version() == version, "apt has started the service"
    assert machine.do("systemctl", "is-enabled", "ovs-lbt.service") == "enabled\n"
    verified = machine.run("systemd-analyze", "verify", "--man=yes", *UNITS)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")

    with Traffic([(vm, host), (host, vm)]) as traffic:
        machine.do("ovs-lbt", "attach", bond.bridge, "--policy", "originating-port")

        def all_bound() -> dict[str, str]:
            found = machine.uplinks_in_use(bond.bridge)
            return found if len(found) == len(bond.stations) and all(found.values()) else {}

        bindings = wait_until(all_bound, "every VM has an uplink")

        port = free_tcp_port()
        options = machine.path("/etc/default/ovs-lbt")
        options.write_text(f"OVS_LBT_METRICS=127.0.0.1:{port}\n")
        machine.install(packaged.successor(package, tmp_path))
        assert machine.version() == f"{version}+next", "apt has restarted the service"
        assert options.read_text() == f"OVS_LBT_METRICS=127.0.0.1:{port}\n"
        url = f"http://127.0.0.1:{port}/metrics"

        def scraped() -> str:
            return subprocess.run(["curl", "-s", url], capture_output=True, text=True).stdout

        wait_until(
            lambda: "ovslbt_build_info" in scraped(), "the options of the machine are in force"
        )
        wait_until(
            lambda: machine.uplinks_in_use(bond.bridge) == bindings, "every VM is where it was"
        )

        removed = machine.apt("remove", "ovs-lbt")
        assert removed.returncode == 0, removed.stdout + removed.stderr
        assert state(bond) == before, "the bridge is as it was"
        assert machine.version() == "", "no service is left"
    assert options.exists(), "settings outlive a removal"

    vsctl, uplink = bond.ovs.vsctl, bond.uplinks[0].name
    odd = 'external_ids:"ovs-lbt-vm-a b, c-pin"="x, ovs-lbt-y=1"'
    vsctl("set", "bridge", bond.bridge, odd, "external_ids:others=ovs-lbt-z=1")
    vsctl("set", "interface", uplink, "external_ids:ovs-lbt-capacity-mbps=5")
    purged = machine.apt("purge", "ovs-lbt")
    assert purged.returncode == 0, purged.stdout + purged.stderr
    assert vsctl("get", "bridge", bond.bridge, "external_ids") == '{others="ovs-lbt-z=1"}'
    assert vsctl("get", "interface", uplink, "external_ids") == "{}"
    left = ["-xdev", "-name", "*ovs-lbt*", "-not", "-path", f"{CHECKOUT}/*"]
    # Nothing else may be in /opt, and dpkg removes a directory that is empty.
    machine.do("mkdir", "-p", "/opt")
    places = ["/etc", "/lib/systemd", "/opt", "/usr/bin", "/usr/share", "/var", "/run/openvswitch"]
    found = machine.do("find", *places, *left)
    assert found == "", "a purge leaves nothing"
    few_lost(traffic.lost(), 0, FLOW_PPS)


def set_by_others(bed: Bed) -> list[str]:
    """What is in the database, without what the service notes there, of which 0.1.0 knows less."""
    noted = r'ovs-lbt-(team|protected|kept)="(?:[^"\\]|\\.)*"(, )?'
    return [re.sub(noted, "", one) for one in records(bed)]


@judges_time
def test_from_the_release_before_nothing_is_lost_and_nothing_moves(
    package: Path, machine: Machine, bond: Bed, plain: Bed, tmp_path: Path
) -> None:
    """A bond and plain uplinks, whose VMs an operator has put where no policy would."""
    before = packaged.release_before(tmp_path)
    version = package.name.split("_")[1]
    assert before.name == "ovs-lbt_0.1.0_all.deb" and version != "0.1.0"
    beds = {bed: (bed.vms[0], bed.hosts[0]) for bed in (bond, plain)}
    ways = [way for vm, host in beds.values() for way in ((vm, host), (host, vm))]

    def in_use() -> dict[Bed, dict[str, str]]:
        return {bed: machine.uplinks_in_use(bed.bridge) for bed in beds}

    machine.install(before)
    assert machine.version() == "0.1.0"
    for bed in beds:
        machine.do("ovs-lbt", "attach", bed.bridge, *bed.uplink_options, "--policy", "load-based")
        machine.do("ovs-lbt", "set", "bridge", bed.bridge, f"window-s={WINDOW_S}")
    wait_until(
        lambda: all(uplink for ports in in_use().values() for uplink in ports.values()),
        "every VM has an uplink",
    )
    for bed in beds:
        for vm in bed.vms:
            machine.do("ovs-lbt", "move", vm.port, bed.uplinks[1].name)
        bed.introduce()
        bed.revalidated()
        wait_until(functools.partial(leave_by_second, bed), "frames leave as they were placed")
    bindings, homes = in_use(), {bed: bed.homes() for bed in beds}
    for bed in beds:
        assert all(homes[bed][str(vm)] == [bed.uplinks[1].name] for vm in bed.vms), homes[bed]
    settings = {bed: set_by_others(bed) for bed in beds}

    with Traffic(ways) as traffic:
        machine.install(package)
        assert machine.version() == version, "apt has restarted the service"
        wait_until(lambda: in_use() == bindings, "every VM is where it was")
        # Until load-based has decided.
        time.sleep(2 * WINDOW_S)
    assert in_use() == bindings
    for bed in beds:
        assert bed.homes() == homes[bed], "frames leave by the uplinks by which they left"
        assert set_by_others(bed) == settings[bed], "no setting has changed"
        assert machine.run("ovs-lbt", "check", bed.bridge).returncode == 0
    few_lost(traffic.lost(), 0, FLOW_PPS)


def leave_by_second(bed: Bed) -> bool:
    """Whether frames of all VMs leave by the second uplink."""
    homes = bed.homes()
    return all(homes[str(vm)] == [bed.uplinks[1].name] for vm in bed.vms)


@judges_time
def test_the_role_installs_and_goes_back_to_the_package_before(
    package: Path, machine: Machine, bond: Bed, tmp_path: Path
) -> None:
    """A machine that was well is upgraded while its bond has lost a link: the gate does not let that pass."""
    version, before = package.name.split("_")[1], state(bond)
    newer = packaged.successor(package, tmp_path)
    wanted = {"OVS_LBT_METRICS": f"127.0.0.1:{free_tcp_port()}"}
    vm, host = bond.vms[0], bond.hosts[0]
    lost: list[int] = []

    def run(check: bool = False, **packages: Any) -> Rollout:
        on = {"kvm1": (machine, bond.bridge)}
        return roll_out(on, tmp_path, check, ovs_lbt_options=wanted, **packages)

    def run_under_traffic(**packages: Any) -> Rollout:
        with Traffic([(vm, host), (host, vm)], ROLLOUT_PPS) as traffic:
            rolled = run(**packages)
        lost.extend(traffic.lost().values())
        return rolled

    looked = run(check=True, ovs_lbt_package=str(package))
    assert looked.status == 0, looked.said
    assert (machine.version(), state(bond)) == ("", before), "it was only asked"

    first = run_under_traffic(ovs_lbt_package=str(package))
    assert first.status == 0, first.said
    assert machine.version() == version
    assert machine.do("systemctl", "is-enabled", "ovs-lbt.service") == "enabled\n"
    options = machine.path("/etc/default/ovs-lbt").read_text().splitlines()
    assert [line for line in options if not line.startswith("#") and line] == [
        f"{name}={value}" for name, value in wanted.items()
    ]

    with bond.cable_pulled(bond.uplinks[1]):
        only = dict.fromkeys(machine.uplinks_in_use(bond.bridge), bond.uplinks[0].name)
        wait_until(lambda: machine.uplinks_in_use(bond.bridge) == only, "all use the other uplink")
        settings = records(bond)
        second = run_under_traffic(
            ovs_lbt_package=str(newer), ovs_lbt_previous_package=str(package)
        )
        assert second.status != 0
        assert re.search(r"kvm1 was rolled back: .*: link is down", second.said), second.said
        log = machine.path("/var/log/dpkg.log").read_text()
        assert f" upgrade ovs-lbt:all {version} {version}+next\n" in log, log
        assert machine.version() == version, "the package before is back"
        assert machine.uplinks_in_use(bond.bridge) == only, "the bridge was attached, and is"
        assert records(bond) == settings
    few_lost(lost, 0, ROLLOUT_PPS)


def test_the_files_belong_to_root_and_nobody_else_may_write_to_them(
    package: Path, tmp_path: Path
) -> None:
    """Whoever may write to one of them runs as root. A wheel's belong to who installs it."""
    made = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as files:
        bad = [
            one.name
            for one in files
            if (one.uid, one.gid) != (0, 0) or (not one.issym() and one.mode & WRITABLE_BY_OTHERS)
        ]
        assert bad == [] and "./opt/ovs-lbt/bin/ovs-lbt" in files.getnames()
        unit = files.extractfile("./lib/systemd/system/ovs-lbt.service")
        assert unit and b"\nProtectHome=yes\n" in unit.read()

    others = shutil.ignore_patterns(".*", "out", "__pycache__", "*.egg-info")
    shutil.copytree(CHECKOUT, tmp_path / "source", ignore=others)
    words = ["--no-deps", "--no-index", "--no-build-isolation", f"--target={tmp_path}/installed"]
    pip = [sys.executable, "-m", "pip", "install", *words, f"{tmp_path}/source"]
    subprocess.run(pip, check=True, umask=0o022)
    installed = [path.stat() for path in (tmp_path / "installed").rglob("*")]
    assert len(installed) > 100
    assert not any(
        one.st_uid or one.st_gid or one.st_mode & WRITABLE_BY_OTHERS for one in installed
    )


def test_the_changelog_of_the_package_begins_with_its_version(package: Path) -> None:
    version = package.name.split("_")[1]
    said = packaged.changelog(package)
    heads = re.findall(r"^ovs-lbt \((\S+)\) unstable; urgency=medium$", said, re.MULTILINE)
    assert heads[0] == version and len(set(heads)) == len(heads), heads


def test_what_cannot_be_given_back_is_not_removed_unless_told_so(
    package: Path, machine: Machine, plain: Bed
) -> None:
    """A switch that hangs keeps its flows: to remove the service in silence would hide that."""
    before = state(plain)
    machine.install(package)
    attach = ("ovs-lbt", "attach", plain.bridge, *plain.uplink_options)
    machine.do(*attach)

    plain.ovs.stop("ovsdb-server")
    refused = machine.apt("remove", "ovs-lbt")
    assert refused.returncode != 0, "no database tells what is attached"
    assert "OVS_LBT_REMOVE=anyway" in refused.stderr, refused.stderr
    plain.ovs.start_database()
    wait_until(lambda: machine.version() != "", "the service is still there")
    assert machine.do("dpkg-query", "-Wf${db:Status-Status}", "ovs-lbt") == "installed"

    machine.do("systemctl", "stop", "ovs-lbt.service")
    removed = machine.apt("remove", "ovs-lbt")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert state(plain) == before, "given back without a service"

    machine.install(package)
    machine.do(*attach)
    plain.ovs.stop("ovsdb-server")
    forced = machine.apt("remove", "ovs-lbt", OVS_LBT_REMOVE="anyway")
    assert forced.returncode == 0, forced.stdout + forced.stderr
    plain.ovs.start_database()
    assert "cookie=0x6c627400" in plain.ofctl("dump-flows"), "the switch goes on by its flows"
    wait_until(lambda: machine.version() == "", "the service is gone")
    purged = machine.apt("purge", "ovs-lbt")
    told = "still attached", f": {plain.bridge}; ", "ovs-lbt detach BRIDGE --purge"
    assert says(purged.stderr, *told), purged.stderr
    assert "policy" in plain.ovs.vsctl("get", "bridge", plain.bridge, "external_ids")


def test_the_command_is_the_package_s_not_a_checkout_s(package: Path, machine: Machine) -> None:
    """`make deb` leaves a link to the checkout, which comes first on PATH."""
    machine.do("ln", "-s", "/somewhere/.venv/bin/ovs-lbt", "/usr/local/bin/ovs-lbt")
    linked = "/usr/local/share/bash-completion/completions/ovs-lbt"
    machine.do("mkdir", "-p", linked.rpartition("/")[0])
    machine.do("ln", "-sf", "/somewhere/controller/completion/ovs-lbt.bash", linked)
    said = machine.install(package)
    assert "removed the link /usr/local/bin/ovs-lbt to /somewhere/.venv/bin/ovs-lbt" in said
    assert machine.do("sh", "-c", "command -v ovs-lbt") == "/usr/bin/ovs-lbt\n"
    assert machine.version() == package.name.split("_")[1]
    assert machine.do("ovs-lbt", "--version") == f"ovs-lbt {machine.version()}\n"
    machine.do("test", "!", "-L", linked)
    completing = ". /usr/share/bash-completion/completions/ovs-lbt; complete -p ovs-lbt"
    assert machine.do("bash", "-c", completing) == "complete -F _ovs_lbt ovs-lbt\n"
    for script in ("zsh/vendor-completions/_ovs-lbt", "fish/vendor_completions.d/ovs-lbt.fish"):
        machine.do("test", "-s", f"/usr/share/{script}")
    assert machine.do("ovs-lbt", "__complete", "comp").startswith("completion\t")


def test_what_is_in_the_way_or_missing_is_named(package: Path, machine: Machine) -> None:
    for path in ("/usr/local/bin/ovs-lbt", "/etc/systemd/system/ovs-lbt.service"):
        machine.path(path).touch()
    said = machine.install(package)
    hidden = "/usr/local/bin/ovs-lbt takes precedence over /usr/bin/ovs-lbt; remove"
    assert hidden in said
    assert "/etc/systemd/system overrides the package's unit; remove it there" in said

    machine.do("ln", "-sf", "/somewhere/.venv/bin/ovs-lbt", "/usr/local/bin/ovs-lbt")
    options = machine.path("/etc/default/ovs-lbt")
    options.write_text(f"{options.read_text()}OVS_LBT_PRIVATE_KEY=/root/key.pem\n")
    again = machine.run("dpkg", "-i", f"/run/{package.name}")
    assert says(again.stderr, "/etc/default/ovs-lbt", "/home, /root or /run/user", "/etc/ovs-lbt")
    assert hidden in again.stderr, "the unit starts with this command"

    machine.path("/usr/bin/mnexec").unlink()
    benched = machine.run("/usr/bin/ovs-lbt", "bench", "vmware_lbt")
    assert benched.returncode == 1
    assert "mnexec; run: apt install mininet" in benched.stderr
