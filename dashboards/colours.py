"""One colour for each reason for a move, for each uplink, and for each VM port, in all panels.

Red, orange and green are reserved for problems and good states.
"""

from __future__ import annotations

from itertools import cycle
from string import ascii_lowercase

from policies.model import Reason

TEXT = "text"
# For missing data; readable as text and as a background, in dark and light themes.
UNKNOWN = "#808590"
GOOD, WARNING, BAD = "green", "orange", "red"
NEUTRAL = "blue"

_CHOSEN = (
    "#5794F2",
    "#37C2B0",
    "#8AB8FF",
    "#9FB3C8",
    "#B0875A",
    "#B877D9",
    "#F2CC0C",
    "#FF85C0",
    "#A8A838",
    "#7E6BFF",
)
_OF_LINKS = {Reason.FAILOVER: BAD, Reason.FAILBACK: GOOD}
REASONS = dict(zip((r for r in Reason if r not in _OF_LINKS), cycle(_CHOSEN), strict=False))
REASONS |= _OF_LINKS

# The colours of uplinks, by the digit in which the names of a host's uplinks differ.
_UPLINKS = (
    "#5794F2",
    "#F2CC0C",
    "#B877D9",
    "#37C2B0",
    "#B0875A",
    "#FF85C0",
    "#A8A838",
    "#9FB3C8",
    "#8AB8FF",
    "#7E6BFF",
)


def _named(index: int) -> str:
    """Return the pattern of uplink names with colour `index`; each name has only one colour.

    Usually, the last digit determines the colour: eth1, bond0p1, p2p1, enp0s8. In names without a
    PCI function, the bus or slot does: enp2s0. With a function, both do, so that ports of two cards
    differ: enp1s0f1 and enp2s0f0. The name of the port on a card may follow: enp1s0f1np1.
    """
    pairs = [
        (first, function)
        for function in range(index % 2, 10, 2)
        for first in range(10)
        if (2 * first + function) % 10 == index
    ]
    on_bus = "|".join(f"{first}s0f{function}" for first, function in pairs)
    in_slot = "|".join(
        f"{first}f{function}" if first else f"[^s]0f{function}" for first, function in pairs
    )
    slot = rf"\ds\d*{index}" if index else r"\ds[1-9]\d*0"
    last = rf"(?:[^\dfsp]|(?:^|[^\d])[fs]|(?:^|[^n])p)\d*{index}"
    return rf"(?:\S*(?:{on_bus}|{in_slot}|{slot}|{index}s0|{last})|\d*{index})(?:np\d+)?"


# The patterns of an uplink's series (its legend may contain more), and of its name.
UPLINK_SERIES = {rf"/^{_named(i)}(?: .*)?$/": colour for i, colour in enumerate(_UPLINKS)}
UPLINK_NAMES = {rf"/^{_named(i)}$/": colour for i, colour in enumerate(_UPLINKS)}

# By the last character of a port's name and by whether a digit before it is odd, so that any twenty
# ports with consecutive numbers differ, and so do the hexadecimal digits of tap3f0a51d2-9c.
_PORTS = (
    *("#5794F2", "#F2CC0C", "#B877D9", "#37C2B0", "#B0875A"),
    *("#FF85C0", "#A8A838", "#9FB3C8", "#00B8D9", "#7E6BFF"),
    *("#1F60C4", "#D8D86A", "#8F3BB8", "#2D7F9D", "#7C5836"),
    *("#D683CE", "#6E6E1E", "#5F738A", "#A9C8FF", "#5B4FC0"),
    *("#DEB6F2", "#8AB8FF", "#C4A484", "#A3528F", "#D9C48F", "#3F5B9C"),
)


def _ending(index: int) -> str:
    """Return the pattern of VM port names with colour `index`; each name has only one colour."""
    if index >= 20:
        letters = ascii_lowercase[index - 20 :: 6]
        return rf"\S*[{letters}{letters.upper()}]"
    before = r"\S*[13579]" if index >= 10 else r"(?:\S*(?:[^\d\s]|[02468]))?"
    return rf"{before}{index % 10}"


# The patterns of a port's series; its legend may contain more.
PORT_SERIES = {rf"/^{_ending(i)}(?: .*)?$/": colour for i, colour in enumerate(_PORTS)}
