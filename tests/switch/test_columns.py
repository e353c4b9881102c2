"""Settings of Open vSwitch's records: those that a bridge follows with ovs-lbt, too, and those that it does not."""

from __future__ import annotations

import functools
import json
import socket
from collections import Counter

from controller.config.columns import DIFFERENT, ROWS
from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Shot, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

pytestmark = on_beds(BedSpec(BALANCE_SLB, 2, (None, None, None)))
PRIORITY_TAG = 0x2000
# A value of each setting that is reported with any value but its default; `uplink`: the first one.
UNLIKE = {
    "flood_vlans": "7",
    "mac-aging-time": "15",
    "mac-table-size": "10",
    "priority-tags": "always",
    "bond-hash-basis": "3",
    "bond-rebalance-interval": "0",
    "bond-primary": "uplink",
    "bond_updelay": "60000",
    "bond_downdelay": "60000",
}
# While a port waits for spanning tree, it carries no frames, so these are set only at the end.
SPANNING_TREE = ("stp_enable", "rstp_enable")
# What exports records of frames, and how it does so at once.
EXPORTS = {"netflow": "active_timeout=1", "sflow": "sampling=1", "ipfix": "sampling=1"}
RATE_BPS = 1_000_000_000
LIKE = {
    "Bridge": """
        other_config:dp-desc=d other_config:dp-sn=1 other_config:controller-queue-size=10
        other_config:disable-in-band=true other_config:in-band-queue=1 other_config:stp-priority=7
        other_config:hwaddr=02:00:00:aa:bb:cc other_config:rstp-priority=4096
    """,
    "Port": """
        other_config:transient=true other_config:stp-path-cost=7 other_config:rstp-path-cost=7
        other_config:rstp-port-admin-edge=true mac="02:00:00:aa:bb:cd"
    """,
    "Bond": """
        other_config:bond-detect-mode=miimon other_config:bond-miimon-interval=50 bond_fake_iface=true
        other_config:lacp-system-priority=7 other_config:lacp-time=fast
    """,
    "Interface": """
        other_config:emc-enable=false other_config:tx-steering=hash other_config:lacp-port-priority=7
        lldp:enable=true mtu_request=1480
    """,
}


def delivered(bed: Bed) -> dict[str, Counter[tuple[str, int]]]:
    """Where each kind of frame comes out, with which tag, that a VM and a host send; the uplinks are one."""
    (vm, other, _), (host,) = bed.vms, bed.hosts
    shots: list[Shot] = [
        bed.frame_of(sender, build, story=f"{kind} of {sender}")
        for sender in (vm, host)
        for kind, build in {**frames.FLOODED, "unicast": frames.to(other.mac)}.items()
        # NORMAL may deliver this twice.
        if (str(sender), kind) != (str(host), "unknown unicast")
    ]
    for build in (frames.broadcast, frames.to(other.mac)):
        shots.append(bed.shot(vm.point, build, vm.mac, 0, PRIORITY_TAG, "priority tag"))
    stories = [f"{number} {shot.story}" for number, shot in enumerate(shots)]
    return dict(zip(stories, bed.came_out(shots), strict=True))


def records(bed: Bed, table: str) -> list[str]:
    """The records of a table of the list that belong to the bridge."""
    names = [station.port for station in bed.stations]
    uplinks = [uplink.name for uplink in bed.uplinks]
    return {
        "Bridge": [bed.bridge],
        "Port": [*names, bed.bond],
        "Bond": [bed.bond],
        "Interface": [*names, *uplinks],
    }[table]


def setting(table: str, record: str, *values: str) -> list[str]:
    return ["--", "set", "port" if table == "Bond" else table, record, *values]


def cleared(bed: Bed, **columns: str) -> None:
    """These columns of each table are empty again."""
    words = []
    for table, names in columns.items():
        for record in records(bed, table):
            words += ["--", "clear", table, record, *names.split()]
    bed.ovs.vsctl(*words[1:])


def not_done(service: Service, bed: Bed) -> list[str]:
    shown: list[str] = service.show_json(bed.bridge)["not_done"]
    return shown


