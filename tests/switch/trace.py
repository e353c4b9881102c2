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


def _ports(switch: Appctl) -> dict[int, str]:
    """The interface of each datapath port number."""
    found = (_PORT_LINE.match(line) for line in switch.ask("dpif/show").splitlines())
    return {int(line[2]): line[1] for line in found if line}


def _traced(switch: Appctl, bridge: str, *frame: str, tci: int = 0) -> list[tuple[int, int]]:
    """The ports that a frame would leave by, each with the TCI it then has.

    Raises:
        ValueError: the datapath would do something whose outputs we cannot tell.
    """
    answer = switch.ask("ofproto/trace", bridge, *frame)
    lists = _DATAPATH_ACTIONS.findall(answer)
    if not lists:
        raise ValueError(f"no datapath actions in the trace of {frame}:\n{answer}")
    return [sent for actions in lists for sent in _sent(actions, tci)]


def outputs(ovs: PrivateOvs, bridge: str, in_port: str, **fields: str | int) -> list[str]:
    """The interfaces that a frame would leave by, one entry per copy, in order."""
    return [port for port, _ in copies(ovs, bridge, in_port, **fields)]


def copies(
    ovs: PrivateOvs, bridge: str, in_port: str, **fields: str | int
) -> list[tuple[str, int]]:
    """The interfaces that a frame would leave by, each with the TCI it then has; 0: no tag."""
    flow = ",".join([f"in_port={in_port}", *(f"{k}={v}" for k, v in fields.items())])
    with contextlib.closing(Appctl(ovs)) as switch:
        ports = _ports(switch)
        traced = _traced(switch, bridge, flow, tci=int(fields.get("vlan_tci", 0)))
    return [(ports[number], tag) for number, tag in traced]


def _sent(actions: str, tci: int) -> Iterator[tuple[int, int]]:
    """The ports that a list of datapath actions sends to, and the frame's TCI at each.

    What comes behind a recirculation is traced, and listed, by itself.
    """
    for action in _split(actions):
        name, bracket, rest = action.partition("(")
        if action.isdigit():
            yield int(action), tci
        elif name == "clone" and bracket:
            yield from _sent(rest.removesuffix(")"), tci)
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
        self._switch = Appctl(ovs)
        self._ports = _ports(self._switch)

    def close(self) -> None:
        self._switch.close()

    def outputs(self, ofport: int, frame: bytes) -> list[str]:
        """The interfaces that the frame would leave by, one entry per copy, in order."""
        return [port for port, _ in self.copies(ofport, frame)]

    def copies(self, ofport: int, frame: bytes) -> list[tuple[str, int]]:
        """The same, each with the TCI that the frame then has. The switch learns from the frame."""
        tci = _PRESENT | int.from_bytes(frame[14:16], "big") if frame[12:14] == b"\x81\0" else 0
        traced = _traced(self._switch, self._bridge, f"in_port={ofport}", frame.hex(), tci=tci)
        return [(self._ports[number], tag) for number, tag in traced]
