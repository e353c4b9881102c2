"""Where the switch would send a frame: `ofproto/trace`, read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from tests.switch.appctl import Appctl
from topologies.network.private_ovs import PrivateOvs

_PORT_LINE = re.compile(r"^\s+(\S+) \d+/(\d+): ")
_PRESENT = 0x1000
_DATAPATH_ACTIONS = re.compile(r"^Datapath actions: (.*)$", re.MULTILINE)


def datapath_ports(ovs: PrivateOvs) -> dict[int, str]:
    """The interface of each datapath port number."""
    with contextlib.closing(Appctl(ovs)) as switch:
        return _ports(switch)


def _ports(switch: Appctl) -> dict[int, str]:
    found = (_PORT_LINE.match(line) for line in switch.ask("dpif/show").splitlines())
    return {int(line[2]): line[1] for line in found if line}


def outputs(ovs: PrivateOvs, bridge: str, in_port: str, **fields: str | int) -> list[str]:
    """The interfaces that a frame would leave by, one entry per copy, in order.

    Raises:
        ValueError: the datapath would do something whose outputs we cannot tell.
    """
    return [port for port, _ in copies(ovs, bridge, in_port, **fields)]


def copies(
    ovs: PrivateOvs, bridge: str, in_port: str, **fields: str | int
) -> list[tuple[str, int]]:
    """The interfaces that a frame would leave by, each with the TCI it then has; 0: no tag."""
    flow = ",".join([f"in_port={in_port}", *(f"{k}={v}" for k, v in fields.items())])
    with contextlib.closing(Appctl(ovs)) as switch:
        answer, ports = switch.ask("ofproto/trace", bridge, flow), _ports(switch)
    lists = _DATAPATH_ACTIONS.findall(answer)
    if not lists:
        raise ValueError(f"no datapath actions in the trace of {flow}:\n{answer}")
    tci = int(fields.get("vlan_tci", 0))
    return [(ports[number], tag) for actions in lists for number, tag in sent(actions, tci)]


def port_numbers(actions: str) -> Iterator[int]:
    """The ports that a list of datapath actions sends to, those inside of clones included."""
    return (number for number, _ in sent(actions, 0))


def sent(actions: str, tci: int) -> Iterator[tuple[int, int]]:
    """The ports that a list of datapath actions sends to, and the frame's TCI at each.

    What comes behind a recirculation is traced, and listed, by itself.
    """
    for action in _split(actions):
        name, bracket, rest = action.partition("(")
        if action.isdigit():
            yield int(action), tci
        elif name == "clone" and bracket:
            yield from sent(rest.removesuffix(")"), tci)
        elif name == "push_vlan":
            values = dict(part.split("=") for part in rest.removesuffix(")").split(","))
            tci = _PRESENT | int(values["pcp"]) << 13 | int(values["vid"])
        elif name == "pop_vlan":
            tci = 0
        elif name not in ("drop", "set", "recirc", "hash", "trunc"):
            raise ValueError(f"cannot tell where {action!r} of {actions!r} sends to")


def _split(actions: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for character in actions.strip():
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


class Tracer:
    """Traces whole frames, many of them."""

    def __init__(self, ovs: PrivateOvs, bridge: str) -> None:
        self._bridge = bridge
        self._ports = datapath_ports(ovs)
        self._switch = Appctl(ovs)

    def close(self) -> None:
        self._switch.close()

    def outputs(self, ofport: int, frame: bytes) -> list[str]:
        """The interfaces that the frame would leave by, one entry per copy, in order."""
        answer = self._switch.ask("ofproto/trace", self._bridge, f"in_port={ofport}", frame.hex())
        lists = _DATAPATH_ACTIONS.findall(answer)
        if not lists:
            raise ValueError(f"no datapath actions in the trace of {frame.hex()}:\n{answer}")
        return [self._ports[number] for actions in lists for number in port_numbers(actions)]
