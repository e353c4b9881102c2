"""CPU time per bit: the contenders, how a pipeline stops learning, and figures of what was counted."""

from __future__ import annotations

from topologies.measure.cpu_per_bit import without_learning

LEARNS = (
    " cookie=0x1, duration=0.645s, table=1, n_packets=5, n_bytes=300, priority=10,reg0=0x1"
    " actions=set_field:0x1->reg8,learn(table=20,hard_timeout=300,delete_learned,cookie=0x6c03,"
    "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_NX_REG0[0..15]->NXM_NX_REG3[0..15]),"
    "learn(table=21,result_dst=NXM_NX_REG8[0],load:0x1->NXM_NX_REG4[0]),goto_table:3"
)
LEARNED = (
    " cookie=0x6c03, duration=0.563s, table=20, n_packets=0, n_bytes=0, hard_timeout=300, "
    "reg2=0,dl_dst=52:54:00:00:00:01 actions=load:0x1->NXM_NX_REG3[0..15]"
)
OTHER = " cookie=0x1, duration=1s, table=3, n_packets=0, n_bytes=0, priority=10 actions=drop"


def test_a_pipeline_that_learns_no_more_keeps_what_it_has_learned() -> None:
    assert without_learning(["OFPST_FLOW reply (OF1.3) (xid=0x2):", LEARNS, LEARNED, OTHER]) == [
        "table=20,reg2=0,dl_dst=52:54:00:00:00:01,actions=load:0x1->NXM_NX_REG3[0..15]",
        "table=1,priority=10,reg0=0x1,actions=set_field:0x1->reg8,goto_table:3",
    ]
