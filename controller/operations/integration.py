"""What attach says about integration bridges: OVN's own is refused, and a patch port leads to many VMs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.config.rows import PREFIX, BridgeRow, Ovn
from controller.config.values import BridgeConfig
from controller.text.wording import quoted
from policies.presets import PRESETS

UNIT = PREFIX + "unit"
BY_ADDRESS = "source-mac"


def refusal(row: BridgeRow, ovn: Ovn | None) -> str | None:
    """Why a bridge cannot be attached, if it is the one that ovn-controller writes flows to."""
    if ovn is None or row.name != ovn.bridge:
        return None
    others = [name for name in ovn.mapped if name != row.name]
    such_as = f": {', '.join(others)}" if others else ""
    found = "ovn-controller owns it, its flows and its ports"
    return f"bridge {row.name}: {found} -> the bridge that has the uplinks{such_as}"


def advice(config: BridgeConfig, rows: Mapping[str, BridgeRow]) -> Iterator[str]:
    """What to do about the patch ports of a bridge, a sentence each. `rows`: all bridges of the host.

    Nothing where the policy tells addresses apart anyway, and where rules keep a port together.
    """
    patches = {i.name: i for i in rows[config.name].interfaces if i.peer is not None}
    bridges = {i.name: row.name for row in rows.values() for i in row.interfaces}
    remedy = f"ovs-lbt set bridge {quoted(config.name)} patch-unit={BY_ADDRESS}"
    for port in config.vm_ports:
        interface = patches.get(port.name)
        if interface is None or PRESETS[port.policy].classifier.hashed:
            continue
        leads_to = bridges.get(interface.peer or "")
        towards = f" to {leads_to}" if leads_to else ""
        if not port.rules.unsplittable and port.unit != BY_ADDRESS:
            yield (
                f"patch port {port.name}{towards}: to {port.policy}, all VMs behind it are one VM port"
                f" on one uplink -> {remedy}, so that each address has its own"
            )
        elif UNIT in interface.external_ids and config.patch_unit != BY_ADDRESS:
            yield (
                f"patch port {port.name}{towards}: its unit={BY_ADDRESS} is lost when the port is"
                f" created again, as ovn-controller does -> {remedy}"
            )
