"""`ovs-lbt attach --from-bond` and `detach --to-bond`: migrate a Linux bond to Open vSwitch, and back.

One member carries the host's traffic while the other members are moved. Then addresses, routes and
VLANs are moved in one step, and the first member last. If `attach` fails, it is rolled back.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from controller.dataplane import frames
from controller.host.forwarding import parse_forwarding
from controller.host.programs import run, wait_until
from controller.operations import linux_bond
from controller.operations.linux_bond import RECORD, Host, Links, LinuxBond, Stack
from controller.text.wording import Refused, quoted

BATCH_TIMEOUT_S = 20
# A network card may negotiate its speed again after it has been down.
LINK_PATIENCE_S = 15.0
# An LACP partner with slow timeouts may take up to this long to answer.
LACP_PATIENCE_S = 40.0
CHECK_INTERVAL_S = 0.1
# How long upstream switches may take until they send frames to the other member.
GATEWAY_PATIENCE_S = 15.0
ETH_P_ALL = 3
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


def survey(bridge: str, name: str) -> Host:
    """Return the configuration that `move` would move from Linux bond `name`. Change nothing.

    Raises:
        Refused: the bond cannot be moved, or a tool is missing.
    """
    links = _links()
    has_it = _asked("ovs-vsctl", "port-to-br", name)
    bond = linux_bond.read(name, links, bridge, has_it)
    exists = _asked("ovs-vsctl", "br-exists", bridge) is not None
    if exists and is_attached(bridge):
        detach = f"ovs-lbt detach {quoted(bridge)}"
        raise Refused(f"bridge {bridge} is attached; detach it first: {detach}")
    if not exists and bridge in links:
        raise Refused(f"bridge {bridge}: another device has this name; choose another name")
    at = bridge if bond.is_port else name
    if bond.is_port:
        _refuse_used(name, links, "because the bond is a port of the bridge")
    elif exists:
        _refuse_used(bridge, links, "because the bond's addresses and VLANs are moved there")
        # A bond that leads to the same network would form a loop with this one.
        for port in _vsctl("list-ports", bridge).split():
            if len(_members(port)) > 1:
                raise Refused(f"bridge {bridge} has bond {port}; choose a bridge without uplinks")
    return _host(bond, bridge, at, links, makes_bridge=not exists)


def survey_back(bridge: str, name: str) -> Host:
    """Return the configuration that `move_back` would move from port `name`. Change nothing.

    Raises:
        Refused: the port does not replace a Linux bond, or a tool is missing.
    """
    links = _links()
    text = _asked("ovs-vsctl", "--if-exists", "get", "port", name, f"external_ids:{RECORD}")
    if not text or _asked("ovs-vsctl", "port-to-br", name) != bridge:
        found = f"bridge {bridge} has no bond {name} that replaces a Linux bond"
        raise Refused(f"{found}; name a bond that attach --from-bond has migrated")
    # ovs-vsctl quotes values of more than one word.
    record = json.loads(text) if text.startswith('"') else text
    bond, made_bridge = linux_bond.recorded(record)
    if name in links:
        raise Refused(f"device {name} exists; remove it, because the Linux bond needs this name")
    return _host(bond, bridge, bridge, links, made_bridge)


def _host(bond: LinuxBond, bridge: str, at: str, links: Links, makes_bridge: bool) -> Host:
    """Return the configuration of this host. `at`: the device that has the host's addresses."""
    own, vlans = _stack(at), linux_bond.vlans(at, links, _stack)
    routes = [*own.routes, *(route for vlan in vlans for route in vlan.stack.routes)]
    gateways = dict.fromkeys(w[w.index("via") + 1] for r in routes if "via" in (w := r.split()))
    answering = tuple(gateway for gateway in gateways if _answers(gateway))
    return Host(bond, bridge, own, vlans, answering, makes_bridge)


