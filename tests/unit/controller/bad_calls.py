"""What operators get wrong, and what comes of it: calls of the command, and writes to the database.

On the host of test_bad_calls.py: br0 is attached and has bond0 (eth0, eth1) and the VM ports
vnet0 to vnet2, the last of which is of VM 9c5e; br1 is attached, has the plain uplinks eth2 to eth4
and the VM ports web0 and web1. br2 is not attached: eth5, eth6 and vnet5. br3 has two bonds, br4
nothing.
"""

from __future__ import annotations

import shlex

LONG = "x" * 5000
IN_USE = "to list the names: ovs-lbt show"
UNKNOWN = "no interface of an attached bridge is named {}"
OF_THE_BOND = "…not the members of bond0; name all members and no others: eth0, eth1"
HASHES = "one of multipath, dp_hash, auto"
PERCENT = "a percentage from 10 to 100"
WINDOW = "a number of seconds from 1 to 86400"
MBPS = "a rate in Mbit/s from 0.001 to 10000000"
KEYS = "to list the names: ovs-lbt set --help"
NO_BRIDGE = "no bridge is named {}; to list the names: ovs-vsctl list-br"
NO_NAME = NO_BRIDGE.format("''")
NO_UPLINK = "no uplink of br0 is named {} (did you mean {}?); to list the names: ovs-lbt show br0"
NOT_ATTACHED = "is not attached; to attach it: ovs-lbt attach"
BR2 = f"bridge br2 {NOT_ATTACHED} br2 --uplink IF --uplink IF"
LISTS = "to list VM ports and uplinks: ovs-lbt show br0"
A_PORT = f"eth0 is an uplink, not a VM port; {LISTS}"
CHOICE = "names of uplinks, comma-separated; !NAME excludes an uplink"
SET_NAME = "the name of a set, without commas or spaces, 64 characters at most"
ROLE = "if it is an uplink: ovs-vsctl set interface {} external_ids:ovs-lbt-role=active"

