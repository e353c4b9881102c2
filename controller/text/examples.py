"""Examples of each command, for its `--help`."""

from __future__ import annotations

# By command: what is typed, and what it does.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("ovs-lbt run", "use the Open vSwitch of this host"),
        ("ovs-lbt run --metrics 0.0.0.0:9476 --metrics-ca-cert ca.pem", "serve metrics over TLS"),
        ("ovs-lbt run --name ovs-lbt-b --metrics 127.0.0.1:9477", "add a standby service"),
    ),
    "attach": (
        ("ovs-lbt attach br0", "attach a bridge with a bond"),
        ("ovs-lbt attach br0 --observe", "report decisions, and move nothing"),
        (
            "ovs-lbt attach br0 --rollback-after 60",
            "roll back in a minute, unless: ovs-lbt confirm br0",
        ),
        ("ovs-lbt attach br0 --uplink eth0 --uplink eth1 --policy adaptive", "use these uplinks"),
    ),
    "detach": (
        ("ovs-lbt detach br0", "keep settings of uplinks and VM ports"),
        ("ovs-lbt detach br0 --purge", "remove all settings of ovs-lbt"),
    ),
    "check": (
        ("ovs-lbt check", "check all attached bridges"),
        ("ovs-lbt check br0", "check one bridge, attached or not"),
        ("ovs-lbt check br0 --uplink eth0 --uplink eth1", "check an attach with these uplinks"),
        ("ovs-lbt check --json", "print JSON for a program"),
    ),
    "confirm": (("ovs-lbt confirm br0", "keep a change made with --rollback-after"),),
    "rollback": (("ovs-lbt rollback br0", "undo this change now"),),
    "show": (
        ("ovs-lbt show", "show all attached bridges"),
        ("ovs-lbt show br0 --json", "print one bridge as JSON"),
    ),
    "top": (
        ("ovs-lbt top br0", "show one bridge"),
        ("ovs-lbt top --sort drops --filter web", "show only VM ports with this text"),
        ("ovs-lbt top --once", "print one screen as text"),
    ),
    "set": (
        ("ovs-lbt set bridge br0 threshold=60 window-s=10", "change settings of a bridge"),
        ("ovs-lbt set interface eth1 role=standby", "change the role of an uplink"),
        ("ovs-lbt set interface vnet0 prefer=eth1 shares=80", "set rules of a VM port"),
        ("ovs-lbt set interface vnet0 prefer=", "remove the rule"),
    ),
    "move": (("ovs-lbt move vnet0 eth1", "use eth1 until the policy moves vnet0"),),
    "pin": (("ovs-lbt pin vnet0 eth1", "use eth1 while eth1 is in service"),),
    "unpin": (("ovs-lbt unpin vnet0", "allow the policy to move vnet0"),),
    "drain": (("ovs-lbt drain eth1", "return when eth1 is idle"),),
    "undrain": (("ovs-lbt undrain eth1", "restore eth1's previous role"),),
    "plan": (
        ("ovs-lbt plan br0", "show planned moves with their reasons"),
        ("ovs-lbt plan --endpoints", "plan tunnel endpoints of VMs"),
    ),
    "apply": (("ovs-lbt apply br0", "make the moves that plan has shown"),),
    "explain": (
        ("ovs-lbt explain vnet0", "name the VM port by its interface"),
        ("ovs-lbt explain web-1 --json", "name the VM port by its VM"),
    ),
    "history": (
        ("ovs-lbt history br0 --last 5", "show the last 5 entries of a bridge"),
        ("ovs-lbt history --port vnet0 --json", "print entries of a VM port as JSON"),
    ),
    "rescue": (
        ("ovs-lbt rescue br0", "rescue one bridge"),
        ("ovs-lbt rescue --all", "rescue every bridge that needs it"),
    ),
    "support-bundle": (
        ("ovs-lbt support-bundle", "write a file to this directory"),
        ("ovs-lbt support-bundle --out /var/tmp br0", "include flows of one bridge"),
    ),
    "completion": (
        (". <(ovs-lbt completion bash)", "complete commands in this shell"),
        (
            "ovs-lbt completion zsh >/usr/local/share/zsh/site-functions/_ovs-lbt",
            "install for zsh, as the package does",
        ),
    ),
    "replay": (
        ("ovs-lbt replay trace.csv.gz --policy load-based --policy adaptive", "replay a file"),
        (
            "ovs-lbt replay --prometheus http://127.0.0.1:9090 --bridge br0 --policy adaptive",
            "replay recorded metrics",
        ),
    ),
}
COMMAND_WIDTH = 44


def text(command: str) -> str:
    """The examples of a command, under a title; empty if it has none."""
    lines = []
    for typed, does in EXAMPLES.get(command, ()):
        first = f"  {typed}"
        together = f"{first:<{COMMAND_WIDTH}}  {does}"
        fits = len(first) <= COMMAND_WIDTH
        lines += [together] if fits else [first, f"{'':<{COMMAND_WIDTH}}  {does}"]
    title = "example" if len(EXAMPLES.get(command, ())) == 1 else "examples"
    return "\n".join([f"{title}:", *lines]) if lines else ""
