"""What attach says about tunnel endpoints: which policy suits a host that sends its VMs in tunnels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from controller.config.endpoints import Endpoint
from controller.config.values import BridgeConfig, VmPortConfig
from controller.teaming.buckets import hashed_by
from controller.text.wording import quoted
from policies.presets import PRESETS

SEVERAL = "several tunnel endpoints, so that policies can place each"


def advice(config: BridgeConfig, endpoints: Mapping[str, Endpoint]) -> Iterator[str]:
    """What to do about the endpoints of a bridge, a sentence each; nothing if it has none.

    `endpoints`: those of this host, by device.
    """
    ports = [port for port in config.vm_ports if port.name in endpoints]
    if len(ports) > 1:
        names = ", ".join(sorted(port.name for port in ports))
        spread = sorted({port.policy for port in ports if _is_received_anywhere(port, config)})
        if spread:
            yield (
                f"tunnel endpoints {names}: {', '.join(spread)} spreads each, and what they receive may all"
                " come by one uplink -> policy=adaptive or load-based, which leave each whole"
            )
            return
        yield (
            f"tunnel endpoints {names}: each has an uplink of its own; ovs-lbt plan --endpoints says"
            " which VM should use which"
        )
    elif ports:
        (port,) = ports
        yield f"tunnel endpoint {port.name} ({endpoints[port.name]}): {_alone(port, config)}"


def _is_received_anywhere(port: VmPortConfig, config: BridgeConfig) -> bool:
    """Whether a policy always spreads it, so that peers decide by which uplink it receives."""
    answered = port.counted_by_flows and not config.on_a_lag
    return answered and hashed_by(port, ()) is not None


def _alone(port: VmPortConfig, config: BridgeConfig) -> str:
    """What the policy makes of the only endpoint, by which all VMs of the host send."""
    one = f"to {port.policy}, all tunnels are one VM port on one uplink"
    if not PRESETS[port.policy].spreads_connections:
        adaptive = f"ovs-lbt set interface {quoted(port.name)} policy=adaptive"
        return f"{one} -> {adaptive}, or {SEVERAL}"
    if port.unsplittable:
        return f"{one} -> {SEVERAL}"
    if config.in_userspace and config.connection_hash == "multipath":
        found = "the userspace datapath does not show multipath the source ports of tunnels"
        return f"{found} -> ovs-lbt set bridge {quoted(config.name)} connection-hash=dp_hash"
    return f"{port.policy} spreads its connections, which differ in their source ports"
