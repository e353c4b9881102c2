"""When bridges are dialled, and when they are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config.rows import BridgeRow
from controller.host.sockets import Reach
from controller.openflow.connections import Dialers
from controller.text.wording import Refused


@pytest.mark.parametrize(
    ("is_current", "restores_flows", "why"),
    [
        (True, True, "br0: Open vSwitch waits until its scripts have restored flows -> "),
        (False, False, "br0: ovsdb-server is unreachable -> a running ovsdb-server"),
        (True, False, r"/br0.mgmt: No such file or directory -> "),
    ],
)
def test_a_bridge_is_left_alone_while_its_flows_may_be_restored(
    tmp_path: Path, is_current: bool, restores_flows: bool, why: str
) -> None:
    row = BridgeRow("br0", restores_flows=restores_flows)
    reach = Reach("unix:db.sock", tmp_path)
    dialers = Dialers(reach, lambda _: row, lambda: is_current, lambda: None)
    with pytest.raises(Refused, match=why):
        dialers.dial("br0")


def test_a_bridge_that_does_not_allow_our_version_is_left_alone(tmp_path: Path) -> None:
    row = BridgeRow("br0", protocols=("OpenFlow10",))
    dialers = Dialers(Reach("unix:db.sock", tmp_path), lambda _: row, lambda: True, lambda: None)
    with pytest.raises(Refused, match="protocols OpenFlow10 -> OpenFlow13 among them"):
        dialers.dial("br0")