# The words of a call that is refused, and its only line without `ovs-lbt: `, in full or up to `…`.
REFUSED = {
    # ---- what no command is ------------------------------------------------------------
    "-t ovs-lbt-b show": "no service is running; start it with: ovs-lbt run --name…",
    # ---- names that a VM has on every host, and bonds of Linux --------------------------
    "pin 3a5c1f2e-9b1d-4c58-8a2e-0123456789ab/52:54:00:00:00:01 eth0": "VM 3a5c1f2e-9b1d-4c58-8a2e-0123456789ab/52:54:00:00:00:01 is not on this host (attached bridges: br0, br1); set the rule on the VM's future bridge: ovs-vsctl set bridge …",
    "unpin 101i0": "VM 101i0 is not on this host (attached bridges: br0, br1); …",
    "attach br2 --from-bond bond7 --policy pin": "policy: pin is invalid; expected one of …",
    "attach br2 --from-bond bond7 --uplink eth5": "--uplink does not work with --from-bond, because the bond's members are the uplinks",
    # ---- show, top, plan, apply, explain -----------------------------------------------
    "show nobr": NO_BRIDGE.format("nobr"),
    "show br9": NO_BRIDGE.format("br9 (did you mean br4?)"),
    "show BR0": NO_BRIDGE.format("BR0 (did you mean br0?)"),
    "show ''": NO_NAME,
    "show br2": BR2,
    "top --once nobr": NO_BRIDGE.format("nobr"),
    "top": "top: input or output is not a terminal; use a terminal, or: ovs-lbt top --once",
    "plan nobr": NO_BRIDGE.format("nobr"),
    "plan br2": BR2,
    "apply nobr": NO_BRIDGE.format("nobr"),
    "apply br2": BR2,
    "explain nope": f"{UNKNOWN.format('nope')}; {IN_USE}",
    "explain eth0": A_PORT,
    # ---- history -----------------------------------------------------------------------
    "history nobr": f"no bridge is named nobr; {IN_USE}, or ovs-lbt history",
    "history ''": f"no bridge is named ''; {IN_USE}, or ovs-lbt history",
    "history --port ''": f"no VM port is named ''; {IN_USE}, or ovs-lbt history",
    "history --port nope": f"no VM port is named nope; {IN_USE}, or ovs-lbt history",
    # ---- attach ------------------------------------------------------------------------
    "attach nobr": NO_BRIDGE.format("nobr"),
    "attach br0": "bridge br0 is already attached; to change it: …",
    "attach br0 --observe": "bridge br0 is already attached; to change it: ovs-lbt set bridge br0 mode=observe",
    "attach br0 --policy explicit": "bridge br0 is already attached; to change it: ovs-lbt set bridge br0 policy=explicit",
    "attach br2": "bridge br2 has no bond; name its uplinks in failover order: ovs-lbt attach br2 --uplink IF --uplink IF",
    "attach br3": "bridge br3 has 2 bonds (bond1, bond2); keep one; a bond to another network needs its own bridge",
    "attach br2 --uplink ''": "uplinks: an empty value is invalid; expected 2 to 64 interface names…",
    "attach br2 --uplink eth5": "uplinks: eth5 is invalid; expected 2 to 64 interface names…",
    "attach br2 --uplink eth5 --uplink eth5": "uplinks: eth5,eth5 is invalid; expected 2 to 64…",
    "attach br2 --uplink eth5 --uplink eth99": "Bridge br2 ovs-lbt-uplinks: no interface of br2 is named eth99 (did you mean eth6?); to list the names: ovs-vsctl list-ifaces br2",
    "attach br2 --uplink eth5 --uplink vnet5": "Bridge br2 ovs-lbt-uplinks: vnet5 has a name that libvirt uses for VM interfaces; "
    + ROLE.format("vnet5"),
    "attach br3 --uplink eth7 --uplink eth8": "Bridge br3 ovs-lbt-uplinks: bond2 (eth10, eth9) is a bond in addition to the uplinks; remove it: …",
    "attach br2 --uplink eth5 --uplink eth6 --policy fastest": "policy: fastest is invalid (did you mean set?); expected …",
    "attach br2 --uplink eth5 --uplink eth6 --teaming lag": "teaming: lag is invalid; expected one of…",
    "attach br2 --uplink eth5 --uplink eth6 --policy ip-hash": "Bridge br2 ovs-lbt-policy: ip-hash does not support teaming switch-independent; expected …",
    # ---- detach ------------------------------------------------------------------------
    "detach nobr": NO_BRIDGE.format("nobr"),
    "detach br2": BR2,
    "detach br9 --purge": NO_BRIDGE.format("br9 (did you mean br4?)"),
    # ---- set bridge --------------------------------------------------------------------
    "set bridge nobr threshold=60": NO_BRIDGE.format("nobr"),
    "set bridge br2 threshold=60": BR2,
    "get bridge br0 thresold": "no key of br0 is named thresold (did you mean threshold?); to list…",
    "set bridge br0 threshold=5": f"threshold: 5 is invalid; expected {PERCENT}",
    "set bridge br0 threshold=７５": f"threshold: ７５ is invalid; expected {PERCENT}",
    "set bridge br0 threshold=50 mode=watch": "mode: watch is invalid; expected one of enforce, observe",
    "set bridge br0 window-s=0": f"window-s: 0 is invalid; expected {WINDOW}",
    "set bridge br0 poll-interval-ms=99": "poll-interval-ms: 99 is invalid; expected a number of milliseconds…",
    "set bridge br0 failback-delay-s=-1": "failback-delay-s: -1 is invalid; expected a number of seconds from 0…",
    "set bridge br0 connection-hash=dp-hash": f"connection-hash: dp-hash is invalid (did you mean dp_hash?); expected {HASHES}",
    "set bridge br0 policy=": "policy cannot be removed; to stop managing the bridge: ovs-lbt detach br0",
    "set bridge br0 policy=lbt": "policy: lbt is invalid (did you mean slb?); expected one of…",
    f"set bridge br0 policy={LONG}": "policy: xxx… (5000 characters) is invalid; expected one of…",
    "set bridge br0 policy=ip-hash": "Bridge br0 ovs-lbt-policy: ip-hash does not support teaming…",
    # ---- set bridge uplinks ------------------------------------------------------------
    "set bridge br0 uplinks=eth0,eth0": "uplinks: eth0,eth0 is invalid; expected 2 to 64 interface…",
    "set bridge br0 uplinks=eth0,,eth1": "uplinks: eth0,,eth1 is invalid; expected 2 to 64 interface…",
    "set bridge br0 uplinks=eth0,eth9": "Bridge br0 ovs-lbt-uplinks: no interface of br0 is named eth9 (did you mean eth1?); to list the names: ovs-vsctl list-ifaces br0",
    "set bridge br0 uplinks=eth0,eth2": "Bridge br0 ovs-lbt-uplinks: no interface of br0 is named eth2 (did you mean eth1?); to list the names: ovs-vsctl list-ifaces br0",
    "set bridge br1 uplinks=eth2,eth3": "Bridge br1 ovs-lbt-uplinks: eth4, an uplink until now, is missing from the uplinks; add eth4 and set role=unused; or remove it: ovs-vsctl del-port br1 eth4",
    "set bridge br1 uplinks=eth2,eth3,eth4,web0": "Bridge br1 ovs-lbt-uplinks: web0 is a VM port, because it has ovs-lbt-allow; if it is an uplink: …",
    "set bridge br1 uplinks=eth2,eth3,web1": "Bridge br1 ovs-lbt-uplinks: web1 is a VM port, because it has ovs-lbt-pin; "
    + ROLE.format("web1")
    + "; Bridge br1 ovs-lbt-uplinks: eth4, an uplink until now, is missing from the uplinks; …",
    # ---- set interface, an uplink ------------------------------------------------------
    "set interface eth9 role=active": f"interface eth9: bridge br3 {NOT_ATTACHED} br3",
    "set interface eth5 role=active": f"interface eth5: bridge br2 {NOT_ATTACHED} br2 --uplink IF --uplink IF",
    "set interface eth0 role=spare": "role: spare is invalid; expected one of active, standby, unused, …",
    "set interface eth0 capacity-mbps=0": f"capacity-mbps: 0 is invalid; expected {MBPS}",
    "set interface eth0 qdisc=drop": "qdisc: drop is invalid; expected one of keep, replace",
    "set interface eth0 pin=eth1": f"no key of an uplink is named pin; {KEYS}",
    # ---- set interface, a VM port ------------------------------------------------------
    "set interface vnet0 role=active": f"no key of a VM port is named role; {KEYS}",
    "set interface vnet0 pin=eth9": NO_UPLINK.format("eth9", "eth1"),
    "set interface vnet0 pin=eth2": NO_UPLINK.format("eth2", "eth1"),
    f"set interface vnet0 pin={LONG}": "pin: xxx… (5000 characters) is invalid; expected the name of an…",
    "set interface vnet0 allow=eth9": "…allow: eth9 is invalid; expected some of eth1, eth0, comma-…",
    "set interface vnet0 allow=,": f"allow: , is invalid; expected {CHOICE}",
    "set interface vnet0 allow=!eth0,!eth1": "…allow: !eth0,!eth1 is invalid; expected some of eth1…",
    "set interface vnet0 prefer=vnet1": "…prefer: vnet1 is invalid; expected some of eth1, eth0, comma…",
    f"set interface vnet0 affinity={'x' * 65}": f"affinity: {'x' * 65} is invalid; expected {SET_NAME}",
    "set interface vnet0 affinity=a,b": f"affinity: a,b is invalid; expected {SET_NAME}",
    "set interface vnet0 'affinity=a b'": f"affinity: a b is invalid; expected {SET_NAME}",
    "set interface vnet0 'anti-affinity=\x1b[2J'": f"anti-affinity: \\x1b[2J is invalid; expected {SET_NAME}",
    "set interface vnet0 exclude=yes": "exclude: yes is invalid; expected one of on, off, true, false",
    "set interface vnet0 policy=fast": "policy: fast is invalid; expected one of…",
    "set interface vnet0 policy=ip-hash": "…ovs-lbt-policy: ip-hash does not support teaming…",
    "set interface vnet0 shares=0": "shares: 0 is invalid; expected an integer from 1 to 100",
    f"set interface vnet0 shares={'1' * 4300}": "shares: 111… (4300 characters) is invalid; expected an…",
    "set interface vnet0 reserve-mbps=0": f"reserve-mbps: 0 is invalid; expected {MBPS}",
    "set interface vnet0 limit-mbps=nan": f"limit-mbps: nan is invalid; expected {MBPS}",
    "set interface vnet0 reserve-mbps=50 limit-mbps=20": "Interface vnet0 ovs-lbt-reserve-mbps: 50 is invalid; expected at most its limit-mbps 20",
    "set interface vnet0 unit=mac": "unit: mac is invalid; expected one of port, source-mac",
    "set interface vnet0 forged-transmits=no": "forged-transmits: no is invalid; expected one of accept, …",
    "set interface vnet0 forged-transmits=reject": "Interface vnet0 ovs-lbt-forged-transmits: reject has no effect without attached-mac in external_ids; set attached-mac to…",
    # ---- move, pin, unpin, drain, undrain ----------------------------------------------
    "move vnet9 eth0": f"{UNKNOWN.format('vnet9')} (did you mean vnet2?); {IN_USE}",
    "move eth0 eth1": A_PORT,
    "move vnet1 eth9": NO_UPLINK.format("eth9", "eth1"),
    "move vnet0 eth0": "port vnet0 is pinned to eth1; to remove the pin: ovs-lbt unpin vnet0",
    "pin vnet1 eth2": NO_UPLINK.format("eth2", "eth1"),
    "pin eth0 eth1": A_PORT,
    "pin web0 eth4": "uplink eth4 is standby; a pin needs an active uplink: one of eth2, eth3",
    "unpin vnet9": f"{UNKNOWN.format('vnet9')} (did you mean vnet2?); {IN_USE}",
    "drain eth99": f"{UNKNOWN.format('eth99')} (did you mean eth4?); {IN_USE}",
    "drain eth9": f"interface eth9: bridge br3 {NOT_ATTACHED} br3",
    "undrain eth0": "uplink eth0 is active, not drained",
    "undrain vnet0": f"vnet0 is a VM port, not an uplink; {LISTS}",
    # ---- replay ------------------------------------------------------------------------
    "replay nofile.csv --policy slb": "nofile.csv: No such file or directory; expected a .csv or .csv.gz trace",
    f"replay {shlex.quote(__file__)} --policy slb": "line 1: …",
    "replay / --policy slb": "/: Is a directory; expected a .csv or .csv.gz trace",
    "replay --prometheus http://127.0.0.1:9 --bridge br0 --policy slb": "http://127.0.0.1:9 does not answer: Connection refused",
    "replay --prometheus nowhere --bridge br0 --policy slb": "nowhere is invalid; expected http://HOST:PORT or https://HOST:PORT",
}

