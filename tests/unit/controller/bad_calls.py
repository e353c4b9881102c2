"""What operators get wrong, and what comes of it: calls of the command, and writes to the database.

On the host of test_bad_calls.py: br0 is attached and has bond0 (eth0, eth1) and the VM ports
vnet0 to vnet2, the last of which is of VM 9c5e; br1 is attached, has the plain uplinks eth2 to eth4
and the VM ports web0 and web1. br2 is not attached: eth5 and eth6, a VM's db0 (iface-id), vnet5,
the internal port int0, the patch port patch0 and the tap tap0. br3 has two bonds, br4 nothing.
"""

from __future__ import annotations

LONG = "x" * 5000
IN_USE = "one of those that ovs-lbt show lists"
UNKNOWN = "no interface of an attached bridge is named {}"
OF_THE_BOND = "the members of bond0, all of them and no others: eth0, eth1"
HASHES = "one of multipath, dp_hash, auto"
PERCENT = "a percentage from 10 to 100"
WINDOW = "seconds from 1 to 86400"
MBPS = "Mbit/s from 0.001 to 10000000"
KEYS = "one of those that ovs-lbt set --help lists"
LISTED = "one of those that ovs-lbt show br0 lists"
NO_BRIDGE = "no bridge is named {} -> one of those that ovs-vsctl list-br lists"
NO_NAME = "no bridge is named '' -> one of those that ovs-vsctl list-br lists"
NO_UPLINK = "no uplink of br0 is named {}; the nearest is {} -> " + LISTED
NOT_ATTACHED = "an attached bridge; to attach this one: ovs-lbt attach"
BR2 = f"bridge br2: not attached -> {NOT_ATTACHED} br2 --uplink IF --uplink IF"
A_PORT = f"port: eth0, an uplink -> a VM port, {LISTED}"
CHOICE = "names of uplinks, comma-separated; !NAME excludes an uplink"
SET_NAME = "the name of a set, without commas or spaces, 64 characters at most"
ROLE = "an uplink; if it is one: ovs-vsctl set interface {} external_ids:ovs-lbt-role=active"

