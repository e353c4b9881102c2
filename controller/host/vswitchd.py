"""Reads and clears the addresses that NORMAL has learned on a bridge."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator

from controller.api.events import ForwardingRead
from controller.host import faults
from controller.host.programs import Refused, on_switch
from policies.model import OFPORT_LOCAL

LOG = logging.getLogger(__name__)


def read_forwarding(
    bridge: str, submit: Callable[[ForwardingRead], None], beside_the_switch: bool = True
) -> None:
    """Read the addresses on a thread, and submit them."""

    def carry_out() -> ForwardingRead:
        if not beside_the_switch:
            raise Refused(faults.NOT_HERE)
        return ForwardingRead(bridge, tuple(parse_forwarding(_fdb("show", bridge))))

    failed = functools.partial(ForwardingRead, bridge, ())
    faults.answered("forwarding", f"forwarding {bridge}", carry_out, failed, submit)


def forget_forwarding(bridge: str) -> None:
    """Clear the addresses, on a thread."""
    name = f"forget forwarding {bridge}"
    faults.answered("forwarding", name, lambda: _fdb("flush", bridge), str, lambda _: None)


def _fdb(command: str, bridge: str) -> str:
    try:
        return on_switch("ovs-appctl", "-t", "ovs-vswitchd", f"fdb/{command}", bridge)
    except Refused as error:
        LOG.warning("%s", error)
        raise


def parse_forwarding(text: str) -> Iterator[tuple[int, str, int]]:
    """(ofport, MAC, VLAN) of each line of `fdb/show`: `port VLAN MAC age`."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) == 4:
            port, vlan, mac, _ = words
            yield OFPORT_LOCAL if port == "LOCAL" else int(port), mac, int(vlan)
