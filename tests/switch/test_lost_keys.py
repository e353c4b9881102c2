"""Keys that vanish from the database for a while, as netplan removes and writes them.

And whatever else makes NORMAL take over plain uplinks for a moment. NORMAL alone would form a loop.
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import documents
from tests.said import says
from tests.switch.adopting import attached_from_standalone, has_ours
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, on_beds, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until

ON_PLAIN, ON_BOND = (BedSpec(team, 2, (None, None)) for team in (PLAIN, BALANCE_SLB))
on_plain_uplinks = on_beds(ON_PLAIN)
on_both = on_beds(ON_PLAIN, ON_BOND)
MOST_COPIES = 10
PAUSE_S = 0.002
# Longer than the service needs to read what was flushed, and to install it again.
AFTERWARDS_S = 0.25
FORGOTTEN = (
    "ovs-lbt-policy: the key has disappeared from the database, so the bridge is no longer managed"
)
KEYS = ("ovs-lbt-policy", "ovs-lbt-uplinks", "ovs-lbt-before", "ovs-lbt-connection-hash")


@pytest.fixture
def grace_s(bed: Bed) -> Iterator[Callable[[float], None]]:
    """Sets how long keys are kept; as it was behind the test."""
    key = "external_ids:ovs-lbt-key-loss-grace-s"

    def set_to(value: float) -> None:
        bed.ovs.vsctl("set", "Open_vSwitch", ".", f"{key}={value:g}")

    yield set_to
    bed.ovs.vsctl("remove", "Open_vSwitch", ".", "external_ids", key.partition(":")[2])


@on_plain_uplinks
def test_normal_alone_is_a_loop(bed: Bed) -> None:
    """What happens without the service, and why the tests below count."""
    assert copies(bed, lambda: standalone_for_a_moment(bed), afterwards_s=0.0) > 2 * MOST_COPIES


@on_plain_uplinks
def test_netplan_s_commands_form_no_loop_in_any_order(bed: Bed, service: Service) -> None:
    vsctl = bed.ovs.vsctl

    def removed() -> None:
        vsctl("remove", "bridge", bed.bridge, "external_ids", *KEYS)

    def loosened() -> None:
        vsctl("del-fail-mode", bed.bridge)

    def standalone() -> None:
        vsctl("set-fail-mode", bed.bridge, "standalone")

    def returned() -> None:
        bed.set("bridge", bed.bridge, policy="load-based")
        bed.set("bridge", bed.bridge, uplinks=",".join(map(str, bed.uplinks)))

    with attached_from_standalone(bed, service):
        assert protected(bed) == {*map(str, bed.uplinks)}
        for order in (
            (removed, loosened, standalone, returned),
            (loosened, removed, standalone, returned),
            (removed, returned, loosened, standalone),
        ):
            before = bindings(bed, service)
            assert copies(bed, *order) <= MOST_COPIES
            wait_until(lambda: bed.fail_mode() == "secure", "the fail mode is set again")
            wait_until(lambda: "before" in str(keys(bed)), "what the service wrote is there again")
            wait_until(lambda: service.show_json(bed.bridge)["config_errors"] == [], "well again")
            assert bindings(bed, service) == before
    assert protected(bed) == set()


@on_beds(BedSpec(PLAIN, 3, (None, None)))
def test_what_happens_in_the_grace_forms_no_loop(
    bed: Bed, service: Service, grace_s: Callable[[float], None]
) -> None:
    third = bed.uplinks.pop()
    bed.ovs.vsctl("del-port", bed.bridge, third.name)
    service.attach(bed)
    grace_s(60)
    vsctl, first = bed.ovs.vsctl, bed.uplinks[0].name
    for keys_are_there in (True, False):
        if not keys_are_there:
            vsctl("remove", "bridge", bed.bridge, "external_ids", *KEYS)
            wait_until(lambda: lost(bed, service), "the service has seen it")
            (text,) = lost(bed, service)
            assert says(text, "ovs-lbt-policy", "disappeared", "ovs-lbt detach")
            assert service.metric("ovslbt_config_errors", bridge=bed.bridge) == 1
        for change in (
            lambda: vsctl("set-fail-mode", bed.bridge, "standalone"),
            lambda: vsctl("del-fail-mode", bed.bridge),
            lambda: vsctl("add-port", bed.bridge, third.name),
            lambda: vsctl("set-fail-mode", bed.bridge, "secure"),
            lambda: vsctl("set-fail-mode", bed.bridge, "standalone"),
            lambda: vsctl("del-port", bed.bridge, third.name),
            lambda: vsctl("del-port", bed.bridge, first),
            lambda: vsctl("add-port", bed.bridge, first),
        ):
            assert copies(bed, change) <= MOST_COPIES
            wait_until(lambda: has_ours(bed), "the flows are back")
    serves_both_ways(bed)
    vsctl("set-fail-mode", bed.bridge, "secure")
    service.do("detach", bed.bridge)
    assert protected(bed) == set() and keys(bed) == {}
    vsctl("add-port", bed.bridge, third.name)
    bed.uplinks.append(third)


@on_both
def test_a_reset_of_the_database_forms_no_loop(bed: Bed, service: Service) -> None:
    service.attach(bed)
    before = bindings(bed, service)
    for _ in range(3):
        assert copies(bed, lambda: bed.ovs.vsctl("emer-reset")) <= MOST_COPIES
        wait_until(lambda: has_ours(bed), "the flows are back")
        told, advice = service.command("check", bed.bridge), f"set-fail-mode {bed.bridge} secure"
        assert says(told.stdout, "fail_mode", advice) is not bed.spec.on_bond
        if not bed.spec.on_bond:
            bed.ovs.vsctl(*advice.split())
    wait_until(lambda: service.command("check", bed.bridge).returncode == 0, "check is content")
    serves_both_ways(bed)
    assert bindings(bed, service) == before
    service.do("detach", bed.bridge)


@on_both
def test_without_keys_the_flows_stay_and_form_no_loop(
    bed: Bed, service: Service, grace_s: Callable[[float], None]
) -> None:
    service.attach(bed)
    grace_s(1)
    bed.ovs.vsctl("remove", "bridge", bed.bridge, "external_ids", *KEYS)
    wait_until(lambda: FORGOTTEN in service.log.read_text(), "the grace is over")
    serves_both_ways(bed)
    if not bed.spec.on_bond:
        assert copies(bed, lambda: standalone_for_a_moment(bed)) <= MOST_COPIES
    service.attach(bed)
    service.do("detach", bed.bridge)
    assert protected(bed) == set()


@on_plain_uplinks
def test_the_documents_file_for_netplan(bed: Bed, service: Service) -> None:
    service.start()
    bed.ovs.vsctl("clear", "bridge", bed.bridge, "fail_mode")
    for uplink in bed.uplinks:
        bed.ovs.vsctl("del-port", bed.bridge, uplink.name)
    commands = from_netplan(bed)
    for command in commands:
        command()
    service.wait_ready(bed)
    assert protected(bed) == {*map(str, bed.uplinks)}
    before = bindings(bed, service)
    assert copies(bed, *(*cleaned_up(bed), *commands), afterwards_s=0.1) <= MOST_COPIES
    wait_until(
        lambda: service.show_json(bed.bridge)["config_errors"] == [], "the keys have been restored"
    )
    assert (bindings(bed, service), bed.fail_mode()) == (before, "secure")
    serves_both_ways(bed)
    service.do("detach", bed.bridge)


# ----------------------------------------------------------------------------------------

# What `netplan generate` 0.106 (Debian 12) makes of the documents' file.
GENERATED = """
--may-exist add-br br0
--may-exist add-port br0 eth1
--may-exist add-port br0 eth0
set Bridge br0 external-ids:netplan=true
set-fail-mode br0 secure
set Bridge br0 external-ids:netplan/global/set-fail-mode=secure
set Bridge br0 mcast_snooping_enable=false
set Bridge br0 external-ids:netplan/mcast_snooping_enable=false
set Bridge br0 rstp_enable=false
set Bridge br0 external-ids:netplan/rstp_enable=false
set Bridge br0 external-ids:ovs-lbt-uplinks=eth0,eth1
set Bridge br0 external-ids:netplan/external-ids/ovs-lbt-uplinks=eth0,eth1
set Bridge br0 external-ids:ovs-lbt-policy=load-based
set Bridge br0 external-ids:netplan/external-ids/ovs-lbt-policy=load-based
"""


def from_netplan(bed: Bed) -> list[Callable[[], object]]:
    """The commands that netplan makes of the documents' file, for this bed."""
    (block,) = documents.labelled("netplan")
    made = GENERATED.strip()
    if shutil.which("netplan"):
        with tempfile.TemporaryDirectory() as root:
            file = Path(root, "etc", "netplan", "01.yaml")
            file.parent.mkdir(parents=True)
            file.touch(0o600)
            file.write_text(block.text)
            run("netplan", "generate", "--root-dir", root)
            unit = Path(root, "run", "systemd", "system", "netplan-ovs-br0.service").read_text()
        made = "\n".join(re.findall(r"^ExecStart=/usr/bin/ovs-vsctl (.*)$", unit, re.MULTILINE))
        assert sorted(made.splitlines()) == sorted(GENERATED.strip().splitlines())
    for name, ours in zip(("br0", "eth0", "eth1"), (bed.bridge, *bed.uplinks), strict=True):
        made = re.sub(rf"\b{name}\b", str(ours), made)
    return [functools.partial(bed.ovs.vsctl, *line.split()) for line in made.splitlines()]


