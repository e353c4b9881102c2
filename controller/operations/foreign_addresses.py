"""Addresses behind VM ports from which frames would be dropped, because they are not the VM's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import BridgeConfig
from controller.text.wording import quoted

KEY = PREFIX + "forged-transmits"
NAMED_AT_MOST = 3


def dropped(
    config: BridgeConfig, row: BridgeRow, known: Mapping[str, Sequence[tuple[str, int]]]
) -> Iterator[str]:
    """The VM ports that send from other addresses than their `attached-mac`, and what to do, a sentence each.

    `known`: the addresses that NORMAL has learned on each VM port, in any VLAN. A port for which the
    operator has decided is left out.
    """
    decided = {i.name for i in row.interfaces if KEY in i.external_ids}
    for port in config.vm_ports:
        others = sorted({mac for mac, _ in known.get(port.name, ())} - set(port.attached_macs))
        if port.forges or not others or port.name in decided:
            continue
        named = ", ".join(others[:NAMED_AT_MOST])
        more = f" and {len(others) - NAMED_AT_MOST} more" if len(others) > NAMED_AT_MOST else ""
        yield (
            f"{port.name} also sends from {named}{more}, which is not its attached-mac; these frames"
            f" would be dropped -> ovs-vsctl set interface {quoted(port.name)} external_ids:{KEY}=accept"
            " (or reject, to drop them)"
        )