def move(host: Host, say: Callable[[str], None]) -> None:
    """Convert the Linux bond to an Open vSwitch bond. If a step fails, roll back all steps.

    Raises:
        Refused: a step failed. The text includes the result of the rollback.
    """
    with _undisturbed():
        try:
            _forward(host, say)
        except Refused as why:
            say(f"failed: {why}; rolling back")
            try:
                _back(host, say)
            except Refused as worse:
                raise Refused(f"{why}; the rollback failed as well: {worse}") from None
            raise Refused(f"{why}; everything was rolled back") from None


def move_back(host: Host, say: Callable[[str], None]) -> None:
    """Convert the Open vSwitch bond back to a Linux bond.

    Raises:
        Refused: a step failed, and the remaining steps were not carried out.
    """
    with _undisturbed():
        _back(host, say)
        _check(host, say)


def is_attached(bridge: str) -> bool:
    """Whether ovs-lbt manages a bridge."""
    policy = "external_ids:ovs-lbt-policy"
    return bool(_vsctl("--if-exists", "get", "bridge", bridge, policy).strip())


def _forward(host: Host, say: Callable[[str], None]) -> None:
    bond, bridge = host.bond, host.bridge
    *first, last = bond.members
    for member in first:
        say(f"removing {member} from the Linux bond")
        _batch([f"link set {member} nomaster", *_up(member, bond)])
    say(f"adding {', '.join(first)} to bridge {bridge}")
    _vsctl(*_made(host, first))
    _wait_for_links(first, bond)
    if not host.bond.is_port:
        _cut(bond.name, bridge, host)
    _announce(first[0], host)
    say(f"bridge {bridge} now carries the host's traffic; moving {last}")
    _batch([f"link del {bond.name}", *_up(last, bond)])
    added = ("--", "add", "port", bond.name, "interfaces", "@i")
    _vsctl("--", "--id=@i", "create", "interface", f"name={last}", *added)
    _wait_for_links([last], bond)
    _announce(first[0], host)
    _check(host, say)


def _back(host: Host, say: Callable[[str], None]) -> None:
    """Move everything back to the Linux bond, from any state. Steps that are already done are skipped."""
    bond, bridge = host.bond, host.bridge
    *first, last = bond.members
    if bond.name not in _links():
        _make_anew(bond, say)
    for member in first:
        _to_linux(member, host, say)
    _batch([f"link set {bond.name} up"])
    _wait(lambda: _has_carrier(bond.name), f"{bond.name} has no link", LINK_PATIENCE_S)
    if host.bond.is_port:
        if _members(bond.name) != [bond.name]:
            words = ("--", "--id=@i", "create", "interface", f"name={bond.name}")
            _vsctl(*words, "--", "set", "port", bond.name, "interfaces=@i", *_as_before(bond))
    elif host.cut or not _is_on(bond.name, host):
        _cut(bridge, bond.name, host)
    _announce(bond.name, host)
    if not host.bond.is_port:
        _drop_port(host)
    _to_linux(last, host, say)
    if primary := bond.primary:
        _batch([f"link set {bond.name} type bond primary {primary}"])
    # The bond may send on another member now. Linux announces only the bond's own addresses there.
    _announce(bond.name, host)


def _make_anew(bond: LinuxBond, say: Callable[[str], None]) -> None:
    """Create the Linux bond again, without its optional settings if the kernel rejects one of them."""
    try:
        _batch(linux_bond.made_anew(bond, bond.options))
    except Refused as why:
        say(f"{why}; creating the bond with its essential options only")
        _batch(linux_bond.made_anew(bond, linux_bond.essential(bond)))


def _to_linux(member: str, host: Host, say: Callable[[str], None]) -> None:
    """Make an interface a member of the Linux bond, unless it is a member already."""
    bond = host.bond
    if _links().get(member, {}).get("master") == bond.name:
        return
    say(f"adding {member} to the Linux bond")
    there = _members(bond.name)
    if member in there and len(there) > 1:
        got = ("--", "--id=@i", "get", "interface", member)
        _vsctl(*got, "--", "remove", "port", bond.name, "interfaces", "@i")
    elif member in there and not host.bond.is_port:
        _vsctl("del-port", host.bridge, bond.name)
    _batch([f"link set {member} down", f"link set {member} master {bond.name}"])
    _batch([f"link set {member} up"])


