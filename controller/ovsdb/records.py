"""Converts rows of Open vSwitch's database to `BridgeRow` and other values, and checks the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ovs.db.error import Error
from ovs.db.schema import DbSchema

from controller.api.events import DatabaseRead
from controller.config.controllers import DIALED
from controller.config.guests import POD
from controller.config.membership import VIRTUAL_DRIVERS
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, MirrorRow, Ovn, PortRow, Tunnel
from controller.host import devices

# The most digits of a rate: as many as a 64-bit counter has.
MAX_DIGITS = 19
# The columns that are read. Changes of the column `statistics` would wake the service every 5 s.
COLUMNS = {
    "Open_vSwitch": "bridges cur_cfg next_cfg external_ids ovs_version other_config",
    "Bridge": """
        name ports fail_mode external_ids controller protocols datapath_id datapath_type stp_enable
        rstp_enable mcast_snooping_enable other_config flood_vlans flow_tables mirrors
    """,
    "Controller": "target connection_mode is_connected",
    # ovsdbapp indexes flow tables by name.
    "Flow_Table": "name flow_limit",
    "Port": """
        name interfaces tag trunks vlan_mode lacp qos protected status rstp_status bond_mode
        bond_active_slave bond_updelay bond_downdelay other_config external_ids
    """,
    "Interface": """
        name ofport link_speed mtu external_ids mac_in_use lacp_current bfd cfm_mpid type status options
        other_config
    """,
    "QoS": "other_config",
    "Mirror": "name output_port output_vlan",
}

# The types of columns, which are the same in all tables. All other columns contain strings.
KINDS = {
    "map": "external_ids other_config status rstp_status bfd options flow_tables",
    "uuid": "bridges ports interfaces controller mirrors qos output_port",
    "integer": """
        cur_cfg next_cfg flood_vlans flow_limit tag trunks bond_updelay bond_downdelay ofport link_speed
        mtu cfm_mpid output_vlan
    """,
    "boolean": "stp_enable rstp_enable mcast_snooping_enable protected lacp_current is_connected",
}
KIND_OF = {column: kind for kind, columns in KINDS.items() for column in columns.split()}
NOT_OURS = "this is not Open vSwitch's database"
UPGRADE = "upgrade Open vSwitch to 2.8 or later and restart it, which converts the database"

# The states in which RSTP and STP keep a port from forwarding.
BLOCKED = frozenset(("Discarding", "Learning", "listening", "learning", "blocking"))

# The keys that the service writes to Port records.
ON_PORTS = frozenset((PREFIX + "kept", PREFIX + "protected"))

# Tables with rows that any bridge may reference. They rarely change.
SHARED = ("Controller", "Flow_Table", "QoS", "Mirror")

# The types of tunnel interfaces.
TUNNELS = frozenset(
    ("geneve", "vxlan", "gre", "ip6gre", "stt", "lisp", "erspan", "ip6erspan", "gtpu", "srv6")
)

# With older kernels, representors of ConnectX cards have a separate driver.
REPRESENTOR_DRIVERS = ("mlx5e_rep",)


def lacking(schema: Any) -> str:
    """Return an error text if a schema (JSON) lacks a table or column that we read; else ""."""
    try:
        tables = DbSchema.from_json(schema).tables
    except Error:
        return NOT_OURS
    found = [f"table {name}" for name in COLUMNS if name not in tables]
    for name in (table for table in COLUMNS if table in tables):
        there = {column: _kind(of.type) for column, of in tables[name].columns.items()}
        wanted = ((column, KIND_OF.get(column, "string")) for column in COLUMNS[name].split())
        found += [f"column {name}.{c} ({kind})" for c, kind in wanted if there.get(c) != kind]
    return f"the database lacks {', '.join(found)}; {UPGRADE}" if found else ""


def _kind(column_type: Any) -> str:
    return "map" if column_type.is_map() else str(column_type.key.type.to_string())


# The `other_config` of table Open_vSwitch while the table has no row.
NO_CONFIG: Mapping[str, str] = MappingProxyType({})


class Bridges:
    """Reads the records of all bridges, and later only the records that have changed.

    `local`: the bridges are on this host, so the bridges' devices can be inspected.
    """

    def __init__(self, local: bool = False) -> None:
        self._local = local
        self._other_config = NO_CONFIG
        self._made: dict[Any, BridgeRow] = {}
        # For each bridge, the row IDs of ports and interfaces.
        self._parts: dict[Any, set[Any]] = {}

    def read_records(
        self,
        rows: Mapping[Any, Any],
        touched: set[tuple[str, Any]],
        other_config: Mapping[str, str] = NO_CONFIG,
    ) -> tuple[BridgeRow, ...]:
        """Return all bridges, sorted by name. `rows`: the rows of table Bridge, by ID.

        `touched`: (table, ID) of each changed row. `other_config`: the column of table Open_vSwitch.
        """
        if other_config != self._other_config:
            self._other_config, self._made = other_config, {}
        for gone in self._made.keys() - rows.keys():
            del self._made[gone], self._parts[gone]
        stale = rows.keys() - self._made.keys() | self._touched(touched)
        for uuid in stale & rows.keys():
            self._made[uuid] = _bridge(rows[uuid], self._other_config, self._local)
            parts = ((port, *port.interfaces) for port in rows[uuid].ports)
            self._parts[uuid] = {part.uuid for one in parts for part in one}
        return tuple(sorted(self._made.values(), key=lambda bridge: bridge.name))

    def _touched(self, touched: set[tuple[str, Any]]) -> set[Any]:
        if any(table in SHARED for table, _ in touched):
            return set(self._made)
        uuids = {uuid for table, uuid in touched if table != "Open_vSwitch"}
        owners = {bridge for bridge, parts in self._parts.items() if not parts.isdisjoint(uuids)}
        return uuids | owners


def root(rows: Iterable[Any]) -> tuple[Mapping[str, str], DatabaseRead]:
    """Return `other_config`, and the other values that we read in the row of table Open_vSwitch."""
    row = next(iter(rows), None)
    if row is None:
        return NO_CONFIG, DatabaseRead(())
    return dict(row.other_config), DatabaseRead(
        (),
        row.external_ids.get(PREFIX + "leader"),
        _first(row.ovs_version),
        _ovn(row.external_ids),
        row.external_ids.get(PREFIX + "key-loss-grace-s"),
    )


def _is_true(record: Mapping[str, str], key: str) -> bool:
    """Whether a key is set to true. As in ovs-vswitchd, case is ignored, and other values are false."""
    return record.get(key, "").lower() == "true"


def _bridge(
    row: Any, other_config: Mapping[str, str] = NO_CONFIG, local: bool = False
) -> BridgeRow:
    hw_offload = _is_true(other_config, "hw-offload")
    ports = (_port(port, local, hw_offload) for port in row.ports)
    active = [one for one in row.controller if one.target.startswith(DIALED)]
    return BridgeRow(
        name=row.name,
        ports=tuple(sorted(ports, key=lambda port: port.name)),
        fail_mode=_first(row.fail_mode),
        external_ids=dict(row.external_ids),
        stp_enable=row.stp_enable,
        rstp_enable=row.rstp_enable,
        mcast_snooping_enable=row.mcast_snooping_enable,
        other_config=dict(row.other_config),
        flood_vlans=tuple(sorted(row.flood_vlans)),
        flow_tables=tuple(sorted(n for n, of in row.flow_tables.items() if of.flow_limit)),
        mirrors=tuple(sorted(map(_mirror, row.mirrors), key=lambda mirror: mirror.name)),
        controllers=tuple(sorted(controller.target for controller in row.controller)),
        in_band=not _is_true(row.other_config, "disable-in-band")
        and any(_first(one.connection_mode) != "out-of-band" for one in active),
        unanswered=bool(active) and not any(one.is_connected for one in active),
        protocols=tuple(sorted(row.protocols)),
        datapath_id=_first(row.datapath_id),
        in_userspace=row.datapath_type == "netdev",
        hw_offload=hw_offload,
        tc_policy=other_config.get("tc-policy", "none"),
        restores_flows=_is_true(other_config, "flow-restore-wait"),
        misplaced=tuple(_misplaced(row)),
    )


def _misplaced(row: Any) -> Iterator[tuple[str, str, str]]:
    """Return our keys in columns that are not read, without the keys that the service writes to ports."""
    records: list[tuple[str, Any, tuple[str, ...]]] = [("Bridge", row, ("other_config",))]
    for port in row.ports:
        records.append(("Port", port, ("external_ids", "other_config")))
        records += [("Interface", interface, ("other_config",)) for interface in port.interfaces]
    for table, record, columns in records:
        for column in columns:
            ours = (key for key in getattr(record, column) if key.startswith(PREFIX))
            for key in sorted(key for key in ours if key not in ON_PORTS):
                yield f"{table} {record.name}", column, key


def _mirror(row: Any) -> MirrorRow:
    port = _first(row.output_port)
    return MirrorRow(row.name, port and port.name, _first(row.output_vlan))


def _port(row: Any, local: bool = False, hw_offload: bool = False) -> PortRow:
    qos = _first(row.qos)
    max_rate_bps = qos.other_config.get("max-rate", "") if qos else ""
    is_rate = max_rate_bps.isascii() and max_rate_bps.isdigit() and len(max_rate_bps) <= MAX_DIGITS
    # Only one member of an active-backup bond, which is the default mode, carries traffic.
    backs_up = len(row.interfaces) > 1 and _first(row.bond_mode) in (None, "active-backup")
    interfaces = (_interface(interface, local, hw_offload) for interface in row.interfaces)
    if pod := row.external_ids.get(POD):
        interfaces = (replace(i, external_ids={POD: pod, **i.external_ids}) for i in interfaces)
    return PortRow(
        name=row.name,
        interfaces=tuple(sorted(interfaces, key=lambda i: i.name)),
        tag=_first(row.tag),
        lacp=_first(row.lacp),
        bond_mode="active-backup" if backs_up else _first(row.bond_mode),
        qos_max_rate_bps=float(max_rate_bps) if is_rate else None,
        vlan_mode=_first(row.vlan_mode),
        trunks=tuple(sorted(row.trunks)),
        protected=row.protected,
        # Without spanning tree, both states are missing.
        blocked=not BLOCKED.isdisjoint(
            (row.rstp_status.get("rstp_port_state"), row.status.get("stp_state"))
        ),
        active_mac=_first(row.bond_active_slave) if backs_up else None,
        bond_updelay=row.bond_updelay,
        bond_downdelay=row.bond_downdelay,
        other_config=dict(row.other_config),
        external_ids=dict(row.external_ids),
    )


def _interface(row: Any, local: bool = False, hw_offload: bool = False) -> InterfaceRow:
    link_speed = _first(row.link_speed)
    driver = row.status.get("driver_name")
    # Devices are queried only if hardware offload is on.
    may_offload = local and hw_offload and row.type in ("", "system")
    return InterfaceRow(
        name=row.name,
        ofport=_first(row.ofport),
        link_speed_bps=float(link_speed) if link_speed else None,
        external_ids=dict(row.external_ids),
        uuid=str(row.uuid),
        mac=_first(row.mac_in_use),
        lacp_current=_first(row.lacp_current),
        bfd=_is_true(row.bfd, "enable"),
        cfm=bool(row.cfm_mpid),
        kind=row.type,
        driver=driver,
        represents=_represents(row, local),
        offloads=devices.offloads(row.name, driver) if may_offload else None,
        mtu=_first(row.mtu),
        tunnel=_tunnel(row),
        peer=row.options.get("peer") if row.type == "patch" else None,
    )


def _tunnel(row: Any) -> Tunnel | None:
    if row.type not in TUNNELS:
        return None
    own, remote = (row.options.get(key) for key in ("local_ip", "remote_ip"))
    return Tunnel(own, row.status.get("tunnel_egress_iface"), remote)


def _ovn(external_ids: Mapping[str, str]) -> Ovn | None:
    """Return ovn-controller's tunnel addresses and bridges; None if OVN is not configured on this host.

    Keys such as `ovn-encap-ip-HOST` are for several ovn-controllers on one host.
    """
    addresses, kinds = (_listed(external_ids, f"ovn-encap-{what}") for what in ("ip", "type"))
    bridge = external_ids.get("ovn-bridge", "br-int")
    pairs = (pair.partition(":") for pair in _listed(external_ids, "ovn-bridge-mappings"))
    mapped = tuple(sorted({name for _, _, name in pairs if name}))
    return Ovn(addresses, kinds, bridge, mapped) if addresses and kinds else None


def _listed(external_ids: Mapping[str, str], key: str) -> tuple[str, ...]:
    values = (v for k, v in external_ids.items() if k == key or k.startswith(f"{key}-"))
    return tuple(sorted({one.strip() for value in values for one in value.split(",")} - {""}))


def _represents(row: Any, local: bool) -> bool:
    """Whether an interface is a representor, according to the DPDK options, device or driver."""
    if row.type == "dpdk":
        return "representor=" in row.options.get("dpdk-devargs", "")
    driver = row.status.get("driver_name")
    if row.type not in ("", "system") or driver is None or driver in VIRTUAL_DRIVERS:
        return False
    found = devices.is_representor(row.name) if local else None
    return driver in REPRESENTOR_DRIVERS if found is None else found


def _first(optional: Any) -> Any:
    """Return the value of an optional column, which the replica stores as a list; None if empty."""
    return optional[0] if optional else None