# The words of a call that is refused, and its only line without `ovs-lbt: `, in full or up to `…`.
REFUSED = {
    # ---- what no command is ------------------------------------------------------------
    "-t ovs-lbt-b show": "no service is running -> start one with: ovs-lbt run --name…",
    # ---- names that a VM has on every host, and bonds of Linux --------------------------
    "pin 3a5c1f2e-9b1d-4c58-8a2e-0123456789ab/52:54:00:00:00:01 eth0": "VM 3a5c1f2e-9b1d-4c58-8a2e-0123456789ab/52:54:00:00:00:01: not on this host, whose attached bridges are br0, br1 -> one attached bridge; …",
    "unpin 101i0": "VM 101i0: not on this host, whose attached bridges are br0, br1 -> …",
    "attach br2 --from-bond bond7 --policy pin": "policy: pin -> one of …",
    "attach br2 --from-bond bond7 --uplink eth5": "--uplink with --from-bond -> one of them: the bond's members are uplinks",
    # ---- show, top, plan, apply, explain -----------------------------------------------
    "show nobr": NO_BRIDGE.format("nobr"),
    "show br9": NO_BRIDGE.format("br9; the nearest is br4"),
    "show BR0": NO_BRIDGE.format("BR0; the nearest is br0"),
    "show ''": NO_NAME,
    "show br2": BR2,
    "top --once nobr": NO_BRIDGE.format("nobr"),
    "top": "top: input or output is not a terminal -> a terminal, or: ovs-lbt top --once",
    "plan nobr": NO_BRIDGE.format("nobr"),
    "plan ''": NO_NAME,
    "plan br2": BR2,
    "apply nobr": NO_BRIDGE.format("nobr"),
    "apply ''": NO_NAME,
    "apply br2": BR2,
    "explain nope": f"{UNKNOWN.format('nope')} -> {IN_USE}",
    "explain eth0": A_PORT,
    # ---- history -----------------------------------------------------------------------
    "history nobr": f"{NO_BRIDGE.format('nobr')}, or one in the history",
    "history ''": f"{NO_NAME}, or one in the history",
    "history --port ''": "no VM port is named '' -> one of those that ovs-lbt show lists, or one in the history",
    "history --port nope": "no VM port is named nope -> one of those that ovs-lbt show lists, or one in the history",
    # ---- attach ------------------------------------------------------------------------
    "attach nobr": NO_BRIDGE.format("nobr"),
    "attach br0": "bridge br0: already attached -> a bridge that is not attached; to…",
    "attach br0 --observe": "bridge br0: already attached -> a bridge that is not attached; to change this one: ovs-lbt set bridge br0 mode=observe",
    "attach br0 --policy explicit": "bridge br0: already attached -> a bridge that is not attached; to change this one: ovs-lbt set bridge br0 policy=explicit",
    "attach br2": "bridge br2: no bond -> its uplinks, in failover order: ovs-lbt attach br2 --uplink IF --uplink IF",
    "attach br3": "bridge br3: 2 bonds, bond1, bond2 -> one bond; a bond to another network needs a bridge of its own",
    "attach br2 --uplink ''": "uplinks: nothing -> 2 to 64 interface names…",
    "attach br2 --uplink eth5": "uplinks: eth5 -> 2 to 64 interface names…",
    "attach br2 --uplink eth5 --uplink eth5": "uplinks: eth5,eth5 -> 2 to 64…",
    "attach br2 --uplink eth5 --uplink eth99": "Bridge br2 ovs-lbt-uplinks: eth99 -> an interface of br2; the nearest is eth6; to list them: ovs-vsctl list-ifaces br2",
    "attach br2 --uplink eth5 --uplink vnet5": "Bridge br2 ovs-lbt-uplinks: vnet5, with a name that libvirt gives to interfaces of VMs -> "
    + ROLE.format("vnet5"),
    "attach br2 --uplink eth5 --uplink db0": "Bridge br2 ovs-lbt-uplinks: db0, an interface of a VM, which has iface-id -> an uplink; …",
    "attach br2 --uplink eth5 --uplink int0": "Bridge br2 ovs-lbt-uplinks: int0, of type internal -> an uplink; …",
    "attach br2 --uplink eth5 --uplink patch0": "Bridge br2 ovs-lbt-uplinks: patch0, of type patch -> an uplink; …",
    "attach br2 --uplink eth5 --uplink tap0": "Bridge br2 ovs-lbt-uplinks: tap0, a tap device, as VMs use -> an uplink; …",
    "attach br2 --uplink eth5 --uplink br2": "Bridge br2 ovs-lbt-uplinks: br2, the bridge's own port -> an uplink; …",
    "attach br3 --uplink eth7 --uplink eth8": "Bridge br3 ovs-lbt-uplinks: bond2 (eth10, eth9), a bond besides the uplinks -> no other bond: …",
    "attach br2 --uplink eth5 --uplink eth6 --policy fastest": "policy: fastest; the nearest is set -> …",
    "attach br2 --uplink eth5 --uplink eth6 --teaming lag": "teaming: lag -> one of…",
    "attach br2 --uplink eth5 --uplink eth6 --teaming lacp": "Bridge br2 ovs-lbt-teaming: lacp on plain uplinks -> a bond with lacp active or…",
    "attach br2 --uplink eth5 --uplink eth6 --policy ip-hash": "Bridge br2 ovs-lbt-policy: ip-hash with teaming switch-independent -> …",
    # ---- detach ------------------------------------------------------------------------
    "detach nobr": NO_BRIDGE.format("nobr"),
    "detach br2": BR2,
    # ---- set bridge --------------------------------------------------------------------
    "set bridge nobr threshold=60": NO_BRIDGE.format("nobr"),
    "set bridge br2 threshold=60": BR2,
    "set bridge br0 threshold=": f"threshold: nothing -> {PERCENT}",
    "set bridge br0 threshold=5": f"threshold: 5 -> {PERCENT}",
    "set bridge br0 threshold=100.1": f"threshold: 100.1 -> {PERCENT}",
    "set bridge br0 threshold=７５": f"threshold: ７５ -> {PERCENT}",
    "set bridge br0 'threshold=60\n'": f"threshold: 60\\n -> {PERCENT}",
    "set bridge br0 threshold=50 mode=watch": "mode: watch -> one of enforce, observe",
    "set bridge br0 window-s=0": f"window-s: 0 -> {WINDOW}",
    "set bridge br0 window-s=86401": f"window-s: 86401 -> {WINDOW}",
    "set bridge br0 poll-interval-ms=99": "poll-interval-ms: 99 -> milliseconds…",
    "set bridge br0 poll-interval-ms=60001": "poll-interval-ms: 60001 -> millisec…",
    "set bridge br0 failback-delay-s=-1": "failback-delay-s: -1 -> seconds from 0…",
    "set bridge br0 connection-hash=dp-hash": f"connection-hash: dp-hash; the nearest is dp_hash -> {HASHES}",
    "set bridge br0 policy=": "policy: nothing -> one of originating-port…",
    "set bridge br0 policy=lbt": "policy: lbt; the nearest is slb -> one of…",
    f"set bridge br0 policy={LONG}": "policy: xxx… (5000 characters) -> one of…",
    "set bridge br0 policy=ip-hash": "Bridge br0 ovs-lbt-policy: ip-hash with teaming…",
    "set bridge br0 teaming=lacp": "Bridge br0 ovs-lbt-teaming: lacp on bond bond0 with…",
    # ---- set bridge uplinks ------------------------------------------------------------
    "set bridge br0 uplinks=": "uplinks: nothing -> 2 to 64 interface names…",
    "set bridge br0 uplinks=eth0,eth0": "uplinks: eth0,eth0 -> 2 to 64 interface…",
    "set bridge br0 uplinks=eth0,,eth1": "uplinks: eth0,,eth1 -> 2 to 64 interface…",
    "set bridge br0 uplinks=eth0,eth9": "Bridge br0 ovs-lbt-uplinks: eth9 -> an interface of br0; the nearest is eth1; to list them: ovs-vsctl list-ifaces br0",
    "set bridge br0 uplinks=eth0,eth1,vnet0": f"Bridge br0 ovs-lbt-uplinks: eth0,eth1,vnet0 -> {OF_THE_BOND}",
    "set bridge br0 uplinks=eth0,eth2": "Bridge br0 ovs-lbt-uplinks: eth2 -> an interface of br0; the nearest is eth1; to list them: ovs-vsctl list-ifaces br0",
    "set bridge br1 uplinks=eth2,eth3": "Bridge br1 ovs-lbt-uplinks: eth4, an uplink until now, is missing -> eth4 with role=unused; or remove it: ovs-vsctl del-port br1 eth4",
    "set bridge br1 uplinks=eth2,eth3,eth4,web0": "Bridge br1 ovs-lbt-uplinks: web0, a VM port, which has ovs-lbt-allow -> an uplink; …",
    "set bridge br1 uplinks=eth2,eth3,web1": "Bridge br1 ovs-lbt-uplinks: web1, a VM port, which has ovs-lbt-pin -> "
    + ROLE.format("web1")
    + "; Bridge br1 ovs-lbt-uplinks: eth4, an uplink until now, is missing -> …",
    "set bridge br1 uplinks=eth2,eth3,eth4,br1": "Bridge br1 ovs-lbt-uplinks: br1, the bridge's own port -> an uplink; …",
    # ---- set interface, an uplink ------------------------------------------------------
    "set interface eth9 role=active": f"interface eth9: on bridge br3, which is not attached -> {NOT_ATTACHED} br3",
    "set interface eth5 role=active": f"interface eth5: on bridge br2, which is not attached -> {NOT_ATTACHED} br2 --uplink IF --uplink IF",
    "set interface eth0 role=spare": "role: spare -> one of active, standby, unused, …",
    "set interface eth0 capacity-mbps=0": f"capacity-mbps: 0 -> {MBPS}",
    "set interface eth0 capacity-mbps=1e99": f"capacity-mbps: 1e99 -> {MBPS}",
    "set interface eth0 qdisc=drop": "qdisc: drop -> one of keep, replace",
    "set interface eth0 pin=eth1": f"no key of an uplink is named pin -> {KEYS}",
    # ---- set interface, a VM port ------------------------------------------------------
    "set interface vnet0 role=active": f"no key of a VM port is named role -> {KEYS}",
    "set interface vnet0 pin=eth9": NO_UPLINK.format("eth9", "eth1"),
    "set interface vnet0 pin=eth2": NO_UPLINK.format("eth2", "eth1"),
    f"set interface vnet0 pin={LONG}": "pin: xxx… (5000 characters) -> the name of an…",
    "set interface vnet0 allow=eth9": "…allow: eth9 -> some of eth1, eth0, comma-…",
    "set interface vnet0 allow=,": f"allow: , -> {CHOICE}",
    "set interface vnet0 allow=eth0,eth0": f"allow: eth0,eth0 -> {CHOICE}",
    "set interface vnet0 allow=!eth0,!eth1": "…allow: !eth0,!eth1 -> some of eth1…",
    "set interface vnet0 prefer=vnet1": "…prefer: vnet1 -> some of eth1, eth0, comma…",
    f"set interface vnet0 affinity={'x' * 65}": f"affinity: {'x' * 65} -> {SET_NAME}",
    "set interface vnet0 affinity=a,b": f"affinity: a,b -> {SET_NAME}",
    "set interface vnet0 'affinity=a b'": f"affinity: a b -> {SET_NAME}",
    "set interface vnet0 'anti-affinity=\x1b[2J'": f"anti-affinity: \\x1b[2J -> {SET_NAME}",
    "set interface vnet0 exclude=yes": "exclude: yes -> true or false",
    "set interface vnet0 policy=fast": "policy: fast -> one of…",
    "set interface vnet0 policy=ip-hash": "…ovs-lbt-policy: ip-hash with teaming…",
    "set interface vnet0 shares=0": "shares: 0 -> an integer from 1 to 100",
    "set interface vnet0 shares=101": "shares: 101 -> an integer from 1 to 100",
    f"set interface vnet0 shares={'1' * 4300}": "shares: 111… (4300 characters) -> an…",
    "set interface vnet0 reserve-mbps=0": f"reserve-mbps: 0 -> {MBPS}",
    "set interface vnet0 limit-mbps=nan": f"limit-mbps: nan -> {MBPS}",
    "set interface vnet0 reserve-mbps=50 limit-mbps=20": "Interface vnet0 ovs-lbt-reserve-mbps: 50 -> at most its limit-mbps 20",
    "set interface vnet0 unit=mac": "unit: mac -> one of port, source-mac",
    "set interface vnet0 forged-transmits=no": "forged-transmits: no -> one of accept, …",
    "set interface vnet0 forged-transmits=reject": "Interface vnet0 ovs-lbt-forged-transmits: reject -> attached-mac in external_ids as well…",
    # ---- move, pin, unpin, drain, undrain ----------------------------------------------
    "move vnet9 eth0": f"{UNKNOWN.format('vnet9')}; the nearest is vnet2 -> {IN_USE}",
    "move eth0 eth1": A_PORT,
    "move vnet1 eth9": NO_UPLINK.format("eth9", "eth1"),
    "move vnet0 eth0": "port vnet0: pinned to eth1 -> no pin: ovs-lbt unpin vnet0",
    "pin vnet1 eth2": NO_UPLINK.format("eth2", "eth1"),
    "pin eth0 eth1": A_PORT,
    "pin web0 eth4": "uplink eth4: standby -> an active uplink: one of eth2, eth3",
    "unpin vnet9": f"{UNKNOWN.format('vnet9')}; the nearest is vnet2 -> {IN_USE}",
    "drain eth99": f"{UNKNOWN.format('eth99')}; the nearest is eth4 -> {IN_USE}",
    "drain eth9": f"interface eth9: on bridge br3, which is not attached -> {NOT_ATTACHED} br3",
    "undrain eth0": "uplink eth0: active -> a drained uplink",
    "undrain vnet0": f"uplink: vnet0, a VM port -> an uplink, {LISTED}",
    # ---- replay ------------------------------------------------------------------------
    "replay nofile.csv --policy slb": "nofile.csv: No such file or directory -> a .csv or .csv.gz file of samples",
    "replay / --policy slb": "/: Is a directory -> a .csv or .csv.gz file of samples",
    "replay --prometheus http://127.0.0.1:9 --bridge br0 --policy slb": "http://127.0.0.1:9: no answer (Connection refused) -> a Prometheus that answers",
    "replay --prometheus nowhere --bridge br0 --policy slb": "nowhere -> http://HOST:PORT or https://HOST:PORT",
}

