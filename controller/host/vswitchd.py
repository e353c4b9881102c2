"""The only module that talks to ovs-vswitchd's control socket, as ovs-appctl does."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator

import ovs.unixctl
import ovs.unixctl.client

from controller.api.events import ForwardingRead
from controller.host import faults
from policies.model import OFPORT_LOCAL

LOG = logging.getLogger(__name__)


def read_forwarding(bridge: str, submit: Callable[[ForwardingRead], None]) -> None:
    """Read the addresses that NORMAL has learned on a bridge, on a thread, and submit them."""
    faults.answered(
        "forwarding",
        f"forwarding {bridge}",
        functools.partial(_forwarding, bridge),
        functools.partial(ForwardingRead, bridge, ()),
        submit,
    )


def forget_forwarding(bridge: str) -> None:
    """Clear the addresses that NORMAL has learned on a bridge, on a thread."""
    name = f"forget forwarding {bridge}"
    faults.once("forwarding", name, lambda: _forget(bridge), lambda _: None)


def _forget(bridge: str) -> None:
    try:
        _ask("fdb/flush", bridge)
    except (OSError, ValueError) as error:
        LOG.warning("%s: fdb/flush: %s", bridge, error)


def _forwarding(bridge: str) -> ForwardingRead:
    try:
        return ForwardingRead(bridge, tuple(parse_forwarding(_ask("fdb/show", bridge))))
    except (OSError, ValueError) as error:
        LOG.warning("%s: fdb/show: %s", bridge, error)
        return ForwardingRead(bridge, (), str(error))


def _ask(*words: str) -> str:
    """Send a command to ovs-vswitchd and return the answer.

    Raises:
        OSError: ovs-vswitchd cannot be reached, or closed the connection.
        ValueError: ovs-vswitchd refused the command.
    """
    error, path = ovs.unixctl.socket_name_from_target("ovs-vswitchd")
    if error:
        raise OSError(error, path)
    error, client = ovs.unixctl.client.UnixctlClient.create(path)
    if error or client is None:
        raise OSError(error, f"{path}: cannot connect")
    try:
        command, *arguments = words
        error, refusal, answer = client.transact(command, arguments)
    finally:
        client.close()
    if error:
        raise OSError(error, f"{path}: no answer")
    if refusal is not None:
        raise ValueError(refusal.strip())
    return str(answer)


def parse_forwarding(text: str) -> Iterator[tuple[int, str, int]]:
    """(ofport, MAC, VLAN) of each line of `fdb/show`: `port VLAN MAC age`."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) == 4:
            port, vlan, mac, _ = words
            yield OFPORT_LOCAL if port == "LOCAL" else int(port), mac, int(vlan)
