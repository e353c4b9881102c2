"""Examples of each command, for its `--help`."""

from __future__ import annotations

# By command: what is typed, and what it does.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("ovs-lbt run", "on the Open vSwitch of this host"),
        ("ovs-lbt run --metrics 0.0.0.0:9476 --metrics-ca-cert ca.pem", "metrics over TLS"),
        ("ovs-lbt run --name ovs-lbt-b --metrics 127.0.0.1:9477", "a second one, on standby"),
    ),
    "attach": (
        ("ovs-lbt attach br0", "a bridge with a bond"),
        ("ovs-lbt attach br0 --observe", "decide and report only"),
        (
            "ovs-lbt attach br0 --rollback-after 60",
            "rolled back in a minute, unless: ovs-lbt confirm br0",
        ),
        ("ovs-lbt attach br0 --uplink eth0 --uplink eth1 --policy adaptive", "plain uplinks"),
    ),
    "detach": (
        ("ovs-lbt detach br0", "settings of uplinks and VM ports stay"),
        ("ovs-lbt detach br0 --purge", "nothing of ovs-lbt stays in the database"),
    ),
    "check": (
        ("ovs-lbt check", "all attached bridges"),
        ("ovs-lbt check br0", "one, or whether it is fit to attach"),
        ("ovs-lbt check br0 --uplink eth0 --uplink eth1", "the same, with plain uplinks"),
        ("ovs-lbt check --json", "for a program"),
    ),
    "confirm": (("ovs-lbt confirm br0", "keeps what was done with --rollback-after"),),
    "rollback": (("ovs-lbt rollback br0", "undoes it now"),),
    "show": (
        ("ovs-lbt show", "all attached bridges"),
        ("ovs-lbt show br0 --json", "one bridge, for a program"),
    ),
    "top": (
        ("ovs-lbt top br0", "one bridge"),
        ("ovs-lbt top --sort drops --filter web", "VM ports with this text"),
        ("ovs-lbt top --once", "one screen as text"),
    ),
    "set": (
        ("ovs-lbt set bridge br0 threshold=60 window-s=10", "a bridge"),
        ("ovs-lbt set interface eth1 role=standby", "an uplink"),
        ("ovs-lbt set interface vnet0 prefer=eth1 shares=80", "a VM port"),
        ("ovs-lbt set interface vnet0 prefer=", "remove the rule"),
    ),
    "move": (("ovs-lbt move vnet0 eth1", "vnet0 uses eth1 until its policy moves it"),),
    "pin": (("ovs-lbt pin vnet0 eth1", "vnet0 uses eth1 while that works"),),
    "unpin": (("ovs-lbt unpin vnet0", "its policy may move it again"),),
    "drain": (("ovs-lbt drain eth1", "answers when eth1 is idle"),),
    "undrain": (("ovs-lbt undrain eth1", "restore eth1's previous role"),),
    "plan": (
        ("ovs-lbt plan br0", "what would move now, and why"),
        ("ovs-lbt plan --endpoints", "on a host with several tunnel endpoints"),
    ),
    "apply": (("ovs-lbt apply br0", "makes the moves that plan has shown"),),
    "explain": (
        ("ovs-lbt explain vnet0", "by the interface"),
        ("ovs-lbt explain web-1 --json", "by the VM, for a program"),
    ),
    "history": (
        ("ovs-lbt history br0 --last 5", "the last 5 entries of a bridge"),
        ("ovs-lbt history --port vnet0 --json", "one VM port, for a program"),
    ),
    "rescue": (
        ("ovs-lbt rescue br0", "one bridge"),
        ("ovs-lbt rescue --all", "every bridge that needs it"),
    ),
    "support-bundle": (
        ("ovs-lbt support-bundle", "a file in this directory"),
        ("ovs-lbt support-bundle --out /var/tmp br0", "of one bridge, in another directory"),
    ),
    "completion": (
        (". <(ovs-lbt completion bash)", "in this shell"),
        (
            "ovs-lbt completion zsh >/usr/local/share/zsh/site-functions/_ovs-lbt",
            "in every zsh; the package has done this",
        ),
    ),
    "replay": (
        ("ovs-lbt replay trace.csv.gz --policy load-based --policy adaptive", "from a file"),
        (
            "ovs-lbt replay --prometheus http://127.0.0.1:9090 --bridge br0 --policy adaptive",
            "from recorded metrics",
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