# The words of a call that is wrong usage, and its last line.
WRONG_USAGE = {
    "": "the following arguments are required: COMMAND",
    "shwo": "argument COMMAND: no command is named shwo; the nearest is show -> one of those that ovs-lbt --help lists",
    "--nonsense show": "…",
    "show --nonsense": "unrecognized arguments: --nonsense",
    "-t b show": "argument -t/--target: b -> ovs-lbt, or ovs-lbt followed by…",
    "-t ../ovs-lbt show": "argument -t/--target: ../ovs-lbt -> ovs-lbt, or ovs-lbt followed…",
    "-t ovs-lbtaaaaaaaaaaaaaaaaaaaaaaaaaaaa show": "argument -t/--target: ovs-lbtaaa…",
    "top --interval nan": "argument --interval: nan -> seconds from 0.5 to 60",
    "top --interval 0": "argument --interval: 0 -> seconds from 0.5 to 60",
    "top --interval ７": "argument --interval: ７ -> seconds from 0.5 to 60",
    "top --interval 1_0": "argument --interval: 1_0 -> seconds from 0.5 to 60",
    "top --sort names": "argument --sort: names -> one of port, used-by, …",
    "plan br0 --endpoints": "argument --endpoints: not allowed with argument BRIDGE",
    "apply --json": "unrecognized arguments: --json",
    "explain": "the following arguments are required: PORT",
    "history --last nan": "argument --last: nan -> an integer from 1 to 1000000",
    "history --last 0": "argument --last: 0 -> an integer from 1 to 1000000",
    "history --last ７": "argument --last: ７ -> an integer from 1 to 1000000",
    "history --last ''": "argument --last: nothing -> an integer from 1 to 1000000",
    "history --last 9999999": "argument --last: 9999999 -> an integer from 1 to 1000000",
    "attach": "the following arguments are required: BRIDGE",
    "attach br2 --uplink": "argument --uplink: expected one argument",
    "attach br2 br3": "unrecognized arguments: br3",
    "attach br0 --rollback-after": "argument --rollback-after/--confirm: expected one argument",
    "attach br0 --rollback-after 4": "argument --rollback-after/--confirm: 4 -> seconds from 5 to 86400",
    "set bridge br0 threshold=60 --rollback-after 86401": "argument --rollback-after/--confirm: 86401 -> seconds from 5…",
    "confirm": "the following arguments are required: BRIDGE",
    "revert br0 br1": "unrecognized arguments: br1",
    "detach": "the following arguments are required: BRIDGE",
    "detach br0 --rollback-after soon": "argument --rollback-after/--confirm: soon -> seconds from 5 to 86400",
    "detach br0 --purge=x": "argument --purge: ignored explicit argument 'x'",
    "set": "the following arguments are required: bridge|interface, NAME, KEY=VALUE",
    "set bridge br0": "the following arguments are required: KEY=VALUE",
    "set port vnet0 pin=eth0": "argument bridge|interface: port -> one of bridge, interface",
    "set bridge br0 threshold": "threshold: no value -> threshold=VALUE; for its values: ovs-lbt set --help",
    "set bridge br0 ''": f"no key of a bridge is named '' -> {KEYS}",
    "set bridge br0 =60": f"no key of a bridge is named '' -> {KEYS}",
    "set bridge br0 treshold=60": f"no key of a bridge is named treshold; the nearest is threshold -> {KEYS}",
    "set bridge br0 ovs-lbt-threshold=60": f"no key of a bridge is named ovs-lbt-threshold; the nearest is threshold -> {KEYS}",
    "set bridge br0 no-flood-before=vnet0": f"no key of a bridge is named no-flood-before -> {KEYS}",
    "set bridge br0 vm-9c5e-pin=eth0": f"no key of a bridge is named vm-9c5e-pin -> {KEYS}",
    "set bridge br0 role=active": f"no key of a bridge is named role -> {KEYS}",
    f"set bridge br0 {LONG}=1": "no key of a bridge is named xxx… (5000 characters) -> …",
    "set bridge br0 threshold=50 threshold=55": "threshold: given 2 times -> once",
    "set interface eth0 role=active role=standby": "role: given 2 times -> once",
    "set interface vnet0 threshold=60": f"no key of a VM port or an uplink is named threshold -> {KEYS}",
    "set interface vnet0 binding=eth1": f"no key of a VM port or an uplink is named binding -> {KEYS}",
    "move vnet1": "the following arguments are required: UPLINK",
    "move vnet1 eth0 eth1": "unrecognized arguments: eth1",
    "pin vnet1": "the following arguments are required: UPLINK",
    "unpin": "the following arguments are required: PORT",
    "drain": "the following arguments are required: UPLINK",
    "run --metrics x": "--metrics: x -> ADDR:PORT or none",
    "run --metrics 127.0.0.1:９４７６": "--metrics: 127.0.0.1:９４７６ -> ADDR:PORT or none",
    "run --listen x": "--listen: x -> ADDR:PORT",
    "run --ovsdb x": "--ovsdb: x -> unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT",
    "run --ovsdb ssl:host": "--ovsdb: ssl:host -> unix:PATH, tcp:HOST:PORT or ssl:…",
    "run --name other": "argument --name: other -> ovs-lbt, or ovs-lbt followed by…",
    "rescue": "one of the arguments BRIDGE --all is required",
    "rescue br0 --all": "argument --all: not allowed with argument BRIDGE",
    "replay": "the following arguments are required: --policy",
    "replay --policy slb": "expected either TRACE or --prometheus URL",
    "replay t.csv --policy fast": "argument --policy: invalid choice: 'fast'…",
    "replay t.csv --policy slb --uplinks ２": "argument --uplinks: ２ -> a whole number…",
    "replay t.csv --policy slb --uplinks 1": "argument --uplinks: 1 -> a whole number…",
    "replay t.csv --policy slb --seed x": "argument --seed: x -> a whole number…",
    "replay t.csv --policy slb --set foo=1": "argument --set: foo -> one of threshold…",
    "replay t.csv --policy slb --set threshold=５０": f"argument --set: threshold ５０ -> {PERCENT}",
    "replay t.csv --policy slb --set threshold=50 --set threshold=60": "--set threshold: given 2 times -> once",
    "replay t.csv --policy slb --bridge br0": "expected --prometheus URL and --bridge B…",
    "replay --prometheus http://127.0.0.1:9 --bridge br0 --since ７d --policy slb": "argument --since: ７d -> e.g. 90m, 12h, 7d or 2w",
}

