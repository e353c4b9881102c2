"""The arguments of all commands, and their help."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from controller.host import client
from controller.text import examples
from controller.text.wording import one_line
from controller.top import manual

DEFAULT_METRICS = "127.0.0.1:9476"
SERVICE_NAME = f"{client.NAME}, or {client.NAME} followed by up to 20 letters, digits, dots, dashes or underscores, such as {client.NAME}-b"


class _Parser(argparse.ArgumentParser):
    """A parser that makes its epilog only for `--help`, because that takes a while."""

    epilog_of: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.epilog_of is not None:
            parts = [self.epilog_of(), self.epilog]
            self.epilog = "\n\n".join(part for part in parts if part)
            self.epilog_of = None
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


class _Version(argparse.Action):
    """Prints the version, which takes a while to find."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_given: object) -> None:
        import importlib.metadata

        print(f"{parser.prog} {importlib.metadata.version('ovs-lbt')}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The parser of all commands. `replay` and `bench` have parsers of their own, too."""
    made = _Parser(
        prog="ovs-lbt",
        description="Load-Based Teaming for Open vSwitch.",
        epilog="ovs-lbt COMMAND --help: the arguments of a command, with examples. See also: man ovs-lbt",
    )
    made.add_argument("--version", action=_Version, help="print the version and exit")
    made.add_argument(
        *("-t", "--target"),
        dest="service",
        metavar="NAME",
        type=_service,
        help=f"the service to connect to, if several run on one Open vSwitch instance (default: {client.NAME})",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_run,
        _add_attach,
        _add_detach,
        _add_confirm_and_revert,
        _add_check,
        _add_show,
        _add_top,
        _add_set,
        _add_moves,
        _add_plan_and_apply,
        _add_explain,
        _add_history,
        _add_rescue,
        _add_support_bundle,
        _add_completion,
    ):
        add(commands)
    commands.add_parser("replay", help="show how policies would place recorded traffic")
    commands.add_parser("bench", help="run a benchmark layout")
    _add_examples(commands)
    return made


def other_parsers() -> dict[str, Callable[[], argparse.ArgumentParser]]:
    """The parsers of commands that have their own."""

    def replay() -> argparse.ArgumentParser:
        from controller.replay import command

        return command._parser()

    def bench() -> argparse.ArgumentParser:
        from topologies import bench

        return bench._parser()

    return {"replay": replay, "bench": bench}


def service_asked(parser: argparse.ArgumentParser, given: str | None) -> str:
    """The name of the service to ask: the option, else the variable, else the default."""
    if given is not None or not (named := os.environ.get("OVS_LBT_NAME")):
        return given or client.NAME
    try:
        return _service(named)
    except argparse.ArgumentTypeError as error:
        parser.error(f"OVS_LBT_NAME: {error}")


def check_keys(parser: argparse.ArgumentParser, table: str, settings: Sequence[str]) -> None:
    """Exit with a usage error for keys that do not exist or are given twice."""
    from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_KEYS, settable
    from controller.text.wording import one_of, shortened

    ours = BRIDGE_KEYS if table == "bridge" else UPLINK_KEYS | VM_KEYS
    keys = sorted(settable(ours))
    seen: set[str] = set()
    for word in settings:
        key, equals, _ = word.partition("=")
        if not equals or key not in keys:
            found = shortened(word) or "nothing"
            parser.error(f"{found} -> KEY=VALUE with KEY {one_of(keys)}")
        if key in seen:
            parser.error(f"{key}: given twice -> once")
        seen.add(key)


def is_text(word: str) -> bool:
    """Whether an argument is valid UTF-8: Python passes other bytes on as lone surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="run the service")
    run.add_argument(
        "--ovsdb",
        metavar="unix:PATH|tcp:HOST:PORT|ssl:HOST:PORT",
        help="the address of Open vSwitch's database (default: db.sock in Open vSwitch's run directory)",
    )
    run.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        help="accept connections from bridges at this address; over TLS, if TLS files are given (default: none)",
    )
    for name, text in (
        ("private-key", "the private key of this service"),
        ("certificate", "the certificate of this service"),
        ("ca-cert", "the CA that signed the certificates of the switch and the database"),
        ("metrics-ca-cert", "the CA that signed the certificates of clients that may read metrics"),
    ):
        run.add_argument(f"--{name}", metavar="FILE", help=f"TLS: {text}")
    run.add_argument(
        "--metrics",
        metavar="ADDR:PORT",
        help=f"serve metrics at this address, or none (default: {DEFAULT_METRICS})",
    )
    run.add_argument(
        "--history",
        metavar="FILE",
        help="the file in which decisions are recorded, or none "
        "(default: ovs-lbt-history.jsonl in Open vSwitch's log directory)",
    )
    run.add_argument(
        "--name",
        dest="service",
        metavar="NAME",
        type=_service,
        default=argparse.SUPPRESS,
        help="the name of this service; two services on one Open vSwitch instance need different names: "
        "one leads, and the other is on standby (default: ovs-lbt)",
    )
    run.add_argument("--verbose", action="store_true", help="also log debug messages")


def _add_attach(commands: Any) -> None:
    attach = commands.add_parser("attach", help="start managing a bridge")
    attach.epilog_of = _keys_of_attach
    attach.add_argument("bridge", metavar="BRIDGE")
    attach.add_argument(
        "--uplink",
        metavar="IF",
        action="append",
        default=[],
        help="an uplink; repeat the option in failover order (default: the members of the bridge's bond)",
    )
    attach.add_argument("--policy", metavar="P", help="the teaming policy (default: load-based)")
    attach.add_argument("--teaming", metavar="T", help="switch-independent, static or lacp")
    attach.add_argument("--observe", action="store_true", help="report decisions, and move nothing")
    attach.add_argument(
        "--from-bond",
        metavar="BOND",
        help="first migrate this Linux bond to the bridge, with its members, addresses, routes and VLANs",
    )
    _add_yes(attach, "--from-bond")
    _add_confirm(attach)


def _add_detach(commands: Any) -> None:
    detach = commands.add_parser("detach", help="stop managing a bridge, and restore it")
    detach.add_argument("bridge", metavar="BRIDGE")
    detach.add_argument(
        "--purge",
        action="store_true",
        help="also remove all settings of ovs-lbt; also works on a detached bridge",
    )
    detach.add_argument(
        "--to-bond",
        metavar="BOND",
        help="then restore the Linux bond that attach --from-bond migrated",
    )
    _add_yes(detach, "--to-bond")
    _add_confirm(detach)


def _add_confirm_and_revert(commands: Any) -> None:
    confirm = commands.add_parser(
        "confirm", help="keep a change that was made with --rollback-after"
    )
    confirm.add_argument("bridge", metavar="BRIDGE")
    rollback = commands.add_parser(
        "rollback",
        aliases=["revert"],
        help="undo a change that was made with --rollback-after and is not confirmed",
    )
    rollback.add_argument("bridge", metavar="BRIDGE")


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="check whether bridges are healthy, or whether a bridge can be attached",
        description="Check whether attached bridges are healthy, and whether the upstream network uses them as configured.\n"
        "If a bridge is not attached, check whether an attach would succeed. No bridge is changed.\n"
        "Exit status: 0 no findings, 1 findings, 2 a bridge could not be checked.",
    )
    check.add_argument("bridge", metavar="BRIDGE", nargs="?")
    check.add_argument(
        "--uplink",
        metavar="IF",
        action="append",
        default=[],
        help="an uplink for the attach, in failover order (default: the members of the bridge's bond)",
    )
    check.add_argument("--policy", metavar="P", help="the policy for the attach")
    check.add_argument("--teaming", metavar="T", help="the teaming for the attach")
    check.add_argument("--json", action="store_true", help="print JSON")


def _add_show(commands: Any) -> None:
    show = commands.add_parser(
        "show", help="show uplinks, VM ports, and the uplink of each VM port"
    )
    show.add_argument("bridge", metavar="BRIDGE", nargs="?")
    show.add_argument("--json", action="store_true", help="print JSON")


def _add_top(commands: Any) -> None:
    top = commands.add_parser(
        "top",
        help="watch uplinks, VM ports and decisions",
        description=manual.SUMMARY,
        epilog=manual.text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("bridges", metavar="BRIDGE", nargs="*", help="the bridges (default: all)")
    top.add_argument(
        "--interval",
        metavar="S",
        type=_interval,
        default=manual.INTERVAL_S,
        help="seconds between two updates, 0.5 to 60 (default: %(default)g)",
    )
    top.add_argument(
        "--sort",
        metavar="COLUMN",
        choices=list(manual.SORTS),
        default=manual.SORT,
        help=f"sort by one of {', '.join(manual.SORTS)} (default: %(default)s)",
    )
    top.add_argument(
        "--filter",
        metavar="TEXT",
        default="",
        help="show only VM ports with this text in the port, VM, uplink or reason",
    )
    top.add_argument(
        "--once", action="store_true", help="print one screen as plain text, for scripts and pipes"
    )


def _add_set(commands: Any) -> None:
    setting = commands.add_parser("set", help="check settings and change them")
    setting.epilog_of = _keys
    setting.add_argument("table", choices=["bridge", "interface"], metavar="bridge|interface")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("settings", metavar="KEY=VALUE", nargs="+")
    _add_confirm(setting)


def _add_moves(commands: Any) -> None:
    for name, text, *arguments in (
        ("move", "bind a VM port to an uplink now", "port", "uplink"),
        ("pin", "bind a VM port to an uplink permanently", "port", "uplink"),
        ("unpin", "allow the policy to move a VM port again", "port"),
        ("drain", "move all VM ports off an uplink, and wait until the uplink is idle", "uplink"),
        ("undrain", "use a drained uplink again", "uplink"),
    ):
        command = commands.add_parser(name, help=text)
        for argument in arguments:
            command.add_argument(argument, metavar=argument.upper())


def _add_plan_and_apply(commands: Any) -> None:
    plan = commands.add_parser("plan", help="show the moves that the policies would make now")
    what = plan.add_mutually_exclusive_group()
    what.add_argument("bridge", metavar="BRIDGE", nargs="?")
    what.add_argument(
        "--endpoints",
        action="store_true",
        help="measure the VMs of this host for 10 s (two updates of statistics), and show which tunnel endpoint each VM should use",
    )
    plan.add_argument("--json", action="store_true", help="print JSON")
    apply = commands.add_parser("apply", help="make the moves of the last plan")
    apply.add_argument("bridge", metavar="BRIDGE", nargs="?")


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser("explain", help="explain why a VM port is on its uplink")
    explain.add_argument("port", metavar="PORT", help="the interface or the VM")
    explain.add_argument("--json", action="store_true", help="print JSON")


def _add_history(commands: Any) -> None:
    history = commands.add_parser(
        "history", help="show past decisions, with their reasons and results"
    )
    history.add_argument("bridge", metavar="BRIDGE", nargs="?")
    history.add_argument(
        "--port", dest="only_port", metavar="PORT", help="only entries of this VM port or VM"
    )
    history.add_argument(
        "--last", metavar="N", type=_last, help="show the last N entries (default: 20)"
    )
    history.add_argument("--json", action="store_true", help="print each entry as a line of JSON")


def _add_rescue(commands: Any) -> None:
    rescue = commands.add_parser(
        "rescue", help="without the service: restore forwarding on a bridge with plain uplinks"
    )
    which = rescue.add_mutually_exclusive_group(required=True)
    which.add_argument("bridge", metavar="BRIDGE", nargs="?")
    which.add_argument(
        "--all", action="store_true", help="rescue every attached bridge that needs it"
    )


def _add_support_bundle(commands: Any) -> None:
    bundle = commands.add_parser(
        "support-bundle",
        help="write a file with the data for troubleshooting",
        description="Write a file with the data for troubleshooting: settings, status, history, flows, groups,\n"
        "counters, versions and logs, without secrets. This command also works without the service.",
    )
    bundle.add_argument(
        "bridges", metavar="BRIDGE", nargs="*", help="include these bridges (default: attached)"
    )
    bundle.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="the file, or a directory (default: ovs-lbt-support-HOST-TIME.tar.gz in this directory)",
    )


def _add_completion(commands: Any) -> None:
    completion = commands.add_parser(
        "completion", help="print a shell script that completes commands"
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], metavar="bash|zsh|fish")


def _add_examples(commands: Any) -> None:
    """Begin the help of each command with what it does, and end it with examples."""
    for choice in commands._choices_actions:
        command = commands.choices[choice.dest]
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.description = command.description or f"{choice.help[0].upper()}{choice.help[1:]}."
        parts = [command.epilog, examples.text(choice.dest)]
        command.epilog = "\n\n".join(part for part in parts if part)


def _add_yes(command: argparse.ArgumentParser, option: str) -> None:
    command.add_argument(
        "--yes",
        action="store_true",
        help=f"with {option}: perform the migration, instead of only printing it",
    )


def _add_confirm(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rollback-after",
        "--confirm",
        metavar="S",
        type=_seconds_to_confirm,
        help="roll back after S seconds (5 to 86400), unless `ovs-lbt confirm BRIDGE` is run",
    )


def _seconds_to_confirm(text: str) -> str:
    from controller.operations import unconfirmed

    try:
        unconfirmed.seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} -> {unconfirmed.EXPECTED}") from None
    return text


def _keys() -> str:
    from controller.config import manual as keys

    return keys.text()


def _keys_of_attach() -> str:
    from controller.config import manual as keys

    return keys.of_attach()


def _service(text: str) -> str:
    if re.fullmatch(rf"{client.NAME}[A-Za-z0-9._-]{{0,20}}", text):
        return text
    raise argparse.ArgumentTypeError(f"{text} -> {SERVICE_NAME}")


def _interval(text: str) -> float:
    from controller.config.kinds import number

    try:
        interval_s = number(text)
    except ValueError:
        interval_s = 0.0
    if not manual.LEAST_INTERVAL_S <= interval_s <= manual.MOST_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text} -> seconds from 0.5 to 60")
    return interval_s


def _last(text: str) -> str:
    from controller.api.history import count

    try:
        count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
