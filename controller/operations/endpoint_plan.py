"""Plans the tunnel endpoint of each VM on an overlay host: the answer of `plan --endpoints`.

The service reads only attached bridges, and integration bridges cannot be attached. So the command
reads Open vSwitch's database itself, twice, and writes nothing (`controller/cli/without_service.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.api.history import fields
from controller.api.status import BITS_PER_BYTE
from controller.config.guests import VmNames
from controller.config.marks import local_address
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow, Endpoint, InterfaceRow, Ovn
from controller.text.drawing import Column, Look, table_text
from controller.text.show_view import RATES, JsonObject
from controller.text.wording import Refused, lines_of, quoted
from policies import endpoints as policy
from policies.endpoints import Vm
from policies.model import Load

# The default interval at which ovs-vswitchd writes statistics to the database. If the time between
# two readings is a multiple of this interval, the number of updates is always the same.
UPDATE_INTERVAL_S = 5.0
UPDATES = 2
MS_PER_S = 1000
STATISTICS = "name,statistics"
INTERVAL = "other_config:stats-update-interval"
ENCAP_IP = "encap-ip"
PLANNED = (Column("planned TX", right=True), Column("planned RX", right=True))
ENDPOINTS = (Column("ENDPOINT"), Column("PORT"), *RATES, *PLANNED)
CHANGES = (Column("PORT"), Column("USED-BY"), Column("FROM"), Column("TO"), *RATES)
OVERLAY_HOSTS = "docs/overlay.md"
NOT_OVN = (
    "These tunnels do not belong to OVN: flows on {} select a tunnel for each VM. The program that"
    " writes these flows must use the tunnels with the local_ip in column TO for the VMs' frames."
)
OWNER = "ovs-lbt has changed nothing, because these settings belong to {}."
BY_RECEIVER = (
    "Only received traffic was placed: with these tunnels, a VM's sent traffic uses the endpoint"
    " in the network of the receiver's endpoint."
)
# The bytes that each interface received and sent, as counted by Open vSwitch: a VM's port receives
# the traffic that the VM sends.
Counters = Mapping[str, tuple[int, int]]


def measured_for_s(asked: str) -> float:
    """Return how long to measure loads. `asked`: ovs-vsctl's output for stats-update-interval."""
    digits = asked.strip().strip('"')
    is_number = digits.isascii() and digits.isdigit()
    return UPDATES * max(UPDATE_INTERVAL_S, int(digits) / MS_PER_S if is_number else 0.0)


def counters_of(listed: str) -> Counters:
    """Return the counters in the output of ovs-vsctl for the columns `STATISTICS`."""
    rows = ((name, dict(statistics)) for name, (_, statistics) in json.loads(listed)["data"])
    return {name: (int(of.get("rx_bytes", 0)), int(of.get("tx_bytes", 0))) for name, of in rows}


@dataclass(frozen=True, slots=True)
class Place:
    """A tunnel endpoint that VMs can use: its address, and the port that has this address."""

    address: str
    port: str
    capacity_bps: float | None
    tunnels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vif:
    """A VM's interface on an integration bridge."""

    port: str
    vm: str
    # The address of the tunnel endpoint that the VM uses now; None if unknown.
    address: str | None


@dataclass(frozen=True, slots=True)
class Host:
    """The tunnel endpoints that VMs of this host can use, and these VMs."""

    bridges: tuple[str, ...]
    places: tuple[Place, ...]
    vifs: tuple[Vif, ...]
    is_ovn: bool
    # Whether OVN's tunnels use the endpoint with a route to the receiver, not the sender's endpoint.
    by_receiver: bool = False

    def placed(self, load: Load) -> Load:
        """Return the part of a VM's load that passes through the VM's endpoint."""
        return replace(load, tx_bps=0.0) if self.by_receiver else load