# The words of a call that is wrong usage, and its last line.
WRONG_USAGE = {
    "": "the following arguments are required: COMMAND",
    "shwo": "argument COMMAND: no command is named shwo (did you mean show?); to list the names: ovs-lbt --help",
    "--nonsense show": "…",
    "show '\udcff'": "'\\udcff' is invalid; expected text in UTF-8",
    "show --nonsense": "unrecognized arguments: --nonsense",
    "-t b show": "argument -t/--target: b is invalid; expected ovs-lbt, or ovs-lbt followed by…",
    "-t ../ovs-lbt show": "argument -t/--target: ../ovs-lbt is invalid; expected ovs-lbt, or ovs-lbt followed…",
    "-t ovs-lbtaaaaaaaaaaaaaaaaaaaaaaaaaaaa show": "argument -t/--target: ovs-lbtaaa…",
    "top --interval nan": "argument --interval: nan is invalid; expected a number of seconds from 0.5 to 60",
    "top --interval 0": "argument --interval: 0 is invalid; expected a number of seconds from 0.5 to 60",
    "top --interval ７": "argument --interval: ７ is invalid; expected a number of seconds from 0.5 to 60",
    "top --sort names": "argument --sort: names is invalid; expected one of port, used-by, …",
    "plan br0 --endpoints": "argument --endpoints: not allowed with argument BRIDGE",
    "apply --json": "unrecognized arguments: --json",
    "explain": "the following arguments are required: PORT",
    "history --last nan": "argument --last: nan is invalid; expected an integer from 1 to 1000000",
    "history --last ７": "argument --last: ７ is invalid; expected an integer from 1 to 1000000",
    "history --last ''": "argument --last: an empty value is invalid; expected an integer from 1 to 1000000",
    "history --last 9999999": "argument --last: 9999999 is invalid; expected an integer from 1 to 1000000",
    "attach": "the following arguments are required: BRIDGE",
    "attach br2 --uplink": "argument --uplink: expected one argument",
    "attach br2 br3": "unrecognized arguments: br3",
    "attach br0 --rollback-after": "argument --rollback-after/--confirm: expected one argument",
    "attach br0 --rollback-after 4": "argument --rollback-after/--confirm: 4 is invalid; expected a number of seconds from 5 to 86400",
    "set bridge br0 threshold=60 --rollback-after 86401": "argument --rollback-after/--confirm: 86401 is invalid; expected a number of seconds from 5…",
    "confirm": "the following arguments are required: BRIDGE",
    "revert br0 br1": "unrecognized arguments: br1",
    "detach": "the following arguments are required: BRIDGE",
    "detach br0 --rollback-after soon": "argument --rollback-after/--confirm: soon is invalid; expected a number of seconds from 5 to 86400",
    "detach br0 --purge=x": "argument --purge: ignored explicit argument 'x'",
    "set": "the following arguments are required: bridge|interface, NAME, KEY=VALUE",
    "set bridge br0": "the following arguments are required: KEY=VALUE",
    "set port vnet0 pin=eth0": "argument bridge|interface: port is invalid; expected one of bridge, interface",
    "set bridge br0 threshold": "threshold has no value; for valid values: ovs-lbt set --help",
    "set bridge br0 ''": f"no key of a bridge is named ''; {KEYS}",
    "set bridge br0 =60": f"no key of a bridge is named ''; {KEYS}",
    "set bridge br0 treshold=60": f"no key of a bridge is named treshold (did you mean threshold?); {KEYS}",
    "set bridge br0 ovs-lbt-threshold=60": f"no key of a bridge is named ovs-lbt-threshold (did you mean threshold?); {KEYS}",
    "set bridge br0 no-flood-before=vnet0": f"no key of a bridge is named no-flood-before; {KEYS}",
    "set bridge br0 vm-9c5e-pin=eth0": f"no key of a bridge is named vm-9c5e-pin; {KEYS}",
    "set bridge br0 role=active": f"no key of a bridge is named role; {KEYS}",
    f"set bridge br0 {LONG}=1": "no key of a bridge is named xxx… (5000 characters); …",
    "set bridge br0 threshold=50 threshold=55": "threshold is given 2 times",
    "set interface eth0 role=active role=standby": "role is given 2 times",
    "set interface vnet0 threshold=60": f"no key of a VM port or an uplink is named threshold; {KEYS}",
    "set interface vnet0 binding=eth1": f"no key of a VM port or an uplink is named binding; {KEYS}",
    "move vnet1": "the following arguments are required: UPLINK",
    "move vnet1 eth0 eth1": "unrecognized arguments: eth1",
    "pin vnet1": "the following arguments are required: UPLINK",
    "unpin": "the following arguments are required: PORT",
    "drain": "the following arguments are required: UPLINK",
    "run --metrics x": "--metrics: x is invalid; expected ADDR:PORT or none",
    "run --metrics 127.0.0.1:９４７６": "--metrics: 127.0.0.1:９４７６ is invalid; expected ADDR:PORT or none",
    "run --listen x": "--listen: x is invalid; expected ADDR:PORT",
    "run --ovsdb x": "--ovsdb: x is invalid; expected unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT",
    "run --ovsdb ssl:host": "--ovsdb: ssl:host is invalid; expected unix:PATH, tcp:HOST:PORT or ssl:…",
    "run --name other": "argument --name: other is invalid; expected ovs-lbt, or ovs-lbt followed by…",
    "rescue": "one of the arguments BRIDGE --all is required",
    "rescue br0 --all": "argument --all: not allowed with argument BRIDGE",
    "replay": "the following arguments are required: --policy",
    "replay --policy slb": "expected either TRACE or --prometheus URL",
    "replay t.csv --policy fast": "argument --policy: fast is invalid; expected one of…",
    "replay t.csv --policy slb --uplinks ２": "argument --uplinks: ２ is invalid; expected an integer from 2…",
    "replay t.csv --policy slb --seed x": "argument --seed: x is invalid; expected an integer from 0…",
    "replay t.csv --policy slb --set foo=1": "--set: foo is invalid; expected one of threshold…",
    "replay t.csv --policy slb --set threshold=５０": f"--set: threshold: ５０ is invalid; expected {PERCENT}",
    "replay t.csv --policy slb --set threshold=50 --set threshold=60": "--set: threshold is given 2 times",
    "replay t.csv --policy slb --bridge br0": "expected --prometheus URL and --bridge B…",
    "replay --prometheus http://127.0.0.1:9 --bridge br0 --since ７d --policy slb": "argument --since: ７d is invalid; expected a duration such as 90m, 12h, 7d or 2w",
}