def test_settings_that_open_vswitch_follows_itself_work_as_before(
    bed: Bed, service: Service
) -> None:
    collectors = {kind: socket.socket(type=socket.SOCK_DGRAM) for kind in EXPORTS}
    rate = f"other_config:max-rate={RATE_BPS}"
    words = [
        *("--", "--id=@q", "create", "qos", "type=linux-htb", rate),
        *("--", "set", "port", bed.bond, "qos=@q"),
    ]
    for kind, collector in collectors.items():
        collector.bind(("127.0.0.1", 0))
        collector.setblocking(False)
        target = f'targets="127.0.0.1:{collector.getsockname()[1]}"'
        words += ["--", f"--id=@{kind}", "create", kind, target, EXPORTS[kind]]
        words += ["--", "set", "bridge", bed.bridge, f"{kind}=@{kind}"]
    for table, values in LIKE.items():
        for record in records(bed, table):
            words += setting(table, record, *values.split())
    bed.ovs.vsctl(*words[1:])

    def exported(kind: str) -> bool:
        """Whether Open vSwitch has sent a record of its traffic since this was last asked."""
        delivered(bed)
        found = False
        while True:
            try:
                found = bool(collectors[kind].recv(65536)) or found
            except BlockingIOError:
                return found

    try:
        bed.introduce_to_normal()
        expected = delivered(bed)
        for kind in collectors:
            wait_until(functools.partial(exported, kind), f"NORMAL: {kind}")
        with service.attached(bed, "--policy", "originating-port"):
            assert not_done(service, bed) == []
            assert delivered(bed) == expected
            assert service.uplink(bed, bed.uplinks[0])["capacity_bps"] == RATE_BPS
            for kind in collectors:
                exported(kind)
                wait_until(functools.partial(exported, kind), kind)
            # `miimon` reports the link, too.
            with bed.cable_pulled(bed.uplinks[0]):
                wait_until(lambda: not service.all_up(bed), "the link is reported down")
    finally:
        for collector in collectors.values():
            collector.close()
        bed.ovs.vsctl("set", "port", bed.bond, "bond_fake_iface=false")
        cleared(bed, Bridge="other_config netflow sflow ipfix")
        cleared(bed, Port="other_config mac qos", Interface="other_config lldp mtu_request")


def test_settings_that_only_normal_follows_are_told_and_change_nothing(
    bed: Bed, service: Service
) -> None:
    reported = [(of, name) for of in ROWS for name in of.names if name.condition]
    unlike = [(of, name) for of, name in reported if of.what == DIFFERENT]
    values = {
        str(name): name.value if name.condition == "=" else UNLIKE[name.name] for _, name in unlike
    }
    record = {"Bridge": bed.bridge, "Port": bed.vms[0].port, "Bond": bed.bond}
    first, second = bed.uplinks
    words = []
    for of, name in unlike:
        if name.name not in SPANNING_TREE:
            value = values[str(name)].replace("uplink", first.name)
            words += setting(of.table, record[of.table], f"{name}={value}")
    try:
        with service.attached(bed, "--policy", "originating-port"):
            expected = delivered(bed)
        bed.ovs.vsctl(*words[1:])
        before = service.command("check", bed.bridge)
        told = service.command("attach", bed.bridge, "--policy", "originating-port")
        assert before.returncode == told.returncode == 0, (before, told)
        service.wait_ready(bed)
        bed.introduce()
        for of, name in unlike:
            if name.name not in SPANNING_TREE:
                table = "Bridge" if of.table == "Bridge" else "Port"
                text = f"{table} {record[of.table]} {name}: {of.words}"
                assert text in not_done(service, bed)
                assert f"note: {text}" in told.stdout and text in before.stdout
        assert delivered(bed) == expected
        service.place(bed, 0, 0, 0)
        with bed.cable_pulled(first):
            wait_until(lambda: bed.homes()[str(bed.vms[0])] == [second.name], "no delay")
        bed.ovs.vsctl("set", "bridge", bed.bridge, *(f"{name}=true" for name in SPANNING_TREE))
        wait_until(lambda: len(not_done(service, bed)) == len(unlike), "all are told")
        found = json.loads(service.command("check", bed.bridge, "--json").stdout)["findings"]
        severities = {one["severity"] for one in found if one["check"] == "not-done"}
        assert severities == {"note"}
    finally:
        service.command("detach", bed.bridge)
        off = [f"{name}=false" for name in (*SPANNING_TREE, "mcast_snooping_enable")]
        bed.ovs.vsctl("set", "bridge", bed.bridge, *off)
        bed.ovs.vsctl("set", "port", bed.bond, "bond_updelay=0", "bond_downdelay=0")
        cleared(bed, Bridge="other_config flood_vlans", Port="other_config")


def test_settings_with_which_frames_would_be_lost_are_refused(bed: Bed, service: Service) -> None:
    tunnel = bed.vms[0].port
    bed.ovs.vsctl(
        *("--id=@limited", "create", "flow_table", "flow_limit=9", "--"),
        *("set", "bridge", bed.bridge, "flow_tables:3=@limited", "--"),
        *("set", "port", tunnel, "vlan_mode=dot1q-tunnel", "tag=5"),
    )
    refused = service.command("attach", bed.bridge)
    assert refused.returncode == 1
    for advised in (
        f"ovs-vsctl clear bridge {bed.bridge} flow_tables",
        f"ovs-vsctl set port {tunnel} vlan_mode=access",
    ):
        assert advised in refused.stderr
        assert service.command("attach", bed.bridge).returncode == 1
        bed.ovs.vsctl(*advised.split()[1:])
    try:
        with service.attached(bed, "--policy", "originating-port"):
            assert not_done(service, bed) == []
    finally:
        bed.ovs.vsctl("clear", "port", tunnel, "vlan_mode", "tag")