def survey(rows: Sequence[BridgeRow], ovn: Ovn | None, endpoints: Mapping[str, Endpoint]) -> Host:
    """Return the tunnel endpoints and VMs that are found in a host's records.

    Raises:
        Refused: there are fewer than two endpoints, or no VMs.
    """
    found = dict(sorted(endpoints.items()))
    bridges = tuple(sorted({name for endpoint in found.values() for name in endpoint.bridges}))
    wanted = None if ovn is None else {local_address(text) for text in ovn.addresses}
    interfaces = [i for row in rows if row.name in bridges for i in row.interfaces]
    places = []
    for device, endpoint in found.items():
        usable = [a for a in endpoint.addresses if wanted is None or a in wanted]
        # Several addresses of a port use the same uplink, so they count as one endpoint.
        if usable:
            tunnels = tuple(i.name for i in interfaces if _is_from(i, usable, device))
            places.append(Place(usable[0], device, _capacity_bps(device, rows, found), tunnels))
    if len(places) < 2:
        listed = ", ".join(f"{place.address} on {place.port}" for place in places) or "none"
        raise Refused(f"tunnel endpoints: {listed}; expected two or more, see {OVERLAY_HOSTS}")
    addresses = {place.address for place in places}
    vifs = []
    for interface in (i for i in interfaces if i.tunnel is None):
        if (vm := VmNames.of(interface).vm) is not None:
            asked = local_address(interface.external_ids.get(ENCAP_IP, ""))
            vifs.append(Vif(interface.name, vm, asked if asked in addresses else None))
    if not vifs:
        expected = "expected interfaces with iface-id, vm-id or vm-uuid in external_ids"
        raise Refused(f"no VM was found on {', '.join(bridges)}; {expected}")
    vifs.sort(key=lambda vif: vif.port)
    by_receiver = ovn is not None and _goes_by_receiver(rows, bridges)
    return Host(bridges, tuple(places), tuple(vifs), ovn is not None, by_receiver)


def answer(host: Host, before: Counters, after: Counters, measured_s: float) -> JsonObject:
    """Plan endpoints from all interfaces' counters at the start and the end of `measured_s` seconds.

    Return the plan as documented in docs/reference/json.md; rates in bit/s.
    """
    assert measured_s > 0.0, "a rate needs a duration"

    def load(names: Iterable[str], from_network: bool = False) -> Load:
        """Return the VM traffic through these ports. `from_network`: the ports are tunnels, not VM ports."""
        known = [(before[name], after[name]) for name in names if name in before and name in after]
        grown = (sum(max(0, then[at] - now[at]) for now, then in known) for at in (0, 1))
        received, sent = (count * BITS_PER_BYTE / measured_s for count in grown)
        return Load(sent, received) if from_network else Load(received, sent)

    loads = {vif.port: load([vif.port]) for vif in host.vifs}
    placed = {port: host.placed(of) for port, of in loads.items()}
    total = sum(placed.values(), Load())
    even_bps = max(total.tx_bps, total.rx_bps, 1.0) / len(host.places)
    known = all(place.capacity_bps is not None for place in host.places)
    capacities = {
        p.address: (p.capacity_bps or even_bps) if known else even_bps for p in host.places
    }
    vms = [Vm(vif.port, placed[vif.port], vif.address) for vif in host.vifs]
    chosen = policy.assign(vms, capacities)
    planned = {place.address: Load() for place in host.places}
    assert planned.keys() >= set(chosen.values()), "only endpoints of the host are planned"
    for port, address in chosen.items():
        planned[address] += placed[port]
    return {
        "bridges": list(host.bridges),
        "measured_s": measured_s,
        "endpoints": [
            {
                **fields(place, "address", "port", "capacity_bps"),
                # The current load of its tunnels, if they have a local address.
                **(_rates(load(place.tunnels, True)) if place.tunnels else {}),
                **_rates(planned[place.address], "planned_", host.by_receiver),
            }
            for place in host.places
        ],
        "vms": [
            {
                **fields(vif, "port", "vm"),
                "endpoint": vif.address,
                "planned_endpoint": chosen[vif.port],
                **_rates(loads[vif.port]),
            }
            for vif in host.vifs
        ],
        "commands": [
            _command(vif.port, chosen[vif.port])
            for vif in host.vifs
            if host.is_ovn and chosen[vif.port] != vif.address
        ],
    }


