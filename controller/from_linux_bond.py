"""`ovs-lbt attach --from-bond` and `detach --to-bond`: a bond of Linux becomes one of Open vSwitch, and back.

One member after another changes sides while the other carries the host's traffic. Addresses, routes
and VLANs follow in between, at once. If a step fails, everything goes back.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from controller.dataplane import frames
from controller.host.forwarding import parse_forwarding
from controller.host.programs import wait_until
from controller.operations import linux_bond
from controller.operations.linux_bond import RECORD, Host, Links, LinuxBond, Stack, Vlan
from controller.text.wording import Refused, quoted

COMMAND_TIMEOUT_S = 10
# A card may negotiate its speed anew when it has been down.
LINK_PATIENCE_S = 15.0
# A partner of LACP with slow timeouts may take so long.
LACP_PATIENCE_S = 40.0
CHECK_INTERVAL_S = 0.1
# How long the switches upstream may take until they send by the other member.
GATEWAY_PATIENCE_S = 15.0
ETH_P_ALL = 3
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


def survey(bridge: str, name: str) -> Host:
    """What would move to the bridge. Changes nothing.

    Raises:
        Refused: it cannot, or a tool is missing.
    """
    links = _links()
    has_it = _asked("ovs-vsctl", "port-to-br", name)
    bond = linux_bond.read(name, links, bridge, has_it)
    exists = _asked("ovs-vsctl", "br-exists", bridge) is not None
    if exists and is_attached(bridge):
        detach = f"ovs-lbt detach {quoted(bridge)}"
        raise Refused(f"bridge {bridge}: attached -> a bridge that is not: {detach}")
    if not exists and bridge in links:
        raise Refused(f"bridge {bridge}: another device has this name -> another name")
    at = bridge if bond.is_port else name
    own, vlans = _stack(at), linux_bond.vlans(at, links, _stack)
    if bond.is_port:
        _refuse_used(name, links, "the bond is a port of the bridge")
    elif exists:
        _refuse_used(bridge, links, "the bond has some, too")
        # One that may lead to the network already would be a loop with the bond.
        for port in _vsctl("list-ports", bridge).split():
            if len(_members(port)) > 1:
                raise Refused(f"bridge {bridge}: has bond {port} -> a bridge without uplinks")
    return Host(bond, bridge, own, vlans, _answering(own, vlans), not exists)


def survey_back(bridge: str, name: str) -> Host:
    """What would move from the bridge to the bond of Linux that the port replaces. Changes nothing.

    Raises:
        Refused: it replaces none, or a tool is missing.
    """
    links = _links()
    text = _asked("ovs-vsctl", "--if-exists", "get", "port", name, f"external_ids:{RECORD}")
    if not text or _asked("ovs-vsctl", "port-to-br", name) != bridge:
        expected = "a bond that attach --from-bond has moved"
        raise Refused(f"bridge {bridge}: no bond {name} that replaces one of Linux -> {expected}")
    # ovs-vsctl quotes what is more than a word.
    record = json.loads(text) if text.startswith('"') else text
    bond, made_bridge = linux_bond.recorded(record)
    if name in links:
        raise Refused(f"{name}: a device of this name exists -> none: the bond is made anew")
    own, vlans = _stack(bridge), linux_bond.vlans(bridge, links, _stack)
    return Host(bond, bridge, own, vlans, _answering(own, vlans), made_bridge)


def move(host: Host, say: Callable[[str], None]) -> None:
    """Make the bond one of Open vSwitch. If a step fails, everything goes back first.

    Raises:
        Refused: it failed, and what is so now.
    """
    with _undisturbed():
        try:
            _forward(host, say)
        except Refused as why:
            say(f"failed: {why}; going back")
            try:
                _back(host, say)
            except Refused as worse:
                raise Refused(f"{why}; going back failed, too: {worse}") from None
            raise Refused(f"{why}; everything is as before") from None


def move_back(host: Host, say: Callable[[str], None]) -> None:
    """Make the bond one of Linux again.

    Raises:
        Refused: a step failed, and the rest was not done.
    """
    with _undisturbed():
        _back(host, say)
        _check(host, say)


def is_attached(bridge: str) -> bool:
    """Whether ovs-lbt manages a bridge."""
    policy = "external_ids:ovs-lbt-policy"
    return bool(_vsctl("--if-exists", "get", "bridge", bridge, policy).strip())


def ended(command: Sequence[str]) -> int:
    """Run a command as a process of its own, and return its status.

    A detach without the service ends the process that it runs in.
    """
    return subprocess.run(command, start_new_session=True).returncode


def _forward(host: Host, say: Callable[[str], None]) -> None:
    bond, bridge = host.bond, host.bridge
    *first, last = bond.members
    for member in first:
        say(f"{member}: leaves the bond of Linux")
        _batch([f"link set {member} nomaster", *_up(member, bond)])
    say(f"{bridge}: takes {', '.join(first)}")
    _vsctl(*_made(host, first))
    _wait_for_links(first, bond)
    if not host.bond.is_port:
        _cut(bond.name, bridge, host)
    announced = [*host.announcements, *(_learned(bridge, bond.name) if host.bond.is_port else ())]
    _announce(first[0], announced)
    say(f"{bridge}: carries the host's traffic; {last} follows")
    _batch([f"link del {bond.name}", *_up(last, bond)])
    added = ("--", "add", "port", bond.name, "interfaces", "@i")
    _vsctl("--", "--id=@i", "create", "interface", f"name={last}", *added)
    _wait_for_links([last], bond)
    _announce(first[0], announced)
    _check(host, say)


def _back(host: Host, say: Callable[[str], None]) -> None:
    """From wherever it stands: each step looks whether it is needed."""
    bond, bridge = host.bond, host.bridge
    *first, last = bond.members
    if bond.name not in _links():
        _make_anew(bond, say)
    for member in first:
        _to_linux(member, host, say)
    _batch([f"link set {bond.name} up"])
    _wait(lambda: _has_carrier(bond.name), f"{bond.name}: no link", LINK_PATIENCE_S)
    if host.bond.is_port:
        if _members(bond.name) != [bond.name]:
            words = ("--", "--id=@i", "create", "interface", f"name={bond.name}")
            _vsctl(*words, "--", "set", "port", bond.name, "interfaces=@i", *_as_before(bond))
        _announce(bond.name, [*host.announcements, *_learned(bridge, bond.name)])
    elif host.cut or not _is_on(bond.name, host):
        _cut(bridge, bond.name, host)
    if not host.bond.is_port:
        _announce(bond.name, host.announcements)
        _drop_port(host)
    _to_linux(last, host, say)
    if primary := bond.primary:
        _batch([f"link set {bond.name} type bond primary {primary}"])


def _make_anew(bond: LinuxBond, say: Callable[[str], None]) -> None:
    """Make the bond of Linux, if need be without options that this kernel does not take with its mode."""
    try:
        _batch(linux_bond.made_anew(bond, bond.options))
    except Refused as why:
        say(f"{why}; made with its essential options only")
        _batch(linux_bond.made_anew(bond, linux_bond.essential(bond)))


def _to_linux(member: str, host: Host, say: Callable[[str], None]) -> None:
    """Make an interface a member of the bond of Linux, unless it is one."""
    bond = host.bond
    if _links().get(member, {}).get("master") == bond.name:
        return
    say(f"{member}: joins the bond of Linux")
    there = _members(bond.name)
    if member in there and len(there) > 1:
        got = ("--", "--id=@i", "get", "interface", member)
        _vsctl(*got, "--", "remove", "port", bond.name, "interfaces", "@i")
    elif member in there and not host.bond.is_port:
        _vsctl("del-port", host.bridge, bond.name)
    _batch([f"link set {member} down", f"link set {member} master {bond.name}"])
    _batch([f"link set {member} up"])


def _drop_port(host: Host) -> None:
    """Remove the bond from the bridge, and the bridge, if it was made for it and has no other port."""
    if _asked("ovs-vsctl", "port-to-br", host.bond.name) is not None:
        _vsctl("del-port", host.bridge, host.bond.name)
    if _asked("ovs-vsctl", "br-exists", host.bridge) is None:
        return
    if host.makes_bridge and not _vsctl("list-ports", host.bridge).split():
        _vsctl("del-br", host.bridge)
    else:
        _vsctl("remove", "bridge", host.bridge, "other_config", "hwaddr")


def _made(host: Host, first: Sequence[str]) -> list[str]:
    """`ovs-vsctl`: the bond's port with its first members."""
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
    """`ovs-vsctl`: what the port of a bond of Linux had before."""
    words = ["bond_mode=[]", "lacp=[]", "bond_updelay=0", "bond_downdelay=0"]
    keys = [s.partition(":")[2].partition("=")[0] for s in bond.settings if ":" in s]
    words += ["--", "remove", "port", bond.name, "external_ids", RECORD]
    for key in keys:
        words += ["--", "remove", "port", bond.name, "other_config", key]
    return words