# A variable, its value, and the words of a call that it makes wrong usage, and its last line.
VARIABLES = {
    ("OVS_LBT_METRICS", "x", "run"): "OVS_LBT_METRICS: x is invalid; expected ADDR:PORT or none",
    ("OVS_LBT_LISTEN", "x", "run"): "OVS_LBT_LISTEN: x is invalid; expected ADDR:PORT",
    ("OVS_LBT_OVSDB", "x", "run"): "OVS_LBT_OVSDB: x is invalid; expected unix:PATH, tcp:…",
    ("OVS_LBT_NAME", "b", "show"): "OVS_LBT_NAME: b is invalid; expected ovs-lbt, or ovs-lbt …",
}

# What is said by a service with another name than the one that is running.
OTHER_NAME = {
    "detach br0": "service ovs-lbt-c is not running; use the running service: ovs-lbt -t ovs-lbt detach br0",
    "show": "no service is running; start it with: ovs-lbt run --name ovs-lbt-c",
}

# Calls that need the service or the directory of Open vSwitch.
NEED_OVS = (
    *("show", "show --json", "top --once", "attach br0", "detach br0", "detach br0 --purge"),
    *("set bridge br0 threshold=60", "move vnet0 eth0", "pin vnet0 eth0", "unpin vnet0"),
    *("drain eth0", "undrain eth0", "plan", "apply", "explain vnet0", "rescue br0"),
    "rescue --all",
)
# Of these, the commands that do without the service what they can.
DO_IT_THEMSELVES = ("detach", "rescue")

