"""What happens to teams and what is seen: failover, roles, rules, reservations, observe mode, LACP."""

from __future__ import annotations

import pytest

from tests.unit.controller.story import ALL_ON_ETH1, tell

FAILOVER = {
    "failback delay": """bond failback-delay-s=45 | bound 1212 | down eth1 | bound 2222
        | run 0.1 | moves failover=2 | run 9.9 | up eth1 | run 30 | down eth1 | run 1 | up eth1
        | run 44.9 | bound 2222 | run 0.2 | bound 1212 | moves failover=2 failback=2""",
    "failback never": """bond failback-delay-s=never poll-interval-ms=60000 | down eth1 | run 10
        | up eth1 | run 5000 | bound 2222 | down eth2 | run 1 | bound 1111 | up eth2 | run 3000
        | bound 1111 | set failback-delay-s=45 | run 60 | bound 1212""",
    "of two uplinks that wait, the later carries nothing": """bond failback-delay-s=45 | down eth1
        | down eth2 | run 10 | up eth2 | run 10 | up eth1 | run 0.5 | bound 2222 | run 44.4
        | bound 2222 | run 0.2 | bound 1212""",
    "uplinks that return together, as when their switch restarts": """bond failback-delay-s=45
        | down eth1 | down eth2 | run 10 | up eth2 | run 1 | up eth1 | run 1 | bound 1212
        | moves failover=6 failback=2 | run 43.5 | bound 1212 | run 24.5 | bound 1212
        | moves failover=6 failback=2""",
    "keys that disappear, without a delay": """bond | grace 0 | lose-keys | let-go | reported warning
        Bridge br0 ovs-lbt-policy: the key has disappeared from the database, so the bridge…""",
    "a bundle that is refused": """bond failback-delay-s=5 | refuse bundle no | down eth1 | run 3
        | bound 2222 | up eth1 | run 8 | bound 1212""",
    "restart": """bond | do move vnet0 eth2 | bound 2212 | restart | bound 2212 | unchanged
        | explains vnet0 reason=restored | explains vnet1 reason=restored""",
    "a stored binding to what is no uplink": "bond vnet1.binding=eth9 | bound 1212",
    "a link that is present and not live yet": """bond failback-delay-s=0 | down eth1 | run 1
        | down eth1 | up eth1 | run 0 | bound 1212""",
    "flaps while VM ports return in steps": """bond vms=40 failback-delay-s=10 | down eth1 | run 1
        | up eth1 | run 10.5 | moves failover=20 failback=8 | down eth1 | run 0.5 | up eth1
        | run 9.9 | carries eth1=0 | run 10 | moves failover=28 failback=28""",
    "move while VM ports return in steps": """bond vms=40 failback-delay-s=10 | down eth1 | run 1
        | up eth1 | run 10.1 | explains vnet38 uplink=eth2 | do move vnet38 eth1
        | explains vnet38 uplink=eth1 reason=manual""",
}
PLAIN = "plain policy=originating-port | set eth1:trunks=(0,10)"
NOT_CARRIED = "refused uplink eth1 does not carry the VLANs of vnet1; use one of eth2"
OPERATORS = {
    "pin": """bond | do pin vnet0 eth2 | bound 2212 | moves pin=1 | ask move vnet0 eth1
        | refused port vnet0 is pinned to eth2; to remove the pin: ovs-lbt unpin vnet0
        | do unpin vnet0 | do move vnet0 eth1 | bound 1212""",
    "a key beside one with an invalid value": """bond window-s=0 | errors …window-s…
        | do set bridge br0 threshold=60 | ask get bridge br0 threshold | told 60
        | ask set bridge br0 uplinks=eth1,eth9 | refused …eth9…""",
    "a database that refuses": """bond | refuse write read-only | ask pin vnet0 eth2
        | refused database: read-only | bound 1212 | refuse write read-only | ask drain eth1
        | refused database: read-only | bound 1212 | do pin vnet0 eth2""",
    "a switch that is away": """bond | gone
        | ask move vnet0 eth2 | refused bridge br0: the switch is not connected; …
        | ask drain eth1 | refused bridge br0: the switch is not connected; …""",
    "move to an uplink that waits": """bond failback-delay-s=45 | down eth2 | ask move vnet0 eth2
        | refused uplink eth2: link down; use one of eth1 | run 10 | up eth2 | run 10
        | ask move vnet0 eth2 | refused uplink eth2: …failback delay: 35 s…use one of eth1""",
    "a policy that places by number, and one that keeps": """bond | set policy=explicit
        | bound 1111 | set policy=load-based | bound 1111 | set policy=originating-port
        | run 1 | bound 1212""",
    "a new VLAN that one uplink carries": f"""{PLAIN} | run 1 | bound 1212 | set vnet0:tag=20
        | run 1 | bound 2212 | keys vnet0 binding=eth2 | moves rule=1 | down eth2 | run 1
        | bound 2111 -111""",
    "a new VLAN that no uplink carries": f"""{PLAIN} | set eth2:trunks=(0,10) | set vnet0:tag=20
        | run 1 | bound -212
        | errors Port vnet0 tag: no uplink carries VLAN 20; choose a VLAN that an uplink carries
        | ask move vnet0 eth1 | refused …; no uplink does | set eth2:trunks=(10,20) | run 1
        | bound 2212 | installed""",
    "commands against VLANs": f"""{PLAIN} | set vnet1:tag=20 | run 1 | ask move vnet1 eth1
        | {NOT_CARRIED} | ask pin vnet1 eth1 | {NOT_CARRIED} | ask set interface vnet1 pin=eth1
        | {NOT_CARRIED}""",
}
# Some of it the command refuses by itself, and another client may send it.
REFUSED = {
    "drain eth3": "uplink eth3 is unused; expected an active or standby uplink",
    "move vnet0 eth3": "uplink eth3: unused; use one of eth1, eth2",
    "set interface eth1 role-before=standby": (
        "no key of an uplink is named role-before; to list the names: ovs-lbt set --help"
    ),
    "set port vnet0 pin=eth1": "table: port is invalid; expected bridge or interface",
    "set bridge br0 threshold=75 threshold=60": "threshold is given 2 times",
    "set interface vnet0 pin= pin=eth1": "pin is given 2 times",
    "set bridge br0 no-flood-before=vnet0": "no key of a bridge is named no-flood-before; …",
    "set interface vnet0 binding=eth2": "no key of a VM port is named binding; …",
}
OPERATORS |= {
    f"refused: {command}": f"""bond uplinks=3 eth3.role=unused | watch | ask {command}
    | refused {why} | unchanged | unwritten"""
    for command, why in REFUSED.items()
}
NEEDS_ACTIVE = "a pin needs an active uplink: one of eth1"
NO_OTHER = "because the bridge has no other active or standby uplink"
TOO_LITTLE = """note: the bridge sends 1100 Mbit/s, but eth2 can carry only 1000 Mbit/s, so frames will
    be lost"""
