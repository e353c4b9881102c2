"""The switch's ports: their numbers, and whether they are up."""

from __future__ import annotations

import warnings
from typing import Any

from controller.api.events import PortState
from controller.dataplane.tables import OFPP_LOCAL
from controller.openflow.framework import ofproto as ofp
from policies.model import OFPORT_LOCAL


def port_states(datapath: Any) -> tuple[PortState, ...]:
    """Return the ports that the handshake listed, with their changes since."""
    with warnings.catch_warnings():
        # The framework warns that the features reply of OpenFlow 1.3 lists no ports. But it keeps
        # the ports of the port description in the same attribute.
        warnings.simplefilter("ignore")
        return tuple(map(port_state, tuple(datapath.ports.values())))


def port_state(port: Any) -> PortState:
    """Return the state of a port.

    It is up if a fast failover group would use it: link, LACP, BFD and CFM are up.
    """
    down = bool(port.state & ofp.OFPPS_LINK_DOWN or port.config & ofp.OFPPC_PORT_DOWN)
    live = bool(port.state & ofp.OFPPS_LIVE)
    return PortState(
        ofport=ofport_of(port.port_no),
        name=port.name.decode(errors="replace"),
        up=live and not down,
        speed_bps=port.curr_speed * 1e3,
        silent=not (live or down),
    )


def ofport_of(port_no: int) -> int:
    """Return the ofport of an OpenFlow 1.3 port number; the inverse of `tables.openflow_port`."""
    return OFPORT_LOCAL if port_no == OFPP_LOCAL else int(port_no)