# What is written to an attached bridge's records, and the config error it makes.
WRITES: list[tuple[str, str, str, str]] = [
    ("br0", "threshold", "７５", PERCENT),
    ("br0", "threshold", LONG, f"{PERCENT}; 4096 characters at most"),
    ("br0", "mode", "watch", "one of enforce, observe"),
    ("br0", "connection-hash", "hash", HASHES),
    ("br0", "policy", "fast", "one of load-based…"),
    ("br0", "teaming", "LAG", "one of switch-independent, static, lacp"),
    ("br0", "failback-delay-s", "x", "a number of seconds from 0 to 86400, or never"),
    ("br0", "treshold", "60", "one of ovs-lbt-policy, ovs-lbt-uplinks, …"),
    ("br0", "before", "{", "a value that only the service writes, as JSON: …"),
    ("br0", "before", '{"fail_mode": "up"}', "a value that only the service writes, as JSON: …"),
    ("br0", "uplinks", "eth0,vnet0", OF_THE_BOND),
    ("br0", "uplinks", "eth1", "2 to 64 interface names, comma-separated"),
    ("br0", "uplinks", "eth0,eth9", "no interface of br0 is named eth9…"),
    ("br0", "vm-9c5e-pin", "vnet0", "one of eth0, eth1"),
    ("br0", "vm-9c5e-allow", "eth9", "some of eth1, eth0, comma-separated…"),
    ("br1", "uplinks", "eth2,eth3", "add eth4 and set role=unused; or remove it: …"),
    ("br1", "uplinks", "eth2,eth3,eth4,web0", ROLE.format("web0")),
    ("eth0", "role", "spare", "one of active, standby, unused, drained"),
    ("eth0", "capacity-mbps", "fast", MBPS),
    ("eth0", "qdisc", "x", "one of keep, replace"),
    ("eth0", "pin", "eth1", "one of ovs-lbt-capacity-mbps, ovs-lbt-qdisc, …"),
    ("vnet0", "pin", "eth9", "one of eth0, eth1"),
    ("vnet0", "role", "active", "one of ovs-lbt-pin, ovs-lbt-allow, …"),
    ("vnet0", "affinity", "a,b", SET_NAME),
    ("vnet0", "shares", "５０", "an integer from 1 to 100"),
    ("vnet0", "exclude", "yes", "one of on, off, true, false"),
    ("vnet0", "moved", "x", "a value that only the service writes"),
    ("vnet1", "prefer", "!eth0,!eth1", "some of eth1, eth0, comma-separated…"),
    ("web0", "allow", "web1", "some of eth2, eth3, eth4, comma-separated…"),
]