def _cut(old: str, new: str, host: Host) -> None:
    """Let the host's addresses, routes and VLANs change sides, in a few milliseconds."""
    host.cut, links = True, _links()
    there = [vlan for vlan in host.vlans if vlan.name in links]
    down = linux_bond.taken_down(old, there)
    _batch([*down, *linux_bond.set_up(new, host.own, host.vlans)])
    if lines := linux_bond.routes6(new, host.own, host.vlans):
        _batch(lines, "-6")


def _is_on(device: str, host: Host) -> bool:
    """Whether the host's addresses and VLANs are on a device already. Their lifetimes go on."""

    def of(stack: Stack) -> set[str]:
        return {address.partition(" ")[0] for address in stack.addresses}

    wanted = {vlan.name for vlan in host.vlans}
    there = set(linux_bond.vlan_names(device, _links()))
    return of(_stack(device)) >= of(host.own) and there >= wanted


def _check(host: Host, say: Callable[[str], None]) -> None:
    """Wait until the gateways that have answered before answer again."""
    for gateway in host.answering:
        late = f"gateway {gateway}: no answer any more"
        _wait(partial(_answers, gateway), late, GATEWAY_PATIENCE_S)
        say(f"gateway {gateway}: answers")


# ---- this host ---------------------------------------------------------------------------