def _drop_port(host: Host) -> None:
    """Remove the bond from the bridge. Remove the bridge if it was created for the bond and is empty."""
    if _asked("ovs-vsctl", "port-to-br", host.bond.name) is not None:
        _vsctl("del-port", host.bridge, host.bond.name)
    if _asked("ovs-vsctl", "br-exists", host.bridge) is None:
        return
    if host.makes_bridge and not _vsctl("list-ports", host.bridge).split():
        _vsctl("del-br", host.bridge)
    else:
        _vsctl("remove", "bridge", host.bridge, "other_config", "hwaddr")


def _made(host: Host, first: Sequence[str]) -> list[str]:
    """Return the arguments of `ovs-vsctl` that create the bond's port with its first members."""
    bond, bridge, words = host.bond, host.bridge, list[str]()
    ids = [f"@i{number}" for number, _ in enumerate(first)]
    for identity, member in zip(ids, first, strict=True):
        words += ["--", f"--id={identity}", "create", "interface", f"name={member}"]
    record = json.dumps(linux_bond.record(bond, host.makes_bridge))
    values = [f"interfaces={','.join(ids)}", *bond.settings, f"external_ids:{RECORD}={record}"]
    if host.bond.is_port:
        return [*words, "--", "set", "port", bond.name, *values]
    if host.makes_bridge:
        words += ["--", "add-br", bridge]
    mac = f"other_config:hwaddr={json.dumps(bond.mac)}"
    words += ["--", "set", "bridge", bridge, mac]
    words += ["--", "set", "interface", bridge, f"mtu_request={bond.mtu_bytes}"]
    words += ["--", "--id=@p", "create", "port", f"name={bond.name}", *values]
    return [*words, "--", "add", "bridge", bridge, "ports", "@p"]


def _as_before(bond: LinuxBond) -> list[str]:
    """Return the arguments of `ovs-vsctl` that restore the settings of a Linux bond's port."""
    words = ["bond_mode=[]", "lacp=[]", "bond_updelay=0", "bond_downdelay=0"]
    keys = [s.partition(":")[2].partition("=")[0] for s in bond.settings if ":" in s]
    words += ["--", "remove", "port", bond.name, "external_ids", RECORD]
    for key in keys:
        words += ["--", "remove", "port", bond.name, "other_config", key]
    return words


def _cut(old: str, new: str, host: Host) -> None:
    """Move the host's addresses, routes and VLANs from device `old` to `new`, within milliseconds."""
    host.cut = True
    lines, lines6 = linux_bond.moved(old, new, host.own, host.vlans, _links())
    _batch(lines)
    if lines6:
        _batch(lines6, "-6")


def _is_on(device: str, host: Host) -> bool:
    """Whether a device already has the host's addresses and VLANs. Lifetimes of addresses are ignored."""
    there, wanted = (
        {address.partition(" ")[0] for address in stack.addresses}
        for stack in (_stack(device), host.own)
    )
    vlans = {vlan.name for vlan in host.vlans}
    return there >= wanted and vlans <= {*linux_bond.vlan_names(device, _links())}


def _check(host: Host, say: Callable[[str], None]) -> None:
    """Wait until the gateways that answered before the move answer again."""
    for gateway in host.answering:
        late = f"gateway {gateway} no longer answers"
        _wait(partial(_answers, gateway), late, GATEWAY_PATIENCE_S)
        say(f"gateway {gateway} answers")


# ---- this host ---------------------------------------------------------------------------


def _up(member: str, bond: LinuxBond) -> list[str]:
    """Return `ip -batch` lines that bring up an interface, which was set down when it left the Linux bond."""
    return [f"link set {member} mtu {bond.mtu_bytes}", f"link set {member} up"]


