"""The table of commands, from which help, usage, requests and completion of `ovs-lbt` derive.

To add a command, add a row here. If the service carries out the command, also add a function in
`operations.operator`; if the command does not need the service, add a function in `cli`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from controller.api import history
from controller.api.requests import Argument, Command
from controller.config import keys
from controller.config.kinds import DAY_S, DURATION, Kind, checked, integer, seconds
from controller.text import top_manual
from controller.text.wording import invalid

# The default name of the service.
SERVICE = "ovs-lbt"
SERVICE_NAME = f"{SERVICE}, or {SERVICE} followed by up to 20 letters, digits, dots, dashes or underscores, such as {SERVICE}-b"
DEFAULT_METRICS = "127.0.0.1:9476"
# The minimum and the maximum of `--rollback-after`.
LEAST_CONFIRM_S, MOST_CONFIRM_S = 5.0, DAY_S


def _valid(kind: Kind) -> Callable[[str], str]:
    """Return a function that checks a value and returns it unchanged."""

    def check(text: str) -> str:
        try:
            kind.parse(text)
        except ValueError:
            raise ValueError(invalid(text, kind.expected)) from None
        return text

    return check


# Checks the name of a service, like the checks of other values.
service_name = _valid(
    Kind(checked(str, re.compile(rf"{SERVICE}[A-Za-z0-9._-]{{0,20}}").fullmatch), SERVICE_NAME)
)


def _yes(option: str) -> Argument:
    text = f"with {option}: perform the migration instead of only printing its steps"
    return Argument("--yes", help=text, local=True)


BRIDGE = Argument("bridge", "BRIDGE")
ANY_BRIDGE = Argument("bridge", "BRIDGE", nargs="?")
PORT = Argument("port", "PORT", "the interface or the VM")
UPLINK = Argument("uplink", "UPLINK")
RECORD = (
    Argument("table", "bridge|interface", choices=("bridge", "interface")),
    Argument("name", "NAME"),
)
JSON = Argument("--json", help="print JSON")
DRY_RUN = Argument("--dry-run", help="run all checks and print the changes, but do not make them")
ROLLBACK_AFTER = Argument(
    "--rollback-after",
    "S",
    "roll back after S seconds (5 to 86400), unless `ovs-lbt confirm BRIDGE` is run",
    older="--confirm",
    parse=_valid(seconds(LEAST_CONFIRM_S, MOST_CONFIRM_S)),
)

_ROWS = (
    Command(
        "run",
        "run the service",
        (
            Argument(
                "--ovsdb",
                "unix:PATH|tcp:HOST:PORT|ssl:HOST:PORT",
                "the address of Open vSwitch's database (default: db.sock in Open vSwitch's run directory)",
            ),
            Argument(
                "--listen",
                "ADDR:PORT",
                "accept connections from bridges at this address, over TLS if TLS files are given (default: none)",
            ),
            Argument("--private-key", "FILE", "TLS: the private key of this service"),
            Argument("--certificate", "FILE", "TLS: the certificate of this service"),
            Argument(
                "--ca-cert",
                "FILE",
                "TLS: the CA that signed the certificates of the switch and the database",
            ),
            Argument(
                "--metrics-ca-cert",
                "FILE",
                "TLS: the CA that signed the certificates of clients that can read metrics",
            ),
            Argument(
                "--metrics",
                "ADDR:PORT",
                f"serve metrics at this address; none: no metrics (default: {DEFAULT_METRICS})",
            ),
            Argument(
                "--history",
                "FILE",
                "the file in which decisions are recorded; none: no file "
                "(default: ovs-lbt-history.jsonl in Open vSwitch's log directory)",
            ),
            Argument(
                "--name",
                "NAME",
                "the name of this service; two services on one Open vSwitch instance need different names: "
                "one leads, and the other is on standby (default: ovs-lbt)",
                parse=service_name,
            ),
            Argument("--verbose", help="also log debug messages"),
        ),
        (
            "ovs-lbt run  # use the Open vSwitch of this host",
            "ovs-lbt run --metrics 0.0.0.0:9476 --metrics-ca-cert ca.pem  # serve metrics over TLS",
            "ovs-lbt run --name ovs-lbt-b --metrics 127.0.0.1:9477  # add a standby service",
        ),
        requested=False,
    ),
    Command(
        "attach",
        "start managing a bridge",
        (
            BRIDGE,
            Argument(
                "--uplink",
                "IF",
                "an uplink; repeat the option in failover order (default: the members of the bridge's bond)",
                repeated=True,
                setting="uplinks",
            ),
            Argument("--policy", "P", "the teaming policy (default: load-based)", setting="policy"),
            Argument("--teaming", "T", "switch-independent, static or lacp", setting="teaming"),
            Argument(
                "--observe",
                help="report decisions, but do not move VM ports",
                setting="mode",
                setting_value="observe",
            ),
            Argument(
                "--from-bond",
                "BOND",
                "first migrate this Linux bond, with its members, addresses, routes and VLANs, to the bridge",
                local=True,
            ),
            _yes("--from-bond"),
            ROLLBACK_AFTER,
        ),
        (
            "ovs-lbt attach br0  # attach a bridge with a bond",
            "ovs-lbt attach br0 --observe  # report decisions, but do not move VM ports",
            "ovs-lbt attach br0 --rollback-after 60  # roll back after 60 s unless confirmed",
            "ovs-lbt attach br0 --uplink eth0 --uplink eth1 --policy adaptive  # use these uplinks",
        ),
        details=keys.attach_manual,
        slow=True,
        most_settings=31,
    ),
    Command(
        "detach",
        "stop managing a bridge, and restore its previous configuration",
        (
            BRIDGE,
            Argument(
                "--purge",
                help="also remove all ovs-lbt settings, even if the bridge is already detached",
            ),
            Argument(
                "--to-bond",
                "BOND",
                "after the detach, restore the Linux bond that attach --from-bond migrated",
                local=True,
            ),
            _yes("--to-bond"),
            ROLLBACK_AFTER,
        ),
        (
            "ovs-lbt detach br0  # keep settings of uplinks and VM ports",
            "ovs-lbt detach br0 --purge  # remove all ovs-lbt settings",
        ),
        slow=True,
    ),
    Command(
        "confirm",
        "keep a change that was made with --rollback-after",
        (BRIDGE,),
        ("ovs-lbt confirm br0  # keep a change made with --rollback-after",),
    ),
    Command(
        "rollback",
        "undo a change that was made with --rollback-after and is not confirmed",
        (BRIDGE,),
        ("ovs-lbt rollback br0  # undo the unconfirmed change now",),
        aliases=("revert",),
        slow=True,
    ),
    Command(
        "check",
        "check whether bridges are healthy, or whether a bridge can be attached",
        (
            ANY_BRIDGE,
            Argument(
                "--uplink",
                "IF",
                "an uplink that attach would use, in failover order (default: the members of the bridge's bond)",
                repeated=True,
                setting="uplinks",
            ),
            Argument("--policy", "P", "the policy that attach would use", setting="policy"),
            Argument("--teaming", "T", "the teaming mode attach would use", setting="teaming"),
            JSON,
        ),
        (
            "ovs-lbt check  # check all attached bridges",
            "ovs-lbt check br0  # check one bridge, attached or not",
            "ovs-lbt check br0 --uplink eth0 --uplink eth1  # check an attach that uses these uplinks",
            "ovs-lbt check --json  # print JSON for a program",
        ),
        "Check whether attached bridges are healthy, and whether the upstream network matches their configuration.\n"
        "If BRIDGE is not attached, check whether an attach would succeed. No bridge is changed.\n"
        "Exit status: 0 no findings, 1 findings, 2 a bridge could not be checked.",
        slow=True,
        reads=True,
        most_settings=31,
    ),
    Command(
        "show",
        "show uplinks, VM ports, and the uplink of each VM port",
        (ANY_BRIDGE, JSON),
        (
            "ovs-lbt show  # show all attached bridges",
            "ovs-lbt show br0 --json  # print one bridge as JSON",
        ),
        reads=True,
    ),
    Command(
        "top",
        "watch uplinks, VM ports and decisions",
        (
            Argument("bridges", "BRIDGE", "the bridges (default: all)", nargs="*"),
            Argument(
                "--interval",
                "S",
                "seconds between two updates, 0.5 to 60 (default: %(default)g)",
                parse=_valid(seconds(top_manual.LEAST_INTERVAL_S, top_manual.MOST_INTERVAL_S)),
                default=top_manual.INTERVAL_S,
            ),
            Argument(
                "--sort",
                "COLUMN",
                f"sort by one of {', '.join(top_manual.SORTS)} (default: %(default)s)",
                choices=tuple(top_manual.SORTS),
                default=top_manual.SORT,
            ),
            Argument(
                "--filter",
                "TEXT",
                "show only VM ports with this text in their name, VM, uplink or reason",
                default="",
            ),
            Argument("--once", help="print one screen as plain text, for scripts and pipes"),
        ),
        (
            "ovs-lbt top br0  # show one bridge",
            "ovs-lbt top --sort drops --filter web  # show VM ports matching web, sorted by drops",
            "ovs-lbt top --once  # print one screen as text",
        ),
        top_manual.SUMMARY,
        details=lambda: top_manual.TEXT,
        requested=False,
    ),
    Command(
        "set",
        "check settings and change them",
        (*RECORD, Argument("settings", "KEY=VALUE", nargs="+"), ROLLBACK_AFTER),
        (
            "ovs-lbt set bridge br0 threshold=60 window-s=10  # change settings of a bridge",
            "ovs-lbt set bridge br0 mode=observe policy=adaptive  # try a policy without moving VM ports",
            "ovs-lbt set interface eth1 role=standby  # change the role of an uplink",
            "ovs-lbt set interface vnet0 prefer=eth1 shares=80  # set rules of a VM port",
            "ovs-lbt set interface vnet0 prefer=  # remove the rule prefer",
        ),
        details=keys.manual,
        most_settings=62,
    ),
    Command(
        "get",
        "show settings with their values, defaults, origins and meanings",
        (*RECORD, Argument("key", "KEY", "show only this setting (default: all)", nargs="?"), JSON),
        (
            "ovs-lbt get bridge br0  # show all settings of a bridge",
            "ovs-lbt get bridge br0 threshold  # print one value",
            "ovs-lbt get interface vnet0 --json  # print the settings of a VM port as JSON",
        ),
        aliases=("settings",),
        reads=True,
    ),
    Command(
        "unset",
        "remove settings, so that their defaults apply",
        (*RECORD, Argument("keys", "KEY", nargs="+")),
        ("ovs-lbt unset bridge br0 threshold window-s  # use the defaults again",),
        most_settings=62,
    ),
    Command(
        "move",
        "bind a VM port to an uplink now",
        (PORT, UPLINK),
        ("ovs-lbt move vnet0 eth1  # use eth1 until the policy moves vnet0",),
    ),
    Command(
        "pin",
        "bind a VM port to an uplink permanently",
        (PORT, UPLINK),
        ("ovs-lbt pin vnet0 eth1  # use eth1 while eth1 is in service",),
    ),
    Command(
        "unpin",
        "allow the policy to move a VM port again",
        (PORT,),
        ("ovs-lbt unpin vnet0  # allow the policy to move vnet0",),
    ),
    Command(
        "drain",
        "move all VM ports off an uplink, and wait until the uplink is idle",
        (UPLINK,),
        ("ovs-lbt drain eth1  # move VM ports, and return when eth1 is idle",),
    ),
    Command(
        "undrain",
        "use a drained uplink again",
        (UPLINK,),
        ("ovs-lbt undrain eth1  # restore eth1's previous role",),
    ),
    Command(
        "plan",
        "show the moves that the policies would make now",
        (
            ANY_BRIDGE,
            Argument(
                "--endpoints",
                help="measure the loads of this host's VMs for 10 s (two updates of statistics), and show the best tunnel endpoint for each VM",
                local=True,
            ),
            JSON,
        ),
        (
            "ovs-lbt plan br0  # show planned moves with their reasons",
            "ovs-lbt plan --endpoints  # plan tunnel endpoints of VMs",
        ),
        reads=True,
        exclusive=True,
    ),
    Command(
        "apply",
        "make the moves of the last plan",
        (ANY_BRIDGE, Argument("--plan", "ID", "apply only if the last plan has this ID")),
        (
            "ovs-lbt apply br0  # make the moves of the last plan of br0",
            "ovs-lbt apply --plan 3f9a2c1e  # make the moves only if this is still the last plan",
        ),
    ),
    Command(
        "explain",
        "explain why a VM port is on its uplink",
        (PORT, JSON),
        (
            "ovs-lbt explain vnet0  # use the name of the interface",
            "ovs-lbt explain web-1 --json  # use the name of the VM",
        ),
        reads=True,
    ),
    Command(
        "history",
        "show past decisions, with their reasons and results",
        (
            ANY_BRIDGE,
            Argument("--port", "PORT", "show only entries about this VM port or VM"),
            Argument(
                "--last",
                "N",
                "show the last N entries (default: 20)",
                parse=_valid(integer(1, history.MOST)),
            ),
            Argument("--since", "12h", "show all entries of the last 12h", parse=_valid(DURATION)),
            Argument("--json", help="print each entry as a line of JSON"),
        ),
        (
            "ovs-lbt history --since 1h  # show the entries of the last hour",
            "ovs-lbt history br0 --last 5  # show the last 5 entries of a bridge",
            "ovs-lbt history --port vnet0 --json  # print entries of a VM port as JSON",
        ),
        reads=True,
    ),
    Command(
        "rescue",
        "restore forwarding on a bridge with plain uplinks while the service is stopped",
        (ANY_BRIDGE, Argument("--all", help="rescue every attached bridge that needs a rescue")),
        (
            "ovs-lbt rescue br0  # rescue one bridge",
            "ovs-lbt rescue --all  # rescue every bridge that needs a rescue",
        ),
        requested=False,
        exclusive=True,
        one_required=True,
    ),
    Command(
        "support-bundle",
        "write a file with the data for troubleshooting",
        (
            Argument("bridges", "BRIDGE", "only these bridges (default: all attached)", nargs="*"),
            Argument(
                "--out",
                "FILE",
                "the file to write, or its directory (default: ovs-lbt-support-HOST-TIME.tar.gz in the current directory)",
                parse=Path,
            ),
        ),
        (
            "ovs-lbt support-bundle  # write a file to the current directory",
            "ovs-lbt support-bundle --out /var/tmp br0  # include only br0's flows",
        ),
        "Write a file with the data for troubleshooting: settings, status, history, flows, groups,\n"
        "counters, versions and logs, without secrets. This command also works without the service.",
        requested=False,
    ),
    Command(
        "completion",
        "print a shell script that completes commands",
        (Argument("shell", "bash|zsh|fish", choices=("bash", "zsh", "fish")),),
        (
            ". <(ovs-lbt completion bash)  # complete commands in this shell",
            "ovs-lbt completion zsh >/usr/local/share/zsh/site-functions/_ovs-lbt  # install the completion for zsh, as the package does",
        ),
        requested=False,
    ),
    # The next two commands have separate parsers.
    Command(
        "replay",
        "show how policies would place recorded traffic",
        examples=(
            "ovs-lbt replay trace.csv.gz --policy load-based --policy adaptive  # replay a file",
            "ovs-lbt replay --prometheus http://127.0.0.1:9090 --bridge br0 --policy adaptive  # replay recorded metrics",
        ),
        requested=False,
    ),
    Command(
        "bench",
        "run a benchmark layout",
        examples=("ovs-lbt bench vmware_lbt --quick  # benchmark for a few minutes",),
        requested=False,
    ),
)
COMMANDS = tuple(
    replace(row, arguments=(*row.arguments, DRY_RUN)) if row.changes else row for row in _ROWS
)
# The commands in `ovs-lbt --help`, by purpose.
GROUPS = {
    "first steps": ("check", "attach", "confirm", "rollback", "detach"),
    "look": ("show", "top", "explain", "history", "plan"),
    "place": ("apply", "move", "pin", "unpin", "get", "set", "unset"),
    "maintain": ("drain", "undrain", "rescue", "support-bundle"),
    "service": ("run", "completion"),
    "bench": ("replay", "bench"),
}
# The commands by name and by alias.
BY_NAME = {name: row for row in COMMANDS for name in (row.name, *row.aliases)}
# The commands that the service carries out, by name and by alias.
REQUESTS = {name: row for name, row in BY_NAME.items() if row.requested}
SLOW = frozenset(name for name, row in REQUESTS.items() if row.slow)
READING = frozenset(name for name, row in REQUESTS.items() if row.reads)


def listing() -> str:
    """Return the list of commands in `ovs-lbt --help`, grouped by purpose, each with an example."""
    lines = list[str]()
    for title, names in GROUPS.items():
        lines += ["", f"{title}:"]
        for row in map(BY_NAME.__getitem__, names):
            lines += [f"  {row.name:<16}{row.help}", f"{'':<18}{row.example_pairs()[0][0]}"]
    return "\n".join(lines)
