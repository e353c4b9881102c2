"""Encodes flows, groups and actions as OpenFlow messages."""

from __future__ import annotations

import struct
from typing import Any

from controller.dataplane import specs
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser

ETH_VLAN = 0x8100
# OpenFlow 1.3 cannot say how a group of kind `select` selects: see side_connection.py.
GROUP_TYPES = {"ff": ofp.OFPGT_FF, "all": ofp.OFPGT_ALL}

# Numbers of Open vSwitch's extensions, as in its nicira-ext.h.
# The switch deletes the learned flows together with the flow that has the learn action.
NX_LEARN_F_DELETE_LEARNED = 2
# The action sets a bit to 1 if the learned flow exists afterwards.
NX_LEARN_F_WRITE_RESULT = 4
# NXAST_LEARN2 is a learn action with a limit and the bit for the result. Both follow the fixed part
# of its body (nx_action_learn2). The framework has no class for it.
NXAST_LEARN2 = 45
LEARN_FIXED_BYTES = 22
LEARN2_LIMIT = struct.Struct("!IH2x")
# nx_hash_fields and nx_mp_algorithm. The framework does not name all of them.
HASH_FIELDS = {"eth_src": 0, "symmetric_l3l4+udp": 3}
NX_MP_ALG_MODULO_N = 0
WHOLE_REGISTER = 31  # ofs_nbits: bits 0 to 31
IN_PORT_TABLE = 0xFFF8  # NXAST_RESUBMIT_TABLE: keep the ingress port
# The id by which the switch knows this service: the action that gives it frames names it, so no other
# controller gets them. Other controllers have the id 0 unless they ask for another one.
CONTROLLER_ID = 0x6C62
WHOLE_FRAME = 0xFFFF
NX_VENDOR = 0x00002320
NXT_SET_CONTROLLER_ID = 20
SET_CONTROLLER_ID = struct.Struct("!6xH")


def flow_mod(datapath: Any, command: int, flow: specs.FlowSpec, cookie_mask: int = 0) -> Any:
    """Encode a flow mod. `command` is OFPFC_ADD, OFPFC_MODIFY_STRICT or OFPFC_DELETE_STRICT."""
    instructions = []
    if flow.actions:
        actions = [encode_action(action) for action in flow.actions]
        instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    if flow.goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(int(flow.goto)))
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        cookie_mask=cookie_mask,
        table_id=int(flow.table),
        command=command,
        hard_timeout=flow.hard_timeout_s,
        priority=flow.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=_encode_match(flow.match),
        instructions=instructions,
    )


def _encode_match(match: specs.Match) -> Any:
    fields = dict(match)
    if "ip_frag" in fields:
        # The framework sorts fields by number, and the switch wants the EtherType first. The number
        # that Nicira gave it is below that of ip_frag.
        fields["eth_type_nxm"] = fields.pop("eth_type")
    return parser.OFPMatch(**fields)


def group_mod(datapath: Any, command: int, group: specs.GroupSpec) -> Any:
    """Encode a group mod. `command` is OFPGC_ADD or OFPGC_MODIFY."""
    buckets = [
        parser.OFPBucket(
            watch_port=ofp.OFPP_ANY if bucket.watch_port is None else bucket.watch_port,
            watch_group=ofp.OFPG_ANY if bucket.watch_group is None else bucket.watch_group,
            actions=[encode_action(action) for action in bucket.actions],
        )
        for bucket in group.buckets
    ]
    return parser.OFPGroupMod(datapath, command, GROUP_TYPES[group.kind], group.group_id, buckets)


def encode_action(action: specs.Action) -> Any:
    match action:
        case specs.Output(port=port):
            return parser.OFPActionOutput(port)
        case specs.ToController():
            return parser.NXActionController(WHOLE_FRAME, CONTROLLER_ID, ofp.OFPR_ACTION)
        case specs.ToGroup(group_id=group_id):
            return parser.OFPActionGroup(group_id)
        case specs.SetField(field=field, value=value):
            return parser.OFPActionSetField(
                **{field: value if isinstance(value, str) else int(value)}
            )
        case specs.CopyBits(source=source, target=target, bits=bits):
            return parser.NXActionRegMove(
                source, target, bits, src_ofs=action.source_bit, dst_ofs=action.target_bit
            )
        case specs.LoadBits(target=target, bits=bits, value=value):
            ofs_nbits = action.target_bit << 6 | (bits - 1)
            return parser.NXActionRegLoad(ofs_nbits=ofs_nbits, dst=target, value=value)
        case specs.PushVlan():
            return parser.OFPActionPushVlan(ETH_VLAN)
        case specs.PopVlan():
            return parser.OFPActionPopVlan()
        case specs.Resubmit(table=table):
            return parser.NXActionResubmitTable(in_port=IN_PORT_TABLE, table_id=int(table))
        case specs.Learn():
            return _encode_learn(action)
        case specs.Multipath(fields=fields, buckets=buckets, target=target, basis=basis):
            return parser.NXActionMultipath(
                fields=HASH_FIELDS[fields],
                basis=basis,
                algorithm=NX_MP_ALG_MODULO_N,
                max_link=buckets - 1,
                arg=0,
                ofs_nbits=WHOLE_REGISTER,
                dst=target,
            )


def _encode_learn(action: specs.Learn) -> Any:
    flags = NX_LEARN_F_DELETE_LEARNED if action.delete_learned else 0
    flags |= NX_LEARN_F_WRITE_RESULT if action.success else 0
    learn = parser.NXActionLearn(
        table_id=int(action.table),
        specs=[_encode_learn_spec(spec) for spec in action.specs],
        hard_timeout=action.hard_timeout_s,
        priority=action.priority,
        cookie=action.cookie,
        flags=flags,
    )
    if not action.limit and action.success is None:
        return learn
    body = learn.serialize_body()
    limit = bytearray(LEARN2_LIMIT.pack(action.limit, 0))
    if action.success is not None:
        number = ofp.oxm_from_user_header(action.success)
        ofp.oxm_serialize_header(number, limit, len(limit))
    data = body[:LEARN_FIXED_BYTES] + limit + body[LEARN_FIXED_BYTES:]
    return parser.NXActionUnknown(NXAST_LEARN2, data)


def _encode_learn_spec(spec: specs.LearnMatch | specs.LearnLoad) -> Any:
    build = parser.NXFlowSpecMatch if isinstance(spec, specs.LearnMatch) else parser.NXFlowSpecLoad
    source = spec.source if isinstance(spec.source, int) else (spec.source, 0)
    return build(src=source, dst=(spec.target, 0), n_bits=spec.bits)