# A variable, its value, and the words of a call that it makes wrong usage, and its last line.
VARIABLES = {
    ("OVS_LBT_METRICS", "x", "run"): "OVS_LBT_METRICS: x -> ADDR:PORT or none",
    ("OVS_LBT_LISTEN", "x", "run"): "OVS_LBT_LISTEN: x -> ADDR:PORT",
    ("OVS_LBT_OVSDB", "x", "run"): "OVS_LBT_OVSDB: x -> unix:PATH, tcp:HOST:PORT or…",
    ("OVS_LBT_NAME", "b", "show"): "OVS_LBT_NAME: b -> ovs-lbt, or ovs-lbt followed by…",
}

# What is said by a service with another name than the one that is running.
OTHER_NAME = {
    "detach br0": "no service ovs-lbt-c is running -> the service that is: ovs-lbt -t ovs-lbt detach br0",
    "show": "no service is running -> start one with: ovs-lbt run --name ovs-lbt-c",
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
WRITES: list[tuple[str, str, str, str, str]] = [
    ("br0", "threshold", "７５", "Bridge br0", PERCENT),
    ("br0", "threshold", "", "Bridge br0", PERCENT),
    ("br0", "threshold", LONG, "Bridge br0", f"{PERCENT}; 4096 characters at most"),
    ("br0", "mode", "watch", "Bridge br0", "one of enforce, observe"),
    ("br0", "connection-hash", "hash", "Bridge br0", HASHES),
    ("br0", "policy", "fast", "Bridge br0", "one of originating-port…"),
    ("br0", "policy", "ip-hash", "Bridge br0", "…"),
    ("br0", "teaming", "lacp", "Bridge br0", "a bond with lacp active or passive…"),
    ("br0", "teaming", "LAG", "Bridge br0", "one of switch-independent, static, lacp"),
    ("br0", "window-s", "1 0", "Bridge br0", WINDOW),
    ("br0", "poll-interval-ms", "1", "Bridge br0", "milliseconds from 100 to 60000"),
    ("br0", "failback-delay-s", "x", "Bridge br0", "seconds from 0 to 86400, or never"),
    ("br0", "treshold", "60", "Bridge br0", "one of ovs-lbt-policy, ovs-lbt-uplinks, …"),
    ("br0", "before", "{", "Bridge br0", "written by the service, as JSON: …"),
    ("br0", "before", '{"fail_mode": "up"}', "Bridge br0", "written by the service, as JSON: …"),
    ("br0", "uplinks", "eth0,vnet0", "Bridge br0", OF_THE_BOND),
    ("br0", "uplinks", "eth1", "Bridge br0", "2 to 64 interface names, comma-separated"),
    ("br0", "uplinks", "eth0,eth9", "Bridge br0", "an interface of br0; …"),
    ("br0", "vm-9c5e-pin", "vnet0", "Bridge br0", "one of eth0, eth1"),
    ("br0", "vm-9c5e-allow", "eth9", "Bridge br0", "some of eth1, eth0, comma-separated…"),
    ("br1", "uplinks", "eth2,eth3", "Bridge br1", "eth4 with role=unused; or remove it: …"),
    ("br1", "uplinks", "eth2,eth3,eth4,web0", "Bridge br1", ROLE.format("web0")),
    ("br1", "uplinks", "eth2,eth3,eth4,br1", "Bridge br1", ROLE.format("br1")),
    ("eth0", "role", "spare", "Interface eth0", "one of active, standby, unused, drained"),
    ("eth0", "capacity-mbps", "fast", "Interface eth0", MBPS),
    ("eth0", "qdisc", "x", "Interface eth0", "one of keep, replace"),
    ("eth0", "pin", "eth1", "Interface eth0", "one of ovs-lbt-capacity-mbps, ovs-lbt-qdisc, …"),
    ("vnet0", "pin", "eth9", "Interface vnet0", "one of eth0, eth1"),
    ("vnet0", "role", "active", "Interface vnet0", "one of ovs-lbt-pin, ovs-lbt-allow, …"),
    ("vnet0", "affinity", "a,b", "Interface vnet0", SET_NAME),
    ("vnet0", "shares", "５０", "Interface vnet0", "an integer from 1 to 100"),
    ("vnet0", "exclude", "yes", "Interface vnet0", "true or false"),
    ("vnet0", "moved", "x", "Interface vnet0", "written by the service"),
    ("vnet1", "prefer", "!eth0,!eth1", "Interface vnet1", "some of eth1, eth0, comma-separated…"),
    ("web0", "allow", "web1", "Interface web0", "some of eth2, eth3, eth4, comma-separated…"),
]