def cleaned_up(bed: Bed) -> list[Callable[[], object]]:
    """The commands of `netplan apply --only-ovs-cleanup`: of `apply_ovs_cleanup` in its cli/ovs.py.

    It asks systemd whether ovsdb-server runs, and does nothing here.
    """
    ids = ("bridge", bed.bridge, "external-ids")
    words: list[tuple[str, ...]] = []
    for key in ("ovs-lbt-policy", "ovs-lbt-uplinks"):
        words += [("remove", *ids, key), ("remove", *ids, f"netplan/external-ids/{key}")]
    words += [("del-fail-mode", bed.bridge), ("remove", *ids, "netplan/global/set-fail-mode")]
    for column in ("mcast_snooping_enable", "rstp_enable"):
        words += [("remove", *ids, f"netplan/{column}")]
    return [functools.partial(bed.ovs.vsctl, *one) for one in words]


def copies(bed: Bed, *changes: Callable[[], object], afterwards_s: float = AFTERWARDS_S) -> int:
    """The most copies of a broadcast that came out anywhere, while changes are made one by one."""
    done = threading.Event()

    def change() -> None:
        for one in changes:
            one()
            time.sleep(afterwards_s)
        done.set()

    with bed.ears() as ears:
        changing = threading.Thread(target=change)
        changing.start()
        while not done.is_set():
            for sender in (bed.vms[0], bed.hosts[0]):
                bed.send(sender.point, bed.frame_of(sender).frame)
            ears.listen(within_s=PAUSE_S)
        changing.join()
        ears.until_quiet()
        found = Counter(
            (name, heard.frame_id)
            for name, ear in ears.by_name.items()
            for heard in ear.frames()
            if heard.frame_id is not None and not heard.outgoing
        )
    return max(found.values())


