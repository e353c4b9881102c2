"""When bridges are dialled, and when they are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.config.rows import BridgeRow
from controller.host.sockets import Reach
from controller.openflow.connections import Dialers
from controller.text.wording import Refused


@pytest.mark.parametrize(
    ("is_current", "columns", "why"),
    [
        (True, {"restores_flows": True}, "br0: Open vSwitch is waiting for its scripts to restore"),
        (False, {}, "br0: ovsdb-server is unreachable; start Open vSwitch"),
        (True, {}, "/br0.mgmt failed: No such file or directory; "),
        (
            True,
            {"protocols": ("OpenFlow10",)},
            "br0 allows only OpenFlow10; allow OpenFlow13 as well",
        ),
    ],
)
def test_a_bridge_is_left_alone_if_its_flows_may_be_restored_or_it_does_not_allow_our_version(
    tmp_path: Path, is_current: bool, columns: dict[str, Any], why: str
) -> None:
    row = BridgeRow("br0", **columns)
    reach = Reach("unix:db.sock", tmp_path)
    dialers = Dialers(reach, lambda _: row, lambda: is_current, lambda: None)
    with pytest.raises(Refused, match=why):
        dialers.dial("br0")