ROLES = {
    "standby": """bond failback-delay-s=45 eth2.role=standby | loads 4e8 4e8 4e8 4e8 | run 100
        | bound 1111 | ask move vnet0 eth2 | refused uplink eth2: standby…; use one of eth1
        | down eth1 | run 1 | bound 2222 | up eth1 | run 44 | bound 2222 | run 2 | bound 1111
        | moves failover=4 failback=4""",
    "load on standby uplinks": """bond uplinks=3 eth2.role=standby eth3.role=standby | down eth1
        | run 1 | do move vnet0 eth2 | do move vnet1 eth2 | do move vnet2 eth2 | do move vnet3 eth2
        | loads 2.4e8 2.4e8 2.4e8 2.4e8 | run 70 | bound 3222""",
    "unused is no last resort": """bond eth2.role=unused | down eth1 | run 60
        | bound 1111 ----""",
    "all unused": """bond eth1.role=unused eth2.role=unused | bound ---- | installed
        | set eth2.role=active | bound 2222""",
    "drained is the last resort": """bond uplinks=3 failback-delay-s=45 eth1.role=drained
        eth3.role=standby | bound 2222 | down eth2 | run 1 | bound 3333 | down eth3 | run 1
        | bound 1111 | up eth2 | run 1 | bound 2222""",
    "originating-port counts active uplinks, up or not": """bond uplinks=3 vms=8
        policy=originating-port eth2.role=standby | bound 13131313 | down eth3 | run 1
        | bound 11111111 | up eth3 | run 60 | bound 13131313""",
    "drained for a while": """bond uplinks=3 policy=originating-port | bound 2312
        | set eth2.role=drained | bound 3313 | set eth2.role=active | run 1 | bound 2312
        | moves drain=2 failback=2""",
    **{
        f"pin to an uplink that becomes {role}": f"""bond | do pin vnet0 eth2 | set eth2.role={role}
        | run 1 | bound 1111 | ask pin vnet2 eth2 | refused uplink eth2 is {role}; {NEEDS_ACTIVE}
        | ask set interface vnet2 pin=eth2 | refused uplink eth2 is {role}; {NEEDS_ACTIVE}
        | set eth2.role=active | run 2 | bound 2212"""
        for role in ("standby", "drained", "unused")
    },
    "drain and undrain": """bond | ask drain eth1 | unanswered | bound 2222 | run 2.8 | unanswered
        | run 0.2 | told eth1: idle, 2 VM ports moved | moves drain=2 | do undrain eth1 | run 2
        | bound 1212 | keys eth1""",
    "drain of what is drained": """bond eth2.role=drained | watch | ask drain eth2
        | told eth2: idle, 0 VM ports moved | unchanged | unwritten""",
    "drain of a standby uplink": """bond eth2.role=standby | ask drain eth2 | do undrain eth2
        | keys eth2 role=standby | errors""",
    "drain while the other uplink fails": """bond | ask drain eth1 | down eth2 | run 4
        | refused uplink eth1: drained…vnet0, vnet1, vnet2, vnet3; …another uplink…""",
    "drain on a switch that goes away": """bond | hold | ask drain eth1 | unanswered | gone
        | run 11 | refused …not connected, because
        …cannot create the bridge; start Open vSwitch: …, or see its log""",
    "drain on a LAG": """bond teaming=static | ask drain eth1
        | told eth1: idle, 2 VM ports moved; …upstream switch…""",
    "drain of what the other uplinks cannot carry": f"""bond uplinks=3 eth3.role=unused | loads 6e8 5e8
        | run 40 | ask drain eth1 --dry-run | told …(drain) {TOO_LITTLE} | ask drain eth1 | run 5
        | told eth1: idle, 2 VM ports moved {TOO_LITTLE} | loads 6e8 3e8 | do undrain eth1 | run 100
        | ask drain eth1 --dry-run | told would set role=drained on interface eth1 …(drain)""",
    "drain of the last working uplink": """bond | down eth2 | ask drain eth1
        | refused uplink eth1 is the last working uplink; …""",
    "the last uplink in service": f"""bond eth2.role=unused | ask set interface eth1 role=drained
        | refused role: drained is invalid; expected active or standby, {NO_OTHER}
        | ask set interface eth1 role=unused
        | refused role: unused is invalid; expected active or standby, {NO_OTHER}""",
}
THREE = "bond uplinks=3 failback-delay-s=5"
TWO = "bond failback-delay-s=5"
NOT_ALLOWED = "refused uplink eth2 is not allowed for vnet0; use one of eth1"
ON_ETH1 = "do move vnet0 eth1 | do move vnet1 eth1 | do move vnet2 eth1 | do move vnet3 eth1"
WEB = "vnet0.anti-affinity=web vnet1.anti-affinity=web"
DB = "vnet0.affinity=db vnet1.affinity=db"
NO_UPLINK = "vnet0 allow: has no uplink until eth1 carries traffic"
RULES = {
    "allow": f"""{THREE} vnet0.allow=eth1 | run 1 | bound 1312 | order vnet0 1 | broken | watch
        | down eth1 | run 5 | bound -322 | broken vnet0.allow
        | reported warning br0: rule broken: {NO_UPLINK}
        | ask show br0 | told …rule broken {NO_UPLINK}… | says vnet0 to-change …eth1… | watch
        | up eth1
        | run 0.4 | bound 1322 | announced vnet0 | run 0.6 | bound 1322 | run 9 | bound 1312
        | broken | recorded rule-kept | explains vnet0 reason=failback""",
    "allow less what is ruled out": f"""{THREE} vnet0.allow=eth1,eth3,!eth2 vnet1.allow=!eth1
        vnet2.allow=!eth1,!eth2 vnet3.allow=eth1,eth2,eth3 | errors | order vnet0 13
        | order vnet1 32 | order vnet2 3 | order vnet3 231""",
    "an uplink that leaves takes no VM with it": f"""{THREE} vnet0.allow=eth1,eth3
        vnet1.allow=eth3 vnet1.prefer=eth3 | leave eth3 | run 1 | order vnet0 1 | bound 1212
        | errors …vnet0 ovs-lbt-allow…vnet1 ovs-lbt-allow…vnet1 ovs-lbt-prefer… | restart | run 1
        | order vnet0 1 | bound 1212""",
    "what explain says of rules": f"""{THREE} vnet0.anti-affinity=web vnet0.allow=!eth3
        vnet0.prefer=eth2,!eth3 vnet1.anti-affinity=web vnet1.pin=eth2
        | says vnet0 rules …eth1, eth2…anti-affinity set web…prefers eth2…eth3…broken: …prefer…on
        eth1, although eth2 is preferred…""",
    "allow, whatever the load and the command": f"""{TWO} vnet0.allow=eth1 | do move vnet1 eth2
        | do move vnet2 eth2 | do move vnet3 eth2 | ask move vnet0 eth2 | {NOT_ALLOWED}
        | ask pin vnet0 eth2 | {NOT_ALLOWED} | ask set interface vnet0 pin=eth2 | {NOT_ALLOWED}
        | loads 9e8 | run 100 | bound 1222""",
    "drain of the only allowed uplink": f"""{THREE} vnet0.allow=eth1 | ask drain eth1 | run 11
        | refused uplink eth1: drained, but still used by vnet0… | explains vnet0 uplink=eth1
        | broken""",
    "a pin to what is not allowed": f"""{THREE} vnet0.allow=!eth2 vnet0.pin=eth2 | broken vnet0.pin
        | explains vnet0 uplink=eth1 | ask show br0 | told …pinned to eth2, which is not
        allowed…""",
    "a pin while its uplink is down": f"""{THREE} vnet0.pin=eth2 | broken | down eth2 | run 1
        | broken vnet0.pin | explains vnet0 uplink=eth3 | up eth2 | run 7 | broken
        | explains vnet0 uplink=eth2""",
    "preferences in their order, and back": f"""{THREE} vnet0.prefer=eth3,eth1 | order vnet0 312
        | explains vnet0 uplink=eth3 | down eth3 | run 10 | explains vnet0 uplink=eth1
        | down eth1 | run 10 | explains vnet0 uplink=eth2 | up eth1 | run 10
        | explains vnet0 uplink=eth1 | up eth3 | run 10 | explains vnet0 uplink=eth3 | broken""",
    "what is not preferred is the last resort": f"""{TWO} vnet0.prefer=!eth1 | order vnet0 21
        | explains vnet0 uplink=eth2 | down eth2 | run 1 | bound 1111 | broken vnet0.prefer""",
    **{
        f"rules under {policy}": f"""{THREE} policy={policy} {WEB} vnet0.prefer=!eth3
        vnet1.prefer=!eth3 vnet2.prefer=eth2 vnet3.allow=eth3 | bound {bound} | broken"""
        for policy, bound in (
            ("originating-port", "2123"),
            ("explicit", "1223"),
            ("set-port", "2123"),
        )
    },
    "anti-affinity against load": f"""{TWO} {WEB} vnet2.pin=eth2 | bound 1222 | loads 0 5e8 4e8
        | run 100 | bound 1222 | broken""",
    "affinity shares an uplink and fails over together": f"""{THREE} policy=originating-port {DB}
        vnet2.affinity=db | bound 3332 | order vnet0 312 | order vnet1 312 | order vnet2 312
        | down eth3 | run 1 | bound 1112 | up eth3 | run 10 | bound 3332""",
    "affinity moves by load together": f"""{TWO} {DB} vnet2.pin=eth1 vnet3.policy=explicit
        vnet3.pin=eth1 | {ON_ETH1} | loads 2e8 1e8 4e8 2e8 | run 100 | bound 2211 | broken
        | metric moves_applied_total{{bridge="br0",reason="threshold"}} 2.0""",
    "affinity with one that is excluded": f"""{TWO} {DB} vnet2.pin=eth1 vnet3.policy=explicit
        vnet3.pin=eth1 | {ON_ETH1} | do set interface vnet1 exclude=true
        | loads 2e8 1e8 4e8 2e8 | run 100 | bound 1111 | broken""",
    "affinity that fits nowhere together": f"""{TWO} {DB} | {ON_ETH1} | loads 4e8 4e8 | run 100
        | bound 1111 | explains vnet0 against=no-room expected_ratio={{'eth2':0.8}}""",
    "one makes room for another, and both return": f"""{THREE} {WEB} vnet0.allow=eth1,eth2
        vnet0.prefer=eth1 vnet1.prefer=eth2 | bound 1212 | down eth1 | run 1 | bound 2322
        | metric moves_applied_total{{bridge="br0",reason="rule"}} 1.0
        | up eth1 | run 10 | bound 1212""",
    "an anti-affinity set that is too large": f"""{TWO} {WEB} vnet2.anti-affinity=web
        vnet3.anti-affinity=web | bound 1212 | ask show br0
        | told …of anti-affinity set web; all members… | broken vnet0.anti-affinity
        vnet1.anti-affinity vnet2.anti-affinity vnet3.anti-affinity""",
    "rules that contradict each other": f"""{THREE} {WEB} {DB} vnet2.affinity=x vnet2.allow=eth1
        vnet3.affinity=x vnet3.allow=eth2 | bound 3312 | broken vnet0.anti-affinity
        vnet1.anti-affinity vnet2.affinity vnet3.affinity""",
    "the switch fails over to where no other member is": f"""{THREE} {WEB} | bound 2312 |
        order vnet0 213 | order vnet1 312""",
    "a rule that comes": f"""{TWO} | {ON_ETH1} | do set interface vnet0 anti-affinity=web
        | do set interface vnet1 anti-affinity=web | bound 1211
        | metric moves_applied_total{{bridge="br0",reason="rule"}} 1.0""",
    "a move against anti-affinity": f"""{TWO} {WEB} | bound 1212 | ask move vnet0 eth2
        | told vnet0: moved from eth1 to eth2 …vnet0 anti-affinity: on eth2…vnet1 of anti-affinity
        set web; … | run 60 | bound 2212 | broken vnet0.anti-affinity vnet1.anti-affinity
        | do set interface vnet1 prefer=eth2 | bound 1212 | broken""",
    "rules that end": f"""{THREE} | do set interface vnet0 allow=eth1 prefer=eth1 affinity=db
        | order vnet0 1 | do set interface vnet0 allow= prefer= affinity= | run 2
        | down eth1 | run 1 | carries eth1=0 | broken""",
    "an invalid rule": f"""{THREE} vnet0.allow=eth2 | set vnet0.allow=eth9 | order vnet0 2
        | errors Interface vnet0 ovs-lbt-allow: eth9 is invalid; expected some of eth1, eth2,
        eth3…""",
}
HUNDRED = "eth1.capacity-mbps=100 eth2.capacity-mbps=100"
TOO_MUCH = "on eth1, where 120 Mbit/s is reserved; at most 95 can be reserved"
RESERVATIONS = {
    "more than shaping leaves": f"""bond {HUNDRED} {ALL_ON_ETH1} vnet0.reserve-mbps=60
        vnet1.reserve-mbps=40 | run 1 | bound 1211""",
    "as much as shaping leaves": f"""bond {HUNDRED} {ALL_ON_ETH1} vnet0.reserve-mbps=60
        vnet1.reserve-mbps=35 | run 1 | bound 1111 | broken""",
    "a reservation that comes": f"""bond {HUNDRED} {ALL_ON_ETH1} vnet0.reserve-mbps=60
        vnet0.prefer=eth1 | run 1 | do set interface vnet1 reserve-mbps=60 | bound 1211
        | moves rule=1 | says vnet1 why-there …has room for the reservation… | run 60 | bound 1211
        | moves rule=1""",
    "reservations that do not fit": f"""bond {HUNDRED} {ALL_ON_ETH1} vnet0.pin=eth1 vnet1.pin=eth1
        vnet0.reserve-mbps=60 vnet1.reserve-mbps=60 vnet2.reserve-mbps=30 | run 1
        | broken vnet0.reserve-mbps vnet1.reserve-mbps | bound 1121 | ask show br0
        | told …reservations on eth1 total 120 Mbit/s; expected at most 95…
        | says vnet0 rules …broken: reserve-mbps, {TOO_MUCH}… | do unpin vnet1 | broken
        | explains vnet1 uplink=eth2""",
    "a move against reservations": f"""bond {HUNDRED} vnet0.reserve-mbps=60 vnet1.reserve-mbps=60
        | run 1 | bound 1212 | ask move vnet0 eth2
        | told vnet0: moved from eth1 to eth2 …vnet0 reserve-mbps: on eth2, where 120 Mbit/s is
        reserved; at most 95… | run 60 | bound 2212 | broken vnet0.reserve-mbps vnet1.reserve-mbps
        | do set interface vnet1 reserve-mbps=61 | bound 1212 | broken""",
    "room for reservations while an uplink is down": f"""bond uplinks=3 failback-delay-s=5 {HUNDRED}
        eth3.capacity-mbps=100 vnet0.reserve-mbps=60 vnet1.reserve-mbps=40 vnet2.reserve-mbps=40
        vnet3.reserve-mbps=30 | run 1 | bound 2312 | broken | down eth1 | run 2 | bound 2332
        | broken | up eth1 | run 15 | bound 2312 | down eth2 | run 2 | bound 3113 | broken | up eth2
        | run 15 | bound 2312 | down eth3 | run 2 | bound 2112 | broken | up eth3 | run 15
        | bound 2312 | down eth1 | down eth2 | run 2 | broken vnet0.reserve-mbps vnet1.reserve-mbps
        vnet2.reserve-mbps vnet3.reserve-mbps | reported warning …rule broken…""",
}
LOADED = "set window-s=5 | loads 3e8 3e8 3e8 3e8 | run 60"
ENFORCE = "bridge br0 is in observe mode; to make moves: ovs-lbt set bridge br0 mode=enforce"
LOADS = "loads 3e8 3e8 3e8 3e8 | run 300"
OBSERVING = {
    # The same moves as enforcing, counted as planned and nowhere else.
    **{
        f"moves by load on observed {kind}": f"""{kind} mode=observe {ALL_ON_ETH1} | watch | {LOADS}
        | planned threshold=2 | would 2211 | moves | unchanged
        | reported info br0: vnet0: eth1 -> eth2 (threshold), not made"""
        for kind in ("bond", "plain")
    },
    **{
        f"moves by load on {kind}": f"""{kind} {ALL_ON_ETH1} | {LOADS} | moves threshold=2 | would ----
        | bound 2211"""
        for kind in ("bond", "plain")
    },
    # What was learned goes with the flows.
    "a bond is given back with its VMs introduced": """bond vms=1 | watch
        | do set bridge br0 mode=observe | empty | would 1 | announced vnet0
        | sent ReadLearned/Apply/SendFrame ReadLearned Apply Apply SendFrame""",
    **{
        f"VM ports gather before NORMAL takes over: {what}": f"""backup vms=2 | bound 12 | watch
        | set mode=observe | bound 22 22 | run 1.1 | bound 22 22 | moves manual=1
        | why moved requested by an operator: NORMAL takes over on eth2 | {then}"""
        for what, then in (
            ("observe", "run 0.5 | empty | would 12"),
            ("a change of mind", "set mode=enforce | run 3 | bound 12 12"),
        )
    },
    "a bond member that is left out": """bond mode=observe | add eth3 3 | set uplinks=eth1,eth3
        | run 1 | empty | installed | errors Bridge br0 ovs-lbt-uplinks: eth1,eth3 are not the
        members of bond0; …""",
    "bindings of observed plain uplinks": f"""plain mode=observe {ALL_ON_ETH1} | {LOADED}
        | bound 1111 | would 2211 | keys vnet0 binding=eth1 | ask show
        | told …observe mode: no moves to balance load…eth1 (eth2)… | restart | run 1 | bound 1111
        | unchanged""",
    "failover on an observed bond": """bond mode=observe failback-delay-s=5 | watch | down eth1
        | run 1 | would 2222 | up eth1 | run 10 | planned failover=2 failback=2 | moves | unchanged
        | announced""",
    "failover on observed plain uplinks": """plain mode=observe failback-delay-s=5 | down eth1
        | run 1 | bound 2222 | up eth1 | run 4 | bound 2222 | run 6 | bound 1212
        | moves failover=2 failback=2 | planned failover=2 failback=2 | installed""",
    **{
        f"commands to move on observed {kind}": f"""{kind} mode=observe | watch
        | ask move vnet0 eth2 | refused {ENFORCE} | ask drain eth1 | refused {ENFORCE} | run 5
        | planned manual=1 drain=1 | moves | unchanged"""
        for kind in ("bond", "plain")
    },
    "a new VM port on observed plain uplinks": """plain mode=observe eth1.role=unused | bound 2222
        | add vnet4 14 | run 1 | bound 22222""",
    "a VM port without an uplink while observing": """plain | do set interface vnet0 allow=eth1
        | set eth1.role=unused | run 2 | bound -222 | set mode=observe | run 2 | bound -222
        | restart | run 2 | bound -222 | set eth1.role=active | run 2 | bound 1222""",
    "plain uplinks, observed and enforced again": f"""plain {ALL_ON_ETH1} | loads 1e8 1e8 1e8 1e8
        | watch | set mode=observe | run 10 | set vnet1.pin=eth2 | run 10 | unchanged
        | set mode=enforce | run 1 | bound 1211 | moves pin=1""",
    "an uplink that failed before": """plain eth2.role=standby | down eth1 | run 1
        | set mode=observe | run 1 | up eth1 | run 100 | bound 2222 | would 1111 | installed
        | restart | run 100 | unchanged | bound 2222 | would 1111 | installed""",
    **{
        f"{keys} on an observed {kind}": f"""{kind} mode=observe vnet1.binding=eth2 | watch
        | set {keys} | run 100 | would {would} | moves | {seen} | restart | run 100
        | would {later} | {seen} | unchanged"""
        for keys, would in (
            ("vnet1.pin=eth1", "1112"),
            ("eth2.role=drained", "1111"),
            ("eth2.role=unused", "1111"),
            ("eth2.role=standby", "1111"),
            ("policy=explicit", "1111"),
        )
        for kind, seen in (("bond", "empty"), ("plain", "bound 1212"))
        # On a bond, `explicit` is planned anew; on plain uplinks, it keeps what is in force.
        for later in ["1212" if (keys, kind) == ("policy=explicit", "plain") else would]
    },
    "planned bindings of a bond that is enforced": f"""bond mode=observe {ALL_ON_ETH1} | {LOADED}
        | unchanged | empty | would 2211 | shows vnet0 uplink=eth2 planned_uplink=eth2
        | ask show | told …observe mode: the bond forwards as before…
        | do set bridge br0 mode=enforce | run 200 | bound 2211 | moves | installed""",
    "a switch that is away when the mode changes": """bond | gone | set mode=observe | back | empty
        | gone | set mode=enforce | back | installed | bound 1212""",
}
LACP = "lacp-fallback failback-delay-s=1"
ALL_HEAR, NOBODY_HEARS = (
    f"heard eth1 vnet0 vnet1 vnet2 vnet3 | heard eth2 {names}"
    for names in ("vnet0 vnet1 vnet2 vnet3", "")
)
DOWN, UP = "down eth1 | down eth2", "up eth1 | up eth2"
LOST, HEARD = (f"set eth1@lacp_current={is_} eth2@lacp_current={is_}" for is_ in (False, True))
NO_LACP, LACP_AGAIN = f"{DOWN} | run 3 | {LOST} | {UP}", f"{HEARD} | {DOWN} | {UP}"
WITHOUT_LACP = {
    "the next uplink": f"""{LACP} policy=originating-port | run 10 | {NO_LACP} | down eth1 | run 1
        | bound 2222""",
    "homes over a restart": f"""{LACP} threshold=100 | run 10 | {NO_LACP} | run 10
        | keys vnet0 binding=eth1 | keys vnet1 binding=eth2 | restart | run 2 | bound 1111
        | {LACP_AGAIN} | run 10 | bound 1212""",
    "another policy": f"""{LACP} policy=explicit | run 10 | {NO_LACP} | set policy=originating-port
        | run 1 | bound 1111 | {LACP_AGAIN} | run 10 | bound 1212""",
    "a bond that does not go on without LACP": f"""lacp policy=originating-port | run 10 | {LOST}
        | {DOWN} | run 10 | finds dark uplink-down""",
    "an observed bond": f"""{LACP} mode=observe | run 10 | watch | {NO_LACP} | run 10 | unchanged
        | bound 1212""",
    "a negotiated LAG": f"""{LACP} policy=originating-port | run 10 | bound 1212 | {ALL_HEAR}
        | shows br0 policy=originating-port teaming=lacp fallen_back=None""",
    # They would hear each broadcast twice. A member that is up again as it goes on without its partner is
    # still said to hear it.
    "before members are used again, and when the database can know": f"""{LACP} | run 10 | {DOWN}
        | run 0.1 | {NOBODY_HEARS} | run 3 | {UP} | run 0.5 | {NOBODY_HEARS} | run 1 | {ALL_HEAR}""",
    "a member that is down and is said to hear its partner": f"""{LACP} | run 10 | {NO_LACP} | run 10
        | down eth1 | set eth1@lacp_current=True | run 10 | shows br0 fallen_back=True | bound 2222""",
    **{
        f"all share the first uplink and go home: {policy}": f"""{LACP} policy={policy} | run 10
        | watch | {NO_LACP} | bound 1111 | {NOBODY_HEARS} | shows br0 policy={policy} teaming=lacp
        fallen_back=True | ask show br0 | told …LACP is not negotiated… | warned br0: LACP is not
        negotiated…; configure LACP, in active mode, on the upstream switch… | run 10 | announced vnet0 vnet1 vnet2
        vnet3 | watch | {LACP_AGAIN} | run 10 | bound 1212 | {ALL_HEAR} | packets 12
        | announced vnet0 vnet1 vnet2 vnet3 | shows br0 policy={policy} teaming=lacp
        fallen_back=None"""
        for policy in ("originating-port", "load-based")
    },
    "learning packets of single members end when LACP is back": f"""{LACP} | run 10 | {NO_LACP}
        | run 10 | down eth1 | run 0.5 | watch | {HEARD} | run 10 | packets 0""",
    "a member that loses LACP": """lacp-fallback failback-delay-s=10 | run 10 | down eth2 | run 5
        | bound 1111 | moves failover=2 | up eth2 | run 9 | bound 1111 | run 2 | bound 1212""",
}
INVALID = "Bridge br0 ovs-lbt-teaming:"
NEEDS_LACP = "use a bond with lacp active or passive, or teaming switch-independent or static"
ONE_LINK = "use lacp, because the upstream switch treats the members as one link"
PASSIVE, OFF = "lacp bond0:lacp=passive", "bond bond0:lacp=off"
# A team, a teaming that it cannot have, where that is not possible, and what is.
IMPOSSIBLE = (
    ("plain", "lacp", "on plain uplinks", NEEDS_LACP, "switch-independent"),
    ("bond", "lacp", "on bond bond0 with lacp off", NEEDS_LACP, "switch-independent"),
    (OFF, "lacp", "on bond bond0 with lacp off", NEEDS_LACP, "switch-independent"),
    ("lacp", "static", "on bond bond0 with lacp active", ONE_LINK, "lacp"),
    (PASSIVE, "switch-independent", "on bond bond0 with lacp passive", ONE_LINK, "lacp"),
)
TEAMINGS = {
    **{
        f"teaming {teaming}: {team}": f"""{team} teaming={teaming} | errors
        | shows br0 teaming={teaming}"""
        for team, teamings in (
            ("plain", "switch-independent static"),
            ("bond", "switch-independent static"),
            (OFF, "static"),
            ("lacp", "lacp"),
            (PASSIVE, "lacp"),
        )
        for teaming in teamings.split()
    },
    **{
        f"impossible teaming {bad}: {team}": f"""{team} | ask set bridge br0 teaming={bad}
        | refused {INVALID} {bad} is not possible {where}; {expected} | set teaming={bad}
        | errors {INVALID} {bad} is not possible {where}; {expected}
        | shows br0 teaming={default}"""
        for team, bad, where, expected, default in IMPOSSIBLE
    },
    **{
        f"impossible teaming {bad} at attach: {team}": f"""{team} unattached
        | ask attach br0 teaming={bad} {"uplinks=eth1,eth2" if team == "plain" else ""}
        | refused {INVALID} {bad} is not possible {where}; {expected} | keys br0"""
        for team, bad, where, expected, _ in IMPOSSIBLE
    },
    **{
        f"teaming {good}, then an impossible one: {team}": f"""{team} teaming={good}
        | set teaming=lacp | errors {INVALID}… | shows br0 teaming={good} | set threshold=60
        | shows br0 teaming={good}"""
        for team in ("plain", "bond", OFF)
        for good in ("switch-independent", "static")
    },
    "a teaming that does not fit the bond any more": f"""lacp teaming=lacp | set bond0:lacp=off
        | errors {INVALID}… | shows br0 teaming=switch-independent""",
}
BFD = "bond policy=originating-port failback-delay-s=5 eth1@bfd=True | run 10"
CHANGED_TWICE = 'metric uplink_link_changes_total{bridge="br0",uplink="eth1"} 2.0'
LIVENESS = {
    "no BFD response": f"""{BFD} | silent eth1 | run 1 | bound 2222
        | shows eth1 up=False silent=['BFD'] | ask show | told …no answer… | ask explain vnet0
        | told …no answer (BFD)… | why link-down no BFD response on eth1 | up eth1 | run 20
        | bound 1212
        | shows eth1 silent=None | why link-up the link of eth1 went up | {CHANGED_TWICE}""",
    # Open vSwitch says first that the port is no longer live, and then that it has no link.
    "a link that goes down is counted once": f"""{BFD} | silent eth1 | down eth1
        | why link-down no BFD response on eth1; the link of eth1 went down
        | shows eth1 up=False silent=None | silent eth1 | shows eth1 silent=['BFD'] | up eth1
        | why link-up the link of eth1 went up | {CHANGED_TWICE}""",
    "an uplink without BFD": f"""{BFD} | silent eth2 | down eth2 | shows eth2 silent=None
        | why link-down the link of eth2 went down""",
    "no CFM response": "bond eth1@cfm=True | silent eth1 | shows eth1 silent=['CFM']",
    "no LACP response": "lacp | silent eth1 | shows eth1 silent=['LACP']",
    "neither LACP nor BFD": "lacp eth1@bfd=True | silent eth1 | shows eth1 silent=['LACP','BFD']",
}
UNRELIEVED = 'metric uplink_unrelieved{bridge="br0",uplink="eth1"}'
REFUSED_MOVE = "uplink eth1: link down; use one of eth2"
MANUAL = '_total{bridge="br0",reason="manual"}'
HISTORY = {
    "an uplink that no move relieves": f"""bond {ALL_ON_ETH1} | loads 8.5e8 | run 90
        | recorded unrelieved | why unrelieved …eth1…85%…30 s…75%… | {UNRELIEVED} 1.0 | loads 1e8
        | run 110 | recorded unrelieved relieved | {UNRELIEVED} 0.0""",
    "failover and failback, one decision each": f"""bond failback-delay-s=5 | run 10 | down eth1
        | run 5 | up eth1 | run 20 | recorded link-down moved link-up moved
        | why link-down the link of eth1 went down | why link-up the link of eth1 went up
        | why moved eth1 failed; eth1 is back in service | {CHANGED_TWICE}""",
    "a move, and one that is refused": f"""bond | do move vnet0 eth2 | down eth1 | run 1 | watch
        | ask move vnet0 eth1 | refused {REFUSED_MOVE} | recorded refused
        | why refused {REFUSED_MOVE} | metric moves_refused{MANUAL} 1.0
        | metric moves_planned{MANUAL} 2.0 | metric moves_applied{MANUAL} 1.0""",
    "a pin in the database": """bond | watch | set vnet0.pin=eth2 | run 1
        | why moved pinned to eth2""",
}
TUNNEL = (
    "other br-int plain unattached uplinks=0 vms=1 vnet0-br-int@kind=geneve vnet0-br-int@tunnel="
)
BY_ADDRESS, BY_ROUTE = f"{TUNNEL}192.0.2.1", f"{TUNNEL},vnet0"
OF_THE_HOST = "addresses vnet0=192.0.2.1"
OF = "endpoint={'addresses':['192.0.2.1'],'kinds':['geneve'],'bridges':['br-int']}"
INVALID_VALUE = (
    "Bridge br0 ovs-lbt-threshold: lots is invalid; expected a percentage from 10 to 100"
)
SWITCHES = {
    "a bridge that is not attached": "bond unattached | run 100 | nothing",
    "a switch that connects again, and one that restarts": """bond | watch | gone | run 5 | back
        | sent ReadInstalled/Apply ReadInstalled | forget | installed""",
    "a switch that is away": """bond | gone | watch | set policy=explicit | run 100
        | sent Apply/ReadStats | back | run 1 | installed | bound 1111""",
    "a move is answered when the switch has followed": """bond | hold | ask move vnet0 eth2
        | unanswered | answer | unanswered | run 0.1 | told vnet0: moved from eth1 to eth2
        | bound 2212 | moves manual=1 | watch | do move vnet0 eth2 | unchanged""",
    "a bridge that is deleted": "bond | remove-bridge br0 | let-go | reported warning",
    "a bundle that is refused is sent again": """bond | refuse bundle full | forget | empty
        | reported error br0: the switch refused the change: full | run 1 | installed""",
    "a move that the switch refuses is not made later": f"""bond | watch | refuse bundle no
        | ask move vnet0 eth2 | refused the switch refused the change: no
        | metric moves_refused{MANUAL} 1.0 | recorded refused
        | why refused …the switch refused the change… | run 5 | bound 1212""",
    "a switch that goes during a bundle is asked what became of it": """bond | hold
        | ask move vnet0 eth2 | unanswered | gone | answer | watch | back
        | told vnet0: moved from eth1 to eth2 | bound 2212 | moves manual=1 | announced vnet0
        | installed""",
    "changes during a bundle wait for it": """bond | hold | ask move vnet0 eth2 | down eth1
        | ask move vnet1 eth2 | answer | run 0.1 | told … | bound 2222 | installed""",
    "an invalid value keeps the last valid one": f"""bond threshold=60 | watch | set threshold=lots
        | set threshold=lots | run 60 | warned {INVALID_VALUE} | errors {INVALID_VALUE} | unchanged
        | shows br0 threshold_ratio=0.6""",
    "a switch that answers no poll": """bond | run 5 | hold | watch | run 9 | sent ReadStats ReadStats
        | run 6 | sent ReadStats ReadStats ReadStats""",
    "a VM port that comes, and one that goes": """bond | watch | add vnet4 14 | bound 12121
        | del vnet0 | bound 2121 | run 1 | installed""",
    # The switch fails over by itself, and a bundle waits for that. Now, and 0, 1 and 3 s after it:
    "a failover is announced before the switch is told": """bond | run 10 | watch | down eth2
        | announced vnet1 vnet3 | unchanged | run 10 | packets 8""",
    # The switches upstream forget what was behind a link that fails.
    "every VM is announced when uplinks carry again after none did": """bond failback-delay-s=0
        | run 10 | down eth2 | run 10 | watch | down eth1 | run 0.02 | packets 0 | run 10 | watch
        | up eth1 | run 10 | announced vnet0 vnet1 vnet2 vnet3""",
    # Frames for a VM are flooded by it, too, until the VM is announced by the one that returns.
    "an unused uplink does not count among those that carry": """bond vms=1 eth2.role=unused
        | down eth1 | run 10 | watch | up eth1 | run 10 | announced vnet0 | packets 3""",
    # Switches further on believe a VM that has moved in where it was before.
    "who may have come while a LAG was down is announced by it": """static vms=2
        failback-delay-s=0 vnet0.allow=eth2 vnet1.allow=eth1 | run 10 | bound 21 | watch | down eth2
        | run 10 | packets 0 | up eth2 | run 10 | announced vnet0 | packets 3 | down eth1 | down eth2
        | run 10 | watch | up eth1 | up eth2 | run 10 | announced vnet0 vnet1""",
}
ENDPOINTS = {
    "an endpoint in show and explain": f"""bond | {BY_ADDRESS} | shows vnet0 endpoint=None
        | ask explain vnet0 | told vnet0 on br0, … | {OF_THE_HOST} | shows vnet0 {OF}
        | shows vnet1 endpoint=None | ask show br0
        | told …vnet0: tunnel endpoint, geneve on br-int, from 192.0.2.1… | ask explain vnet0
        | told vnet0 (br-int's Geneve endpoint) on br0, … | explains vnet0 {OF}
        | explains vnet1 endpoint=None""",
    "an endpoint whose address moves, and whose tunnel is removed": f"""bond | {BY_ADDRESS}
        | {OF_THE_HOST} | shows vnet0 {OF} | addresses vnet1=192.0.2.1 | shows vnet0 endpoint=None
        | shows vnet1 {OF} | remove-bridge br-int | shows vnet1 endpoint=None""",
    "an endpoint by the route of its tunnel": f"""bond | {BY_ROUTE}
        | shows vnet0 {OF.replace("'192.0.2.1'", "")} | {OF_THE_HOST} | shows vnet0 {OF}""",
    "an endpoint of OVN": f"bond | {OF_THE_HOST} | ovn 192.0.2.1 192.0.2.7 | shows vnet0 {OF}",
    "an endpoint at attach": f"""bond unattached | {BY_ADDRESS} | {OF_THE_HOST} | ask attach br0
        | told br0: load-based over eth1, eth2, 4 VM ports note: tunnel endpoint vnet0 (geneve on
        br-int, from 192.0.2.1): …ovs-lbt set interface vnet0 policy=adaptive…""",
}
STORIES = (
    FAILOVER
    | OPERATORS
    | ROLES
    | RULES
    | RESERVATIONS
    | OBSERVING
    | WITHOUT_LACP
    | TEAMINGS
    | LIVENESS
    | HISTORY
    | SWITCHES
    | ENDPOINTS
)


@pytest.mark.parametrize("story", STORIES)
def test_scenario(story: str) -> None:
    tell(STORIES[story])