def _wait_for_links(members: Sequence[str], bond: LinuxBond) -> None:
    for member in members:
        _wait(partial(_linked, member), f"{member} has no link in Open vSwitch", LINK_PATIENCE_S)
    if bond.mode == linux_bond.LACP:
        # Without an LACP partner, the bond falls back, and carries traffic as well.
        with contextlib.suppress(Refused):
            _wait(partial(_heard, members), "the bond has no LACP partner", LACP_PATIENCE_S)


def _linked(member: str) -> bool:
    columns = ("--columns=ofport,link_state", "--format=csv", "--no-headings")
    ofport, _, state = _vsctl(*columns, "list", "interface", member).strip().partition(",")
    return ofport.isdigit() and state == "up"


def _heard(members: Sequence[str]) -> bool:
    current = (_vsctl("get", "interface", member, "lacp_current") for member in members)
    return all(one.strip() == "true" for one in current)


def _has_carrier(device: str) -> bool:
    (link,) = json.loads(run("ip", "-json", "link", "show", "dev", device))
    return "LOWER_UP" in link["flags"]


def _members(port: str) -> list[str]:
    """Return the names of a port's interfaces; empty if the port does not exist."""
    text = _vsctl("--if-exists", "--bare", "get", "port", port, "interfaces").strip("[] \n")
    uuids = [one.strip() for one in text.split(",") if one.strip()]
    return [_vsctl("--bare", "get", "interface", one, "name").strip().strip('"') for one in uuids]


def _learned(bridge: str, uplink: str) -> list[bytes]:
    """Return frames that announce all addresses that NORMAL has learned on ports other than `uplink`."""
    shown = _asked("ovs-appctl", "fdb/show", bridge) or ""
    members = {_vsctl("get", "interface", m, "ofport").strip() for m in _members(uplink)}
    found = parse_forwarding(shown)
    return [frames.rarp(mac, vlan) for port, mac, vlan in found if str(port) not in members]


def _announce(device: str, host: Host) -> None:
    """Announce the host and its VMs on a device, so that upstream switches learn the new port of the addresses."""
    learned = _learned(host.bridge, host.bond.name) if host.bond.is_port else ()
    with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((device, ETH_P_ALL))
        for frame in (*host.announcements, *learned):
            wire.send(frame)


def _answers(address: str) -> bool:
    return _asked("ping", "-n", "-c", "1", "-W", "1", address) is not None


def _refuse_used(device: str, links: Links, why: str) -> None:
    own, vlans = _stack(device), linux_bond.vlans(device, links, _stack)
    if own.addresses or vlans:
        found = ", ".join([*own.addresses, *(vlan.name for vlan in vlans)])
        raise Refused(f"{device} has {found}; remove its addresses and VLANs, {why}")


def _links() -> Links:
    for tool in ("ip", "ovs-vsctl"):
        if shutil.which(tool) is None:
            raise Refused(f"{tool} is not installed, or not in PATH")
    shown = json.loads(run("ip", "-json", "-details", "link", "show"))
    return {link["ifname"]: link for link in shown}


def _stack(device: str) -> Stack:
    addresses = run("ip", "-json", "address", "show", "dev", device)
    shown = ("route", "show", "table", "all", "dev", device)
    return linux_bond.stack(addresses, run("ip", "-4", *shown), run("ip", "-6", *shown))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals, so that the migration continues if it interrupts the login session that started it."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _wait(condition: Callable[[], bool], found: str, patience_s: float) -> None:
    wait_until(condition, patience_s, CHECK_INTERVAL_S, f"{found} after {patience_s:g} s")


def _batch(lines: Sequence[str], *options: str) -> None:
    """Run commands of `ip` as one batch."""
    command, text = ("ip", *options, "-batch", "-"), "\n".join(lines) + "\n"
    named = f"{' '.join(command)} ({'; '.join(lines)})"
    run(*command, stdin=text, timeout_s=BATCH_TIMEOUT_S, named=named)


def _vsctl(*words: str) -> str:
    return run("ovs-vsctl", *words)


def _asked(*command: str) -> str | None:
    """Return the output of a command; None if the command fails."""
    try:
        return run(*command).strip()
    except Refused:
        return None
