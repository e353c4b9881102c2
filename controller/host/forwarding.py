"""Uses NORMAL on this host's switch: reads learned addresses, and forwards on one of several uplinks.

On one uplink, NORMAL can forward without our pipeline and without a loop, even with plain uplinks. The
command `ovs-lbt rescue` uses this, as does the rollback of `attach` if NORMAL on all uplinks would form a
loop. Only Open vSwitch's own tools are used, because the framework may not work.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator

from controller.api.engine_commands import ForwardByOne
from controller.api.events import ForwardingByOne, ForwardingRead
from controller.dataplane.specs import COOKIE_PREFIX
from controller.dataplane.tables import COOKIE_KIND_MASK, COOKIE_PREFIX_MASK, Kind, cookie
from controller.host import faults
from controller.host.faults import ANOTHER_LEADS, NOT_HERE
from controller.host.programs import run
from controller.text.wording import Refused
from policies.model import OFPORT_LOCAL

LOG = logging.getLogger(__name__)

RESCUE_COOKIE = cookie(Kind.RESCUE, 0)
# The flows that drop other uplinks' frames have the highest priority, and NORMAL has the lowest.
CUT_PRIORITY, NORMAL_PRIORITY = 65535, 1
# A port with the flag no-flood, as `ovs-ofctl show` prints it.
_NOT_FLOODED = r"^ (\d+|LOCAL)\(([^)\n]*)\).*\n +config: .*\bNO_FLOOD\b"


def read_forwarding(
    bridge: str, submit: Callable[[ForwardingRead], None], beside_the_switch: bool = True
) -> None:
    """Start a thread that reads the addresses learned by NORMAL and submits them."""

    def carry_out() -> ForwardingRead:
        if not beside_the_switch:
            raise Refused(NOT_HERE)
        return ForwardingRead(bridge, tuple(parse_forwarding(_fdb("show", bridge))))

    failed = functools.partial(ForwardingRead, bridge, ())
    faults.answered("forwarding", f"forwarding {bridge}", carry_out, failed, submit)


def forget_forwarding(bridge: str) -> None:
    """Start a thread that clears the addresses learned by NORMAL."""
    name = f"forget forwarding {bridge}"
    faults.answered("forwarding", name, lambda: _fdb("flush", bridge), str, lambda _: None)


def _fdb(command: str, bridge: str) -> str:
    try:
        return run("ovs-appctl", "-t", "ovs-vswitchd", f"fdb/{command}", bridge)
    except Refused as error:
        LOG.warning("%s", error)
        raise


def parse_forwarding(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield (ofport, MAC, VLAN) from each line of `fdb/show` (columns: `port VLAN MAC age`)."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) == 4:
            port, vlan, mac, _ = words
            yield OFPORT_LOCAL if port == "LOCAL" else int(port), mac, int(vlan)


def forward_by_one(
    command: ForwardByOne,
    submit: Callable[[ForwardingByOne], None],
    confirmed: Callable[[], bool],
    beside_the_switch: bool,
) -> None:
    """Carry out a `ForwardByOne` command on a thread (see `forward`), and submit the result.

    `confirmed` is called just before the change. It returns False if another service leads.
    """

    def carry_out() -> ForwardingByOne:
        if not beside_the_switch:
            raise Refused(NOT_HERE)
        if not confirmed():
            raise Refused(ANOTHER_LEADS)
        forward(command.bridge, command.uplink, command.others)
        return ForwardingByOne(command.bridge)

    failed = functools.partial(ForwardingByOne, command.bridge)
    faults.answered("openflow", f"one uplink of {command.bridge}", carry_out, failed, submit)


def forward(bridge: str, uplink: str, others: tuple[str, ...]) -> None:
    """Disconnect the uplinks `others` from NORMAL, and then let NORMAL forward on `uplink`.

    Raises:
        Refused: a tool failed.
    """
    flood(bridge, (uplink,), others)
    _ofctl("add-flows", "--bundle", bridge, "-", stdin="\n".join(flows(others)))
    run("ovs-appctl", "-t", "ovs-vswitchd", "fdb/flush", bridge)


def flagged(bridge: str) -> dict[int, str]:
    """Return the names of ports with the flag `no-flood`, by ofport. NORMAL does not flood to these ports.

    Raises:
        Refused: a tool failed, or the bridge does not allow OpenFlow 1.0.
    """
    shown = _ofctl("show", bridge, version="OpenFlow10")
    found = re.findall(_NOT_FLOODED, shown, re.MULTILINE)
    return {OFPORT_LOCAL if port == "LOCAL" else int(port): name for port, name in found}


def flood(bridge: str, ports: Iterable[str], others: Iterable[str] = ()) -> None:
    """Let NORMAL flood to `ports`, but not to `others`. The flags of other ports are not changed.

    Raises:
        Refused: a tool failed.
    """
    with openflow10(bridge):
        for flag, names in (("flood", ports), ("no-flood", others)):
            for name in names:
                _ofctl("mod-port", bridge, name, flag, version="OpenFlow10")


def flows(cut_off: tuple[str, ...]) -> list[str]:
    """Return bundle lines that replace the rescue flows and drop frames from ports `cut_off`."""
    mine = f"cookie={RESCUE_COOKIE:#x}"
    return [
        f"delete cookie={RESCUE_COOKIE:#x}/{COOKIE_KIND_MASK:#x}",
        *(
            f'add table=0,{mine},priority={CUT_PRIORITY},in_port="{name}",actions=drop'
            for name in cut_off
        ),
        f"add table=0,{mine},priority={NORMAL_PRIORITY},actions=NORMAL",
    ]


def has_pipeline(bridge: str) -> bool:
    """Whether the service's flows are installed, and thus decide how the switch forwards frames.

    Raises:
        Refused: a tool failed.
    """
    ours = f"cookie={COOKIE_PREFIX:#x}/{COOKIE_PREFIX_MASK:#x},table=0"
    dumped = _ofctl("dump-flows", bridge, ours).splitlines()
    return any("actions=" in flow and f"cookie={RESCUE_COOKIE:#x}" not in flow for flow in dumped)


@contextlib.contextmanager
def openflow10(bridge: str) -> Iterator[None]:
    """Enable OpenFlow 1.0 on a bridge temporarily, because only this version has `no-flood`."""
    allowed = run("ovs-vsctl", "get", "bridge", bridge, "protocols").strip()
    if allowed == "[]" or "OpenFlow10" in allowed:
        yield
        return
    run("ovs-vsctl", "add", "bridge", bridge, "protocols", "OpenFlow10")
    try:
        yield
    finally:
        run("ovs-vsctl", "remove", "bridge", bridge, "protocols", "OpenFlow10")


def _ofctl(command: str, *arguments: str, version: str = "OpenFlow13", stdin: str = "") -> str:
    return run("ovs-ofctl", "-O", version, command, *arguments, stdin=stdin)
