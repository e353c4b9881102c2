"""Values to bytes, as Open vSwitch documents them."""

from __future__ import annotations

import struct

from controller.dataplane.specs import Changes, FlowSpec, Learn, LearnLoad
from controller.dataplane.tables import Table
from tests.unit.controller.openflow.switch_bytes import wrapped


def test_learning_with_a_limit_is_what_the_switch_calls_learn2() -> None:
    """nx_action_learn2: learn's fixed part, limit, offset and field of the result, specs."""
    learn = Learn(
        Table.LOCAL_SOURCE, 0x77, 300, (LearnLoad(1, "reg4", 1),), limit=1024, success="reg8"
    )
    (mod,) = wrapped(Changes(add_flows=(FlowSpec(1, 10, (), (learn,)),)))
    fixed = struct.pack("!HHHQHBxHH", 0, 300, 10, 0x77, 4, Table.LOCAL_SOURCE, 0, 0)
    body = fixed + bytes.fromhex("00000400 0000 0000 00011004")
    body += bytes.fromhex("2801 0001 00010804 0000")
    action = struct.pack("!HHIH", 0xFFFF, 56, 0x2320, 45) + body
    assert mod.endswith(action.ljust(56, b"\0"))
