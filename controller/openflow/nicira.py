"""Numbers of Open vSwitch's OpenFlow extensions, for the encoder and the decoder.

They are those of Open vSwitch's nicira-ext.h.
"""

from __future__ import annotations

import struct

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
