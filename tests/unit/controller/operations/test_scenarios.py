"""What operators are told: by commands, `get` and `set`, `explain`, `check`, attach and confirm."""

from __future__ import annotations

import pytest

from controller.operations import advice
from controller.operations.detach import BUSY_TIMEOUT_S
from controller.text.wording import STARTED
from tests.unit.controller.story import ALL_ON_ETH1, tell

SEVERAL = "refused VM db has 2 ports; use one of vnet0, vnet1"
COMMANDS = {
    "move": """bond | ask move vnet0 eth2 | told vnet0: moved from eth1 to eth2
        | ask move vnet0 eth2 | told vnet0: already on eth2…""",
    "pin and unpin": """bond | ask pin vnet0 eth1 | told vnet0…eth1… | ask show br0
        | told …vnet0 …pin…vnet1…
        | ask pin vnet0 eth2 | told vnet0…eth2…eth1… | ask unpin vnet0 | told vnet0…eth2…
        | ask unpin vnet0 | told vnet0…no pin…""",
    "pin to an uplink that is down": """bond | down eth2 | ask pin vnet0 eth2
        | told vnet0…eth2…link down…eth1…""",
    "undrain": """bond uplinks=3 eth3.role=standby | ask drain eth2 | run 5 | ask undrain eth2
        | told …eth2…active… | ask drain eth3 | run 5 | ask undrain eth3 | told …eth3…standby…""",
    "set": """bond | ask set bridge br0 threshold=60 | told br0: threshold=60 (was the default: 75)
        | ask set bridge br0 policy=load-based | told br0: policy=load-based, as before
        | ask set interface eth1 role=standby | told eth1: role=standby (was the default: active)
        | ask set interface vnet0 prefer=eth2 limit-mbps=10
        | told vnet0: prefer=eth2, limit-mbps=10 | ask set interface vnet1 limit-mbps=
        | told vnet1: limit-mbps was not set | ask set interface vnet0 policy=
        | told vnet0: policy was not set | ask set interface vnet0 policy=slb
        | told vnet0: policy=slb (was the default: the bridge's policy)""",
    "set what the database refuses": """bond | refuse write full | ask set bridge br0 threshold=60
        | refused database: full""",
    "set a rule that the bridge keeps for a VM": """bond vms=1 vnet0!iface-id=web-1
        | ask set interface vnet0 anti-affinity=a | told vnet0: anti-affinity=a
        | ask set interface vnet0 anti-affinity=b affinity=c
        | told vnet0: anti-affinity=b (was a), affinity=c | ask set interface vnet0 affinity=
        | told vnet0: affinity unset (was c) | ask pin vnet0 eth1
        | told vnet0 (web-1): pinned to eth1… | ask move web-1 eth1 | told vnet0 (web-1): …
        | ask pin web-1 eth2 | told vnet0 (web-1): … | ask unpin web-1 | told vnet0 (web-1): …
        | ask set interface web-1 prefer=eth1 | told web-1: prefer=eth1
        | ask get interface web-1 prefer | told eth1 | ask unset interface web-1 prefer
        | told web-1: prefer unset…""",
    "settings of a VM with several ports": f"""bond vms=2 vnet0!iface-id=vnet0 vnet0!vm-id=db
        vnet1!iface-id=vnet1 vnet1!vm-id=db | ask set interface db exclude=true | {SEVERAL}
        | ask get interface db exclude | {SEVERAL} | ask unset interface db exclude | {SEVERAL}""",
    "a policy that keeps what another one placed": """bond | ask show br0
        | told …vnet1 …load-based… | do set bridge br0 policy=adaptive | ask show br0
        | told …vnet1 …adaptive…""",
}
SET = "bond threshold=60 vnet0.prefer=eth2 eth1.capacity-mbps=500"
SETTINGS = {
    "values": f"""{SET} | ask get bridge br0 threshold | told 60 | ask get bridge br0 window-s
        | told 30 | ask get bridge br0 path-check-targets | told
        | ask get interface eth1 capacity-mbps | told 500 | ask get interface eth2 role
        | told active | ask get interface vnet0 prefer | told eth2
        | ask get interface vnet1 policy | told load-based""",
    "unset": f"""{SET} | ask unset bridge br0 threshold | told br0: threshold unset (was 60)
        | ask get bridge br0 threshold | told 75 | do set interface eth1 capacity-mbps=
        | ask get interface eth1 capacity-mbps | told 1000
        | do unset interface vnet0 prefer | ask get interface vnet0 prefer | told""",
    "keys that the bridge needs": """plain | ask unset bridge br0 policy
        | refused …policy cannot be removed…ovs-lbt detach br0… | ask unset bridge br0 uplinks
        | refused …no bond…--uplink… | keys br0 policy=load-based uplinks=eth1,eth2
        team=/eth1,eth2/""",
    "names that do not exist": f"""{SET} | ask get bridge br0 thresold
        | refused …thresold…did you mean threshold?…ovs-lbt get… | ask get port vnet0
        | refused …port is invalid…bridge or interface… | ask get bridge br9 | refused …br9…
        | ask unset bridge br0 thresold | refused …thresold…did you mean threshold?…
        | ask unset bridge br0 | refused …keys is missing…usage: bridge…NAME KEY...…""",
}
MAC = "52:54:00:00:00:01"
UUID = "3a5c1f2e-9b1d-4c58-8a2e-0123456789ab"
VM = f"{UUID}/{MAC}"
FIRST = f"vnet0!vm-id={UUID} vnet0!iface-id=first vnet0!attached-mac={MAC}"
SECOND = f"vnet1!vm-id={UUID} vnet1!iface-id=second vnet1!attached-mac=52:54:00:00:00:02"
NOT_HERE = "no interface of an attached bridge is named"
VMS = {
    "a rule for a VM that is elsewhere": f"""bond vms=0 | do pin {VM.upper()} eth2
        | kept {VM}-pin=eth2 | add vnet0 10 | set {FIRST} | add vnet1 11 | set {SECOND}
        | explains vnet0 uplink=eth2 | del vnet0 | add vnet7 17
        | set vnet7!vm-id={UUID} vnet7!iface-id=anew vnet7!attached-mac={MAC}
        | explains vnet7 uplink=eth2 | explains {VM} port=vnet7""",
    **{
        f"rules for {vm}, which is elsewhere": f"""bond vms=0
        | do set interface {vm} prefer=!eth1 shares=50 | kept {vm}-prefer=!eth1 {vm}-shares=50
        | do set interface {vm} prefer= pin=eth1 | do unpin {vm} | kept {vm}-shares=50"""
        for vm in (VM, "101i0")
    },
    "what is refused for a VM that is elsewhere": f"""bond vms=1 | ask pin {VM} eth9
        | refused pin: eth9 is invalid (did you mean eth2?); expected one of eth1, eth2…
        | ask set interface {VM} allow=eth9
        | refused allow: eth9 is invalid; expected some of eth1, eth2, comma-separated…
        | ask set interface {VM} pni=eth1
        | refused no key of a VM port is named pni (did you mean pin?); …
        | ask move {VM} eth1 | refused {NOT_HERE} {VM}; …
        | ask pin nobody/02:00 eth1 | refused {NOT_HERE} nobody/02:00; … | kept
        | do set interface eth2 role=standby | ask pin {VM} eth2
        | refused uplink eth2 is standby; a pin needs an active uplink: one of eth1""",
    "a VM that may come to several bridges": f"""bond + bond | ask pin {VM} eth1
        | refused VM {VM} is not on this host (attached bridges: br0, br1); …
        'external_ids:"ovs-lbt-vm-{VM}-KEY"=VALUE'…""",
    "the rule that was set last, wherever it is kept": f"""bond vms=2 {FIRST} {SECOND}
        | do pin vnet0 eth1 | kept first-pin=eth1 | do pin {VM} eth2 | kept {VM}-pin=eth2
        | explains vnet0 uplink=eth2 | do set interface vnet0 pin=eth1 | kept first-pin=eth1
        | explains vnet0 uplink=eth1""",
    **{
        f"unpin {name}": f"""bond vms=1 {FIRST} vnet0.pin=eth1 | do pin {VM} eth2
        | explains vnet0 uplink=eth2 | do unpin {name} | kept | do move {VM} eth1
        | explains vnet0 uplink=eth1"""
        for name in ("vnet0", VM)
    },
    "a VM of Proxmox over a power cycle": """bond vms=0 | add tap101i0 10 | add tap101i1 11
        | add fwln102o0 12 | do pin tap101i0 eth2 | kept 101i0-pin=eth2 | del tap101i0
        | add tap101i0 21 | explains tap101i0 uplink=eth2 | del tap101i0 | add fwln101o0 22
        | explains fwln101o0 uplink=eth2""",
}
# Such loads leave too much on eth1, from when they are known on.
CROWDED = "loads 3e8 2e8 2e8 1.5e8"
SOON = "loads 3e8 2.5e8 1e8 2e8 | run 12"
FOUR_MOVES = f"{ALL_ON_ETH1} | loads 0 | run 10 | " + " | ".join(
    f"do move vnet0 {uplink} | run 5" for uplink in ("eth2", "eth1", "eth2", "eth1")
)
EXPLANATIONS = {
    "about to move": f"""bond {ALL_ON_ETH1} | {SOON} | explains vnet0 against=moves target=eth2
        | says vnet0 now …eth2…19 s…11 s…30 s… | says vnet1 now …vnet0…eth1 -> eth2…
        | says vnet0 to-change …ovs-lbt plan br0, then ovs-lbt apply br0… | run 20
        | explains vnet0 uplink=eth2""",
    "moved by load": f"""bond {ALL_ON_ETH1} | {SOON} | run 48
        | explains vnet0 uplink=eth2 reason=threshold bound_at=1800000028.0 against=below-threshold
        | why moved …eth1…85%…30 s…75%… | says vnet0 where …eth2…08:00:28 UTC…32 s…
        | says vnet0 why-there …threshold…eth1 85% -> 55%…eth2 0% -> 30%…
        | says vnet0 carries …300.00…0.00…30 s…30% of eth2…1000 Mbit/s…
        | says vnet0 now …eth2…30.0%…75%…""",
    "about to move in observe mode": f"""bond {ALL_ON_ETH1} mode=observe | {SOON}
        | says vnet0 where …would…eth1… | says vnet0 now …would…eth2…19 s…
        | says vnet0 to-change ovs-lbt set bridge br0 mode=enforce | run 48
        | says vnet0 why-there …threshold: …eth1… | says vnet0 where would be on eth2, since
        08:00:28 UTC… | do set bridge br0 mode=enforce | run 10
        | explains vnet0 uplink=eth2 bound_at=1800000060.0
        | says vnet0 where on eth2 since 08:01:00 UTC…10 s…""",
    "no room, and too small": f"""bond {ALL_ON_ETH1} | loads 9e8 0.05e8 | run 40
        | explains vnet0 against=no-room | says vnet0 now …eth1…90.5%…75%…eth2…90.0%…
        | explains vnet1 against=too-small | says vnet1 now …eth1…90.5%…75%…1%…""",
    "below the threshold": f"""bond {ALL_ON_ETH1} | loads 1e8 | run 40
        | explains vnet0 against=below-threshold | says vnet0 now …eth1…10.0%…75%…""",
    "how much room is missing": f"""bond {ALL_ON_ETH1} vnet3.pin=eth2 | loads 4e8 4e8 0 5e8 | run 40
        | explains vnet0 against=no-room expected_ratio={{'eth2':0.9}}
        | says vnet0 to-change …eth2…15%…""",
    "pinned": f"""bond {ALL_ON_ETH1} vnet0.pin=eth1 | {CROWDED} | run 40
        | explains vnet0 against=pinned | says vnet0 rules …eth1…
        | says vnet0 to-change …ovs-lbt unpin vnet0""",
    "excluded": f"""bond {ALL_ON_ETH1} vnet0.exclude=true | {CROWDED} | run 40
        | explains vnet0 against=excluded | says vnet0 rules …exclude…
        | says vnet0 to-change …ovs-lbt set interface vnet0 exclude=false""",
    "another policy of the port": f"""bond {ALL_ON_ETH1} vnet0.policy=explicit | {CROWDED} | run 40
        | explains vnet0 against=never-by-load | says vnet0 rules …load-based…
        | says vnet0 to-change …ovs-lbt move vnet0 UPLINK""",
    "where it goes when its uplink fails": f"""bond uplinks=4 {ALL_ON_ETH1} | {CROWDED} | run 17
        | do set interface eth2 role=standby | do set interface eth3 role=unused | down eth4 | run 1
        | says vnet0 if-it-fails …eth2…standby…eth4…link down… | down eth1 | run 1
        | explains vnet0 uplink=eth2""",
    "a budget that is spent": f"""bond policy=adaptive {FOUR_MOVES}
        | explains vnet0 against=budget-spent rests_until=1800000190.0
        | says vnet0 now …4 times in 180 s…cooldown… | metric move_budget_exhausted{{bridge="br0"}} 1.0
        | do move vnet0 eth2 | run 200 | metric move_budget_exhausted{{bridge="br0"}} 0.0""",
    "a policy without a budget": f"""bond {FOUR_MOVES} | explains vnet0 against=below-threshold
        | metric move_budget_exhausted{{bridge="br0"}} 0.0""",
    "away from home": f"""bond {ALL_ON_ETH1} | {CROWDED} | run 20 | down eth1 | run 1
        | explains vnet0 against=away-from-home home=eth1 uplink=eth2
        | says vnet0 why-there …failover: …eth1… | says vnet0 now …eth1…link down… | up eth1 | run 5
        | says vnet0 now …eth1…failback delay…40 s… | run 41
        | says vnet0 why-there …failback: …eth1…""",
    "unknown loads": f"""bond {ALL_ON_ETH1} | {CROWDED} | run 2.5 | explains vnet0 against=loads-unknown
        | run 17.5 | add vnet7 17 | run 4 | explains vnet7 against=load-unknown""",
    "spread by a hash": f"""bond policy=dynamic {ALL_ON_ETH1} | loads 1e8 | run 40
        | explains vnet0 buckets={{'eth1':128,'eth2':128}}
        | says vnet0 carries …256 buckets…128 on eth1…128 on eth2…""",
    "a bridge that is away": f"""bond {ALL_ON_ETH1} | {CROWDED} | run 17 | gone
        | explains vnet0 against=not-connected | says vnet0 carries unknown…""",
    "without LACP": f"""lacp-fallback {ALL_ON_ETH1} eth1@lacp_current=False eth2@lacp_current=False
        | run 20 | explains vnet0 against=lacp-fallback policy=load-based""",
    "without an uplink": f"""bond {ALL_ON_ETH1} bond0:trunks=(7,) vnet0:tag=5 | {CROWDED} | run 40
        | explains vnet0 against=no-uplink uplink=None | says vnet0 why-there …no uplink carries
        the VM port's VLANs…""",
    "by the name of its VM": """bond vms=3 vnet0!vm-id=web vnet1!vm-id=db vnet2!vm-id=db | run 20
        | explains web port=vnet0 | ask explain web | told vnet0 (web) on br0, load-based …
        | ask explain db | refused VM db has 2 ports; use one of vnet1, vnet2""",
    "a pin": """bond vnet0.binding=eth1 | says vnet0 where on eth1 at least since …
        | do pin vnet0 eth2 | says vnet0 rules …pinned to eth2… | do unpin vnet0
        | says vnet0 why-there pin: the VM port was pinned to eth2, and has not moved since""",
    "too few and too many names": """bond | ask explain --json
        | refused explain: port is missing; usage: PORT [--json] | ask explain vnet0 vnet1
        | refused vnet0 vnet1 is invalid; expected one name [--json] | ask show br0 br1
        | refused br0 br1 is invalid; expected one name [--json] | ask plan br0 br1
        | refused br0 br1 is invalid; expected one name [--json]""",
}
CONTROLLER = ":controllers=('tcp:192.0.2.9:6653',)"
HIDDEN = {
    "in band": (":in_band=True", "…ovs-vsctl set bridge br0 other_config:disable-in-band=true"),
    "unanswered": (":unanswered=True", "…ovs-vsctl del-controller br0"),
}
FINDINGS = {
    "uplinks that fail until they are back": """bond failback-delay-s=0 | ask check
        | told br0: no problems found | down eth2 | finds uplink-down no-failover | ask check
        | told …(runbook OvsLbtUplinkDown)… | down eth1 | finds uplink-down dark | up eth1 | up eth2
        | run 1 | finds | down eth2 | up eth2 | down eth2 | up eth2 | finds flapping | run 1000
        | finds""",
    "no answer is told apart from no link": """lacp | silent eth2
        | finding silent …does not answer (LACP); …(LACP in active mode)… | ask show | told …no answer…""",
    **{
        f"settings: {team}": f"{team} | finds {found}"
        for team, found in (
            ("bond threshold=much", "bad-value"),
            ("bond :stp_enable=True", ""),
            ("bond :flow_tables=(3,)", "not-done"),
            ("bond vnet0.pin=eth2 vnet0.allow=eth1", "rule-broken"),
            ("bond eth2.role=standby", ""),
            ("bond uplinks=3 eth2.role=drained", ""),
            ("bond mode=observe", ""),
        )
    },
    "an uplink without a device": """bond uplinks=3 eth3@ofport=-1 eth3.capacity-mbps=500
        | finds no-device | finding no-device uplink eth3: Open vSwitch cannot open its device, so
        it does not exist on the switch; to see why: ovs-vsctl get interface eth3 error
        | shows eth3 up=False absent=True capacity_bps=500000000.0 | ask show
        | told …eth3 absent… | metric uplink_up{bridge="br0",uplink="eth3"} 0.0""",
    "an uplink whose device is gone": """bond eth2@mac=None | down eth2
        | finding uplink-down uplink eth2: its device no longer exists; create the device…""",
    "an uplink without a device before attach": """bond unattached uplinks=3 eth3@ofport=-1
        | check br0 | finds no-device""",
    "too few uplinks with a device before attach": """bond unattached eth2@ofport=-1 | check br0
        | finding unfit …cannot open its device…""",
    "a switch that is gone": "bond | gone | finds not-connected",
    "scripts that restore flows": """bond :restores_flows=True | gone
        | finding not-connected …remove Open_vSwitch . other_config flow-restore-wait…""",
    "faults and standbys of the service": """bond | hear fault history | hear challenge
        | finds fault | finding standby this service leads; another one is on standby | run 20
        | finding standby …has not responded for 20 s…""",
    "LACP that is not negotiated": """lacp-fallback eth1@lacp_current=False
        eth2@lacp_current=False | run 5 | finding lacp …""",
    "LACP that is not negotiated before attach": """lacp unattached eth2@lacp_current=False
        | check br0 | finding lacp LACP (active) is not negotiated on eth2; configure LACP, in
        active mode, on the ports of the upstream switch""",
    "plain uplinks before attach": """plain unattached :fail_mode=None | check br0
        | finding unfit …--uplink IF --uplink IF… | check br0 uplinks=eth1,eth2 | finds
        | finding fail-mode …attach sets it to secure… | set :fail_mode=secure
        | no-finding fail-mode""",
    "a switch that does not answer": """bond unattached | hold | ask check br0 | unanswered | run 12
        | told …the flows were not read within 10 s…""",
    "another controller": """bond unattached :controllers=('ptcp:6653','tcp:192.0.2.9:6653')
        | check br0 | finds controller | finding controller …tcp:192.0.2.9:6653…""",
    **{
        f"hidden flows for a controller, {name}": f"""bond {CONTROLLER} {column}
        | finding hidden-flows {advice} | set :fail_mode=secure | no-finding hidden-flows?"""
        for name, (column, advice) in HIDDEN.items()
    },
    **{
        f"hidden flows for a controller before attach, {name}": f"""bond unattached {CONTROLLER}
        {column} | ask attach br0 | refused {advice} | check br0 | finding unfit {advice}"""
        for name, (column, advice) in HIDDEN.items()
    },
    "no hidden flows in fail mode secure": f"""bond {CONTROLLER} :unanswered=True :fail_mode=secure
        | no-finding hidden-flows""",
    "no hidden flows in fail mode secure before attach": f"""bond unattached {CONTROLLER}
        :unanswered=True :fail_mode=secure | check br0 | no-finding unfit""",
    "an address of the host on an uplink with the MAC address of the bridge": """bond
        | add br0 65534 | set br0@mac=02:00:00:00:01:01 | addresses eth2=192.0.2.1 br0=192.0.2.2
        | finds | addresses eth1=192.0.2.1 | finds own-address | finding own-address
        …192.0.2.1…""",
    "what cannot be checked": """bond | ask check br9
        | refused no bridge is named br9 (did you mean br0?); … | ask check vnet0
        | refused vnet0 is a port or a VLAN bridge of bridge br0, not a bridge; use br0…
        | ask check br0 threshold=60 | refused …is already attached; … | ask check br0 no-such=1
        | refused …is already attached; …""",
    "a trial writes nothing and leaves nothing": """bond unattached | note-row | watch | ask check br0
        | told note: br0: can be attached: load-based over eth1, eth2, 4 VM ports | row-as-noted
        | unwritten | unchanged | let-go | sent Connect Connect | ask check
        | told no bridge is attached… | do attach br0""",
    "what attach would refuse": """bond unattached | foreign 3/9/in_port=7 | ask attach br0
        | refused bridge br0: other programs have flows…tables 1-31… | check br0
        | finding unfit cannot be attached: other programs have flows…tables 1-31…""",
    "keys that are invalid before attach": """bond unattached | ask check br0 threshold=9
        | refused …threshold…""",
}
STANDALONE = "plain unattached vms=1 :fail_mode=standalone"
ALL_FLAGS = "flags vnet0 vnet1 vnet2 vnet3"
ATTACH = {
    "plain uplinks": f"""{STANDALONE} | note-row | do attach br0 uplinks=eth1,eth2 policy=explicit
        | column fail_mode secure | bound 1 | ask detach br0 | run 5 | told … | row-as-noted
        | released""",
    # The second bundle is sent when flags are set.
    "attach reads first and writes then": """bond unattached | ask attach br0
        | told br0: load-based over eth1, eth2, 4 VM ports | column fail_mode None
        | keys br0 policy=load-based connection-hash=auto team=bond0/eth1,eth2/
        | sent Connect/ReadInstalled/Apply Connect ReadInstalled Apply Apply""",
    "a port that is reserved for a mirror": """bond :mirrors=vnet3 | bound 121-
        | shows br0 not_done=[]""",
    "a service that starts on an installed pipeline does not ask NORMAL": """bond | restart
        | sent ReadForwarding | run 3""",
    "NORMAL forgets what its bond would announce when a member fails": """bond unattached
        | do attach br0 | sent ReadForwarding/ForgetForwarding ReadForwarding ForgetForwarding | gone
        | back | run 31 | sent ForgetForwarding ForgetForwarding""",
    "attach that the database refuses": """bond unattached | flagged vnet2 | note-row
        | refuse write read-only | ask attach br0 | refused database: read-only | run 60
        | flags vnet2 | row-as-noted | released""",
    "detach that the database refuses": """bond | refuse write read-only | ask detach br0
        | refused database: read-only | run 60 | installed""",
    "detach from a switch that is away": f"""bond | gone | ask detach br0 | unanswered | run 5
        | refused bridge br0: …not connected…only the configuration…; {STARTED} | keys br0 | back
        | released""",
    "detach from a switch that answers late": f"""bond | hold | ask detach br0 | unanswered
        | run {BUSY_TIMEOUT_S - 1} | unanswered | answer | run 0.1 | told … | released""",
    "detach with an invalid note of the fail mode": """bond before={ | ask detach br0
        | refused …Bridge br0: ovs-lbt-before is {…fail_mode…standalone; … | keys br0""",
    **{
        f"detach from an active-backup bond{text}": f"""backup vms=2 | run 1 | bound 12
        | {restart}watch
        | ask detach br0 | unanswered | bound 22 | announced vnet0 | run 2 | told … | keys br0
        | released"""
        for text, restart in (("", ""), (", restarted", "restart | "))
    },
    **{
        f"flags no-flood, before: {before or 'none'}": f"""bond unattached | flagged {before}
        | do attach br0 | {ALL_FLAGS} | restart | run 60 | {ALL_FLAGS} | do detach br0
        | flags {before} | keys br0 | released"""
        for before in ("", "vnet1", "vnet1 vnet3")
    },
    "a flag no-flood that is cleared while attached": f"""bond unattached | flagged vnet1 vnet3
        | ask attach br0 | told …vnet1: another program set the port flag no-flood…
        | flagged vnet0 vnet2 vnet3 | run 10 | {ALL_FLAGS} | keys br0 policy=load-based
        connection-hash=auto team=bond0/eth1,eth2/ no-flood-before=vnet3 | do detach br0
        | flags vnet3""",
    "flags no-flood while observing": f"""bond unattached | flagged vnet2 | do attach br0
        | do set bridge br0 mode=observe | flags vnet2 | empty | do set bridge br0 mode=enforce
        | {ALL_FLAGS} | do detach br0 | flags vnet2 | released""",
    "flags no-flood without our flows": f"""bond | {ALL_FLAGS} | flush | restart | do detach br0
        | flags | released""",
}
AT_PLAIN = "attach br0 uplinks=eth1,eth2"
REFUSED = "row-as-noted | unchanged | unwritten | let-go"
OURS = "1811939328 1811939329 1811939330 1811939331 1811939332"
NOT_OURS = {
    "groups": f"""bond unattached | foreign-groups {OURS} | ask attach br0
        | refused bridge br0: other programs have groups 1811939328 1811939329 1811939330 and 2
        more; …remove all groups 1811939328 to 1828716543… | {REFUSED}""",
    "flows before ours in table 0": f"""bond unattached | foreign 0/100/in_port=10 | ask attach br0
        | refused bridge br0: other programs have flows table=0,priority=100,in_port=10; …remove
        all flows in table 0 with priority 90 or higher, and in tables 1-31… | {REFUSED}""",
    "flows in a table of ours": f"""bond unattached | foreign 20/0/ 20/1/ 20/2/ 20/3/ 20/4/
        | ask attach br0 | refused bridge br0: other programs have flows table=20,priority=4
        table=20,priority=3 table=20,priority=2 and 2 more; …tables 1-31… | {REFUSED}""",
    "flows that a new fail mode would flush": f"""{STANDALONE} | foreign 200/1/a 200/1/b 200/1/c
        | ask {AT_PLAIN} | refused bridge br0: its fail mode is standalone, and changing it now
        would flush 3 flows that other programs added; …set it to secure… | {REFUSED}""",
    "flows behind ours": "bond unattached | foreign 0/89/ 200/1/ | do attach br0",
    "flows in table 0 of plain uplinks, before our drop": f"""plain unattached | foreign 0/1/
        | ask {AT_PLAIN} | refused …with priority 1 or higher… | foreign 0/0/in_port=1
        | do {AT_PLAIN}""",
    "a fail mode whose return would flush flows": f"""{STANDALONE} | do {AT_PLAIN}
        | foreign 200/1/in_port=7 | ask detach br0 | refused bridge br0: fail_mode stays secure…;
        …ovs-vsctl del-fail-mode br0… | empty | column fail_mode secure | set :fail_mode=standalone
        | row-as-noted""",
}
ATTACHED = "br0: load-based over eth1, eth2, 4 VM ports"
NOT_DONE = (
    (":stp_enable=True", "stp_enable: "),
    (":rstp_enable=True", "rstp_enable: "),
    (":mcast_snooping_enable=True", "mcast_snooping_enable: "),
    (":flood_vlans=(5,6)", "flood_vlans: in these VLANs, ovs-lbt learns"),
    (":other_config={'mac-aging-time':'60'}", "other_config:mac-aging-time: "),
)
TESTED = [".".join(map(str, release)) for release in advice.RUN_ON]
ATTACH |= {
    **{f"not ours: {what}": story for what, story in NOT_OURS.items()},
    **{
        f"what NORMAL did and we do not: {column}": f"""bond unattached {column} | ask check br0
        | told …note: br0: Bridge br0 {note}… | ask attach br0
        | told {ATTACHED} note: Bridge br0 {note}… | ask show br0
        | told …not done Bridge br0 {note}…"""
        for column, note in NOT_DONE
    },
    **{
        f"on Open vSwitch {version}": f"""bond unattached | version {version} | ask attach br0
        | told {ATTACHED}"""
        for version in TESTED
    },
    "on a release that was not tested": f"""bond unattached | version 2.17.9 | ask attach br0
        | told {ATTACHED} note: {advice.release_warning("2.17.9")}""",
    "on a release that is too old": f"""bond unattached | version 2.7.3 | ask attach br0
        | refused {advice.release_refusal("2.7.3")} | {REFUSED}""",
    "a detach leaves no trace, and what describes the hardware": """bond eth1.capacity-mbps=1000
        | do pin vnet0 eth1 | ask detach br0 | told br0: …eth1 capacity-mbps; vnet0 pin; …ovs-lbt
        detach br0 --purge | keys br0 | keys vnet0 pin=eth1 | keys vnet1 | keys vnet2 | keys vnet3
        | keys eth1 capacity-mbps=1000 | watch | run 100 | nothing""",
    "a bridge that is deleted during a detach": """bond | gone | ask detach br0 | unanswered
        | remove-bridge br0 | run 20 | told | let-go | watch | run 1000 | nothing""",
    "a bridge that is deleted during an attach": """bond unattached | hold | ask attach br0
        | unanswered | remove-bridge br0 | refused bridge br0 was deleted during the attach""",
    "a bridge attached again in the database while it is cleaned up": """bond | gone
        | ask detach br0 | run 5 | refused … | set policy=load-based | back | installed""",
}
WAITS = "refused …br0: attach is not confirmed…in 40 s; …ovs-lbt confirm br0…ovs-lbt rollback br0…"
NO_FAIL_MODE = "plain unattached vms=1 :fail_mode=None"
CONFIRMATIONS = {
    "nothing to confirm": " | ".join(
        [
            "bond",
            *(
                f"""ask {command} br0
                | refused bridge br0 has no unconfirmed change…; …--rollback-after…
                | ask {command} br7 | refused no bridge is named br7 (did you mean br0?); …"""
                for command in ("confirm", "revert", "rollback")
            ),
        ]
    ),
    **{
        f"an attach that nobody confirms: {kind}": f"""{kind} unattached threshold=60 vm-9c5e-pin=eth1
        | note-row | ask attach br0 {uplinks} threshold=70 --rollback-after 60
        | told …br0…60 s…ovs-lbt confirm br0 | unconfirmed attach | run 60.5 | column attached True
        | run 2 | row-as-noted | released | unconfirmed
        | why reverted attach rolled back by the timer, not confirmed by 08:01:00 UTC | watch
        | run 1000 | nothing"""
        for kind, uplinks in (("bond", ""), ("plain", "uplinks=eth1,eth2"))
    },
    **{
        f"a detach that nobody confirms{text}": f"""bond threshold=60 vm-9c5e-pin=eth1
        eth1.capacity-mbps=1000 | run 1 | note-row | ask detach br0 {purge} --rollback-after 60
        | told …br0…60 s…ovs-lbt confirm br0 | column attached False | empty | unconfirmed detach
        | run 63 | row-as-noted | installed | bound 1212
        | why reverted detach rolled back by the timer, not confirmed by 08:01:01 UTC"""
        for text, purge in (("", ""), (" with --purge", "--purge"))
    },
    # An operator would look for who asked for them otherwise.
    **{
        f"moves of a rollback of {change}, {by}": f"""{team} | ask {change} --rollback-after 60 | run 5
        | {then} | run 60 | why reverted {told} | why moved …{told}: NORMAL takes over on eth2
        | reported info br0: vnet0: eth1 -> eth2 ({told}: NORMAL takes over on eth2)"""
        for team, change in (
            ("backup vms=2 unattached", "attach br0"),
            ("backup vms=2 mode=observe", "set bridge br0 mode=enforce"),
        )
        for by, then, told in (
            (
                *("by the timer", "run 5"),
                f"{change.split()[0]} rolled back by the timer, not confirmed by 08:01:00 UTC",
            ),
            (
                *("by an operator", "ask rollback br0"),
                f"{change.split()[0]} rolled back by an operator",
            ),
        )
    },
    "a rule of an interface that is gone": """bond | do set interface vnet0 pin=eth1 --rollback-after 60
        | do confirm br0 | do set interface vnet0 pin=eth2 --rollback-after 60 | del vnet0 | run 63
        | keys br0 policy=load-based team=bond0/eth1,eth2/""",
    "a record that somebody spoiled stops nothing": """bond unconfirmed={ | run 100
        | warned Bridge br0: …ovs-lbt-unconfirmed…; to remove it: ovs-vsctl remove bridge br0
        external_ids ovs-lbt-unconfirmed | installed""",
    "times that are invalid": " | ".join(
        [
            "bond unattached",
            *(
                f"""ask attach br0 --rollback-after {text} | refused --rollback-after: {
                    text or "an empty value"
                } is invalid; expected a number of seconds from 5 to 86400"""
                for text in ("4", "86401", "soon", "nan", "-5", "")
            ),
        ]
    ),
    "a second change while one waits": f"""bond unattached | ask attach br0 --rollback-after 60
        | run 20 | watch | ask attach br0 --rollback-after 60 | {WAITS} | ask attach br0 | {WAITS}
        | ask detach br0 --rollback-after 60 | {WAITS}
        | ask set bridge br0 threshold=80 --rollback-after 60 | {WAITS} | unchanged | unwritten""",
    "attach while a detach waits": """bond | do detach br0 --rollback-after 60 | ask attach br0
        | refused …detach is not confirmed yet…""",
    "a detach of an attach that waits": """bond unattached | do attach br0 --rollback-after 60
        | do detach br0 | run 1000 | keys br0 | why reverted | why confirmed""",
    "rolled back at once": """bond unattached | do attach br0 --rollback-after 60 | ask revert br0
        | run 1 | told br0: attach rolled back by an operator | keys br0 | ask confirm br0
        | refused …no unconfirmed change…""",
    "confirm": """bond unattached | do attach br0 --rollback-after 60 | run 58 | ask confirm br0
        | told br0: attach confirmed | run 600 | installed | why confirmed attach confirmed""",
    "a late confirm": """bond unattached | do attach br0 --rollback-after 60 | run 60.4
        | ask confirm br0 | refused bridge br0: attach…being rolled back; run attach again…""",
    "settings of uplinks before a rollback": """bond unattached
        | do attach br0 --rollback-after 60 | do set interface eth1 capacity-mbps=1000 | run 62
        | keys br0 | keys eth1 capacity-mbps=1000""",
    "a value that was invalid before": """bond threshold=high team=bond0/eth1,eth2/ | run 1
        | note-row | do detach br0 --rollback-after 60 | run 62 | row-as-noted""",
    "purge of a detached bridge": """bond unattached eth1.capacity-mbps=1000 | note-row
        | ask detach br0 --purge --rollback-after 60 | refused …not attached… | row-as-noted""",
    "detach of plain uplinks": """plain unattached vms=1 :fail_mode=None
        | do attach br0 uplinks=eth1,eth2 | run 1 | note-row | ask detach br0 --rollback-after 60
        | refused …bridge br0…standalone…a loop over eth1, eth2; … | row-as-noted | down eth2
        | do detach br0 --rollback-after 60 | column fail_mode None | run 62 | row-as-noted""",
    "a switch that is away when the time ends": """bond unattached
        | do attach br0 --rollback-after 60 | run 50 | gone | run 50 | column attached True | back
        | run 1 | keys br0 | released""",
    "a standby when the time ends": """bond unattached | do attach br0 --rollback-after 60
        | hear lead no | run 100 | column attached True | hear lead yes | run 1 | keys br0""",
    **{
        f"standalone is restored without a loop: {why}": f"""{NO_FAIL_MODE} {column} | {link} eth2
        | do {AT_PLAIN} --rollback-after 60 | column fail_mode secure | run 62 | row-as-noted
        | by-one"""
        for why, column, link in (
            ("one link", "", "down"),
            ("a spanning tree", ":rstp_enable=True", "up"),
        )
    },
    "two links are given back to the uplink that had one": f"""{NO_FAIL_MODE} | down eth1
        | do {AT_PLAIN} --rollback-after 60 | up eth1 | run 62 | keys br0 | column fail_mode secure
        | by-one eth2 eth1 | released | why confirmed | why reverted attach rolled back …only
        eth2…""",
    "a bridge that cannot forward by one uplink yet": f"""{NO_FAIL_MODE}
        | do {AT_PLAIN} --rollback-after 60 | refuse one no | run 62 | installed
        | column attached True | accept | run 8 | column attached False | by-one eth1 eth2""",
    "settings that nobody confirms": """bond threshold=60 | run 1
        | ask set bridge br0 policy=explicit window-s=9 --rollback-after 60
        | told …br0…60 s…ovs-lbt confirm br0… | ask get bridge br0 window-s | told 9 | run 70
        | ask get bridge br0 window-s | told 30 | ask get bridge br0 policy | told load-based""",
}
STORIES = COMMANDS | SETTINGS | VMS | EXPLANATIONS | FINDINGS | ATTACH | CONFIRMATIONS


@pytest.mark.parametrize("story", STORIES)
def test_scenario(story: str) -> None:
    tell(STORIES[story])