def _command(port: str, address: str) -> str:
    """Return the command with which an OVN operator changes the endpoint of a VM."""
    # ovs-vsctl accepts colons only in quotes.
    value = f'"{address}"' if ":" in address else address
    return f"ovs-vsctl set interface {quoted(port)} external_ids:{ENCAP_IP}={quoted(value)}"


def as_text(host: Host, shown: JsonObject) -> str:
    """Return tables of endpoints and of VMs to reassign, and the commands that reassign VMs."""
    changes = [one for one in shown["vms"] if one["planned_endpoint"] != one["endpoint"]]
    names, count = ", ".join(host.bridges), len(host.vifs)
    what = f"{len(changes)} of {count} VMs should use another tunnel endpoint"
    if not changes:
        what = f"all {count} VMs can keep their tunnel endpoints"
    lines = [f"{names}: {what}; measured for {shown['measured_s']:.0f} s", ""]
    rows = [
        (one["address"], one["port"], *_mbps(one), *_mbps(one, "planned_"))
        for one in shown["endpoints"]
    ]
    lines += table_text(ENDPOINTS, rows, Look())
    if changes:
        rows = []
        for one in changes:
            vm = "-" if one["vm"] == one["port"] else one["vm"]
            way = one["endpoint"] or "-", one["planned_endpoint"]
            rows.append((one["port"], vm, *way, *_mbps(one)))
        lines += ["", *table_text(CHANGES, rows, Look()), ""]
        lines += [f"  {one}" for one in shown["commands"] or [NOT_OVN.format(names)]]
        owner = "OVN's operator" if host.is_ovn else f"the program that writes the flows on {names}"
        lines += ["", f"  {OWNER.format(owner)}"]
    if host.by_receiver:
        lines += ["", f"  {BY_RECEIVER}"]
    return lines_of(lines)


def _goes_by_receiver(rows: Sequence[BridgeRow], bridges: Sequence[str]) -> bool:
    """Whether a tunnel has no local endpoint configured, or the switch ignores the local endpoint.

    OVN before 24.03 does not set `local_ip`. Route lookups in the userspace datapath ignore it.
    """
    return any(
        row.in_userspace or (interface.tunnel is not None and interface.tunnel.local_ip is None)
        for row in rows
        if row.name in bridges
        for interface in row.interfaces
    )


def _is_from(interface: InterfaceRow, addresses: Sequence[str], device: str) -> bool:
    """Whether `interface` is a tunnel of the endpoint with these addresses on this device."""
    tunnel = interface.tunnel
    if tunnel is None:
        return False
    own = local_address(tunnel.local_ip or "")
    return own in addresses if own is not None else tunnel.device == device


def _capacity_bps(
    device: str, rows: Sequence[BridgeRow], endpoints: Mapping[str, Endpoint]
) -> float | None:
    """Return an endpoint's capacity on an attached bridge: one uplink's, or less if endpoints share it."""
    for row in rows:
        names = {interface.name for interface in row.interfaces}
        if device in names and row.attached:
            uplinks = read_bridge(row).uplinks
            speeds = [uplink.capacity_bps or uplink.link_speed_bps for uplink in uplinks]
            known_bps = [speed for speed in speeds if speed]
            if not known_bps or len(known_bps) < len(speeds):
                return None
            sharing = max(len(known_bps), sum(name in names for name in endpoints))
            return sum(known_bps) / sharing
    return None


def _rates(load: Load, prefix: str = "", received_only: bool = False) -> dict[str, float]:
    received = {f"{prefix}rx_bps": load.rx_bps}
    return received if received_only else {f"{prefix}tx_bps": load.tx_bps, **received}


def _mbps(shown: Mapping[str, Any], prefix: str = "") -> list[str]:
    rates = (shown.get(f"{prefix}{name}") for name in ("tx_bps", "rx_bps"))
    return ["-" if rate is None else f"{rate / 1e6:.2f}" for rate in rates]
