"""Writes parts of messages: refusals, quoted external text, and phrases that several messages share."""

from __future__ import annotations

import errno
import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# The maximum length of external text that a message quotes.
MOST_CHARACTERS = 200
# The maximum length of a line, which may list many names.
MOST_OF_LINE = 20 * MOST_CHARACTERS
_LONG_WORD = re.compile(rf"(?<!\S)(\S{{{MOST_CHARACTERS - 1}}})\S{{2,}}")
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=then ))ovs-(?:lbt|vsctl|ofctl) [^,;]+")
_DAY_S = 86400
# How to find the cause of a fault in ovs-lbt.
OUR_LOG = "see the ovs-lbt log (journalctl -u ovs-lbt)"

# The error if a bridge's keys are no longer in the database.
VANISHED = "the key has disappeared from the database, and the last keys stay in force for now"
# The action if Open vSwitch is not running.
STARTED = "start Open vSwitch: systemctl start openvswitch-switch"
# The reason why a switch is not connected, and the action.
UNREACHED = f"ovs-vswitchd is down, hangs or cannot create the bridge; {STARTED}, or see its log"


class Refused(Exception):
    """The error for a request that cannot be carried out: the problem, and how to solve it."""


def one_line(text: str, kept: str = "") -> str:
    """Return the text with non-printable characters escaped (except `kept`), as one line."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def lines_of(lines: Iterable[str]) -> str:
    """Join the lines of an answer, with line breaks inside a line (as in a name) escaped."""
    return "\n".join(map(one_line, lines))


def printable(text: str, whole: bool = False) -> str:
    """Make text from any source safe for a terminal or a log.

    Control characters except line ends and tabs are escaped. Long words and lines are cut unless `whole`.
    """
    text = one_line(text, kept="\n\t")
    if whole:
        return text
    lines = _LONG_WORD.sub(r"\1…", text).split("\n")
    return "\n".join(
        f"{one[:MOST_OF_LINE]}…" if len(one) > MOST_OF_LINE + 1 else one for one in lines
    )


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text, with indents. A command stays on one line, so that it can be pasted."""
    text = _COMMAND.sub(lambda command: command[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    return [one.replace("\xa0", " ") for one in lines]


def quoted(name: str) -> str:
    """Quote a name for a shell command. Return NAME if that is impossible, or `name` looks like an option."""
    word = shlex.quote(name)
    fits = word.isprintable() and len(word) < MOST_CHARACTERS and not name.startswith("-")
    return word if fits else "NAME"


def shortened(text: str) -> str:
    """Return the text, truncated if it is too long to read; in quotes if its ends are blank."""
    text = text if text == text.strip() else shlex.quote(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def time_of_day(epoch_s: float) -> str:
    """Return the time of day in UTC for a time since the epoch."""
    minutes, second = divmod(int(epoch_s % _DAY_S), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02} UTC"


def one_of(words: Iterable[str]) -> str:
    """Return a text that lists the expected values, in the given order."""
    listed = ", ".join(words)
    return f"one of {listed}" if listed else "no value, because none exists"


def first_of(things: Sequence[object], most: int = 3, between: str = ", ") -> str:
    """Return a text with the first `most` things, and the number of further things."""
    listed = between.join(map(str, things[:most]))
    return f"{listed} and {len(things) - most} more" if len(things) > most else listed


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a question that suggests the name most similar to `name`; empty if none is similar."""
    by_lower = {known.lower(): known for known in names if known != name}
    alike = get_close_matches(name[:MOST_CHARACTERS].lower(), by_lower, 1)
    return f" (did you mean {by_lower[alike[0]]}?)" if alike else ""


def invalid(found: str, expected: str, names: Iterable[str] = ()) -> str:
    """Return the error text for an invalid value. `names`: the valid values, if they are words."""
    return f"{is_invalid(found)}{nearest(found, names)}; expected {expected}"


def is_invalid(found: str) -> str:
    """Return the part of an error text that says that a value is invalid."""
    return f"{shortened(found) or 'an empty value'} is invalid"


def unknown(what: str, name: str, names: Iterable[str], listing: str) -> str:
    """Return the error text for an unknown name. `listing`: the command that lists names."""
    found = f"no {what} is named {shortened(name) or shlex.quote(name)}{nearest(name, names)}"
    return f"{found}; to list the names: {listing}"


def keys_again(bridge: str) -> str:
    """Return advice for a bridge whose keys have disappeared: set them again, or detach it."""
    restore = f"or restore the configuration from before attach: ovs-lbt detach {quoted(bridge)}"
    return f"set the keys again: ovs-lbt attach {quoted(bridge)}; {restore}"


# The frames of a VM port that are dropped on purpose, by reason (`controller.dataplane.drops`).
DROPPED = {
    "address": "frames from addresses that its attached-mac does not list",
    "claimed-address": "frames that other VM ports sent from its own address",
    "vlan": "frames in VLANs that the port does not carry",
    "second-tag": "frames with a second VLAN tag",
    "multicast-source": "frames whose source is a multicast address",
}


def no_device(uplink: str) -> str:
    """Return a note that the switch lacks an uplink, and how to find the reason."""
    found = (
        f"uplink {uplink}: Open vSwitch cannot open its device, so it does not exist on the switch"
    )
    return f"{found}; to see why: ovs-vsctl get interface {quoted(uplink)} error"


# The names of tunnel types in texts for people.
TUNNELS = {"geneve": "Geneve", "vxlan": "VXLAN", "gre": "GRE", "erspan": "ERSPAN", "stt": "STT"}


def endpoint_of(kinds: Iterable[str], bridges: Iterable[str]) -> str:
    """Return a name for a tunnel endpoint, for example "br-int's Geneve endpoint"."""
    written = ", ".join(TUNNELS.get(kind, kind) for kind in kinds)
    return f"{', '.join(bridges)}'s {written} endpoint"


def tunnels_sent(kinds: Iterable[str], bridges: Iterable[str], addresses: Iterable[str]) -> str:
    """Describe the tunnels of an endpoint, for example "geneve on br-int, from 192.0.2.1"."""
    on, sent_from = f"{', '.join(kinds)} on {', '.join(bridges)}", ", ".join(addresses)
    return f"{on}, from {sent_from}" if sent_from else on


def hashed_by(used: str, why: str, cost: str | None = None) -> str:
    """Describe the hash that spreads connections, the reason for it, and its cost, if given."""
    told = f"connections are hashed by {used}: {why}"
    return told if cost is None else f"{told}; {cost}"


def because(error: Exception) -> str:
    """Return the text of an error, with the file's name (if any), without the error number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    said = in_words(error)
    return f"{error.filename}: {said}" if error.filename else said


def in_words(error: OSError) -> str:
    """Return the text of a system error, without its number.

    On stock Ryu, sockets raise errors whose text is only a symbol such as ENOENT.
    """
    if error.errno is not None and error.strerror == errno.errorcode.get(error.errno):
        return os.strerror(error.errno)
    return error.strerror or str(error)