def _up(member: str, bond: LinuxBond) -> list[str]:
    """`ip -batch`: an interface that has left the bond of Linux, which took it down."""
    return [f"link set {member} mtu {bond.mtu_bytes}", f"link set {member} up"]


def _wait_for_links(members: Sequence[str], bond: LinuxBond) -> None:
    for member in members:
        _wait(partial(_linked, member), f"{member}: no link in Open vSwitch", LINK_PATIENCE_S)
    if bond.mode == linux_bond.LACP:
        # Without a partner that answers, the bond falls back, and carries traffic, too.
        with contextlib.suppress(Refused):
            _wait(lambda: all(map(_heard, members)), "LACP: no partner", LACP_PATIENCE_S)


def _linked(member: str) -> bool:
    columns = ("--columns=ofport,link_state", "--format=csv", "--no-headings")
    ofport, _, state = _vsctl(*columns, "list", "interface", member).strip().partition(",")
    return ofport.isdigit() and state == "up"


def _heard(member: str) -> bool:
    return _vsctl("get", "interface", member, "lacp_current").strip() == "true"


def _has_carrier(device: str) -> bool:
    (link,) = json.loads(_run("ip", "-json", "link", "show", "dev", device))
    return "LOWER_UP" in link["flags"]


def _members(port: str) -> list[str]:
    """The interfaces of a port, by name; none if there is no such port."""
    text = _vsctl("--if-exists", "--bare", "get", "port", port, "interfaces").strip("[] \n")
    uuids = [one.strip() for one in text.split(",") if one.strip()]
    return [_vsctl("--bare", "get", "interface", one, "name").strip().strip('"') for one in uuids]


def _learned(bridge: str, uplink: str) -> list[bytes]:
    """Announcements of the addresses that NORMAL has learned on the bridge's other ports."""
    shown = _asked("ovs-appctl", "fdb/show", bridge) or ""
    members = {_vsctl("get", "interface", m, "ofport").strip() for m in _members(uplink)}
    found = parse_forwarding(shown)
    return [frames.rarp(mac, vlan) for port, mac, vlan in found if str(port) not in members]


def _announce(device: str, announcements: Sequence[bytes]) -> None:
    """Let switches upstream learn by a device where addresses are now."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((device, ETH_P_ALL))
        for frame in announcements:
            wire.send(frame)


def _answering(own: Stack, vlans: Sequence[Vlan]) -> tuple[str, ...]:
    routes = [*own.routes, *(route for vlan in vlans for route in vlan.stack.routes)]
    gateways = dict.fromkeys(w[w.index("via") + 1] for r in routes if "via" in (w := r.split()))
    return tuple(gateway for gateway in gateways if _answers(gateway))


def _answers(address: str) -> bool:
    return _asked("ping", "-n", "-c", "1", "-W", "1", address) is not None


def _refuse_used(device: str, links: Links, why: str) -> None:
    own, vlans = _stack(device), linux_bond.vlans(device, links, _stack)
    if own.addresses or vlans:
        found = ", ".join([*own.addresses, *(vlan.name for vlan in vlans)])
        raise Refused(f"{device}: {found} -> no addresses and VLANs on it: {why}")


def _links() -> Links:
    for tool in ("ip", "ovs-vsctl"):
        if shutil.which(tool) is None:
            raise Refused(f"{tool}: not installed -> {tool} in PATH")
    shown = json.loads(_run("ip", "-json", "-details", "link", "show"))
    return {link["ifname"]: link for link in shown}


def _stack(device: str) -> Stack:
    addresses = _run("ip", "-json", "address", "show", "dev", device)
    shown = ("route", "show", "table", "all", "dev", device)
    return linux_bond.stack(addresses, _run("ip", "-4", *shown), _run("ip", "-6", *shown))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """The terminal may be a connection over this very bond: its end must not end this."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _wait(condition: Callable[[], bool], found: str, patience_s: float) -> None:
    wait_until(condition, patience_s, CHECK_INTERVAL_S, f"{found} -> within {patience_s:g} s")


def _batch(lines: Sequence[str], *options: str) -> None:
    """Run lines of `ip`, in one go."""
    _run("ip", *options, "-batch", "-", stdin="\n".join(lines) + "\n")


def _vsctl(*words: str) -> str:
    return _run("ovs-vsctl", f"--timeout={COMMAND_TIMEOUT_S}", *words)


def _asked(*command: str) -> str | None:
    """What a command says; None if it fails."""
    try:
        return _run(*command).strip()
    except Refused:
        return None


def _run(*command: str, stdin: str = "") -> str:
    """Run a command and return what it says.

    Raises:
        Refused: it failed.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=4 * COMMAND_TIMEOUT_S,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{' '.join(command[:3])}: {error} -> a command that ends") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        lines = f" ({'; '.join(stdin.splitlines())})" if stdin else ""
        raise Refused(f"{' '.join(command)}{lines}: {said[0]} -> a command that succeeds")
    return done.stdout