def standalone_for_a_moment(bed: Bed) -> None:
    bed.ovs.vsctl("set-fail-mode", bed.bridge, "standalone")
    time.sleep(0.05)
    bed.ovs.vsctl("set-fail-mode", bed.bridge, "secure")


def serves_both_ways(bed: Bed) -> None:
    """A broadcast reaches the other side, once."""
    vm, host = bed.vms[0], bed.hosts[0]
    for source, to in ((vm, host), (host, vm)):

        def arrives(source: Station = source, to: Station = to) -> bool:
            with bed.ears(to.point) as ears:
                shot = bed.frame_of(source)
                bed.send(source.point, shot.frame)
                bed.fence()
                ears.until_quiet()
                heard = [h for h in ears[to.point].frames() if h.frame_id == shot.frame_id]
            assert len(heard) < 2
            return len(heard) == 1

        wait_until(arrives, f"a broadcast of {source} reaches {to}")


def bindings(bed: Bed, service: Service) -> dict[str, str]:
    wait_until(lambda: service.all_up(bed), "both uplinks work")
    return service.bindings(bed)


def lost(bed: Bed, service: Service) -> list[str]:
    errors: list[str] = service.show_json(bed.bridge)["config_errors"]
    return [error for error in errors if "disappeared" in error]


def keys(bed: Bed) -> dict[str, str]:
    words = bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids").strip("{}").split(", ")
    return dict(word.split("=", 1) for word in words if word.startswith("ovs-lbt"))


def protected(bed: Bed) -> set[str]:
    find = ["--bare", "--columns=name", "find", "port", "protected=true"]
    return {*bed.ovs.vsctl(*find).split()}
