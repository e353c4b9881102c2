"""The `ovs-lbt` command. Answers go to stdout, diagnostics to stderr.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller.host import client
from controller.text import examples
from controller.text.wording import because
from controller.top import manual

DEFAULT_METRICS = "127.0.0.1:9476"
SERVICE_NAME = f"{client.NAME}, or {client.NAME} followed by up to 20 letters, digits, dots, dashes or underscores, such as {client.NAME}-b"
# What completion scripts call. It is no command for people.
HIDDEN = "__complete"
# The environment variables that stand for options of `run` that are not given.
RUN_VARIABLES = {
    "--ovsdb": "OVS_LBT_OVSDB",
    "--listen": "OVS_LBT_LISTEN",
    "--private-key": "OVS_LBT_PRIVATE_KEY",
    "--certificate": "OVS_LBT_CERTIFICATE",
    "--ca-cert": "OVS_LBT_CA_CERT",
    "--metrics": "OVS_LBT_METRICS",
    "--metrics-ca-cert": "OVS_LBT_METRICS_CA_CERT",
    "--history": "OVS_LBT_HISTORY",
}


class _Parser(argparse.ArgumentParser):
    """A parser that makes its epilog only for `--help`, because that takes a while."""

    epilog_of: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.epilog_of is not None:
            parts = [self.epilog_of(), self.epilog]
            self.epilog = "\n\n".join(part for part in parts if part)
            self.epilog_of = None
        return super().format_help()


class _Version(argparse.Action):
    """Prints the version, which takes a while to find."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_given: object) -> None:
        import importlib.metadata

        print(f"{parser.prog} {importlib.metadata.version('ovs-lbt')}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["bench"]:
        from topologies import bench

        return bench.main(words[1:])
    if words[:1] == ["replay"]:
        from controller.replay import command

        return command.main(words[1:])
    if words[:1] == [HIDDEN]:
        return _complete(words[1:])
    parser = _parser()
    if (bad := next((word for word in words if not _is_text(word)), None)) is not None:
        parser.error(f"{bad!a} -> text in UTF-8")
    options = parser.parse_args(words)
    options.service = _service_asked(parser, options.service)
    client.call(options.service)
    if options.command == "run":
        return _run(options)
    if getattr(options, "confirm", None) is not None and (option := _moves_a_bond(options)):
        return _failed(
            f"--confirm with {option} -> one of them: a bond that has moved is not undone by a timer"
        )
    if options.command == "attach" and options.from_bond is not None:
        return _from_bond(options)
    if options.command == "detach" and options.to_bond is not None:
        return _to_bond(options)
    if options.command == "check":
        return _check(parser, options)
    if options.command == "support-bundle":
        from controller import support_bundle

        return support_bundle.main(options.bridges, options.service, options.out)
    if options.command == "set":
        _check_keys(parser, options.table, options.settings)
    if getattr(options, "confirm", None) is not None:
        return _until_confirmed(options)
    if options.command == "detach":
        return _detach(_words(options))
    if options.command == "confirm":
        return _confirm(options.bridge)
    if options.command == "revert":
        return _revert(options.bridge)
    if options.command == "rescue":
        return _rescue(options)
    if options.command == "completion":
        return _completion(options.shell)
    if options.command == "history":
        return _history(options.service, _words(options))
    if options.command == "show" and not options.json:
        return _show(options.bridge)
    if options.command == "top":
        return _top(options)
    if options.command == "plan" and options.endpoints:
        return _plan_endpoints(options)
    return _ask(options.command, _words(options))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ovs-lbt",
        description="Load-Based Teaming for Open vSwitch.",
        epilog="ovs-lbt COMMAND --help: the arguments of a command, with examples. See also: man ovs-lbt",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.add_argument(
        *("-t", "--target"),
        dest="service",
        metavar="NAME",
        type=_service,
        help=f"the service to ask, if several run on one Open vSwitch (default: {client.NAME})",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the service")
    run.add_argument(
        "--ovsdb",
        metavar="unix:PATH|tcp:HOST:PORT|ssl:HOST:PORT",
        help="Open vSwitch's database (default: db.sock in Open vSwitch's run directory)",
    )
    run.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        help="accept connections from bridges here; with the TLS files, over TLS (default: do not)",
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
        help=f"serve metrics here, or none (default: {DEFAULT_METRICS})",
    )
    run.add_argument(
        "--history",
        metavar="FILE",
        help="the file that records decisions, or none "
        "(default: ovs-lbt-history.jsonl in Open vSwitch's log directory)",
    )
    run.add_argument(
        "--name",
        dest="service",
        metavar="NAME",
        type=_service,
        default=argparse.SUPPRESS,
        help="the name of this service; two services on one Open vSwitch need different names: one "
        "leads, the other is on standby (default: ovs-lbt)",
    )
    run.add_argument("--verbose", action="store_true", help="log debug messages, too")

    attach = commands.add_parser("attach", help="start to manage a bridge")
    attach.epilog_of = _keys_of_attach
    attach.add_argument("bridge", metavar="BRIDGE")
    attach.add_argument(
        "--uplink",
        metavar="IF",
        action="append",
        default=[],
        help="an uplink, in failover order; give it twice or more (default: the bond's members)",
    )
    attach.add_argument("--policy", metavar="P", help="the teaming policy (default: load-based)")
    attach.add_argument("--teaming", metavar="T", help="switch-independent, static or lacp")
    attach.add_argument("--observe", action="store_true", help="decide and report, move nothing")
    attach.add_argument(
        "--from-bond",
        metavar="BOND",
        help="first make this bond of Linux one of the bridge, with its members, addresses, routes and VLANs",
    )
    _add_yes(attach, "--from-bond")

    _add_confirm(attach)

    detach = commands.add_parser("detach", help="stop managing a bridge, and leave it as it was")
    detach.add_argument("bridge", metavar="BRIDGE")
    detach.add_argument(
        "--purge",
        action="store_true",
        help="remove all settings of ovs-lbt, too; also works after a detach",
    )
    detach.add_argument(
        "--to-bond",
        metavar="BOND",
        help="then make this bond one of Linux again, as before attach --from-bond",
    )
    _add_yes(detach, "--to-bond")

    _add_confirm(detach)

    confirm = commands.add_parser("confirm", help="keep a change that was made with --confirm")
    confirm.add_argument("bridge", metavar="BRIDGE")
    revert = commands.add_parser(
        "revert", help="undo a change that was made with --confirm and is not confirmed"
    )
    revert.add_argument("bridge", metavar="BRIDGE")

    check = commands.add_parser(
        "check",
        help="check whether bridges are healthy, or one is fit to attach",
        description="Check whether attached bridges are healthy, and used upstream as they are meant; of a bridge\n"
        "that is not attached, whether an attach would succeed. Changes nothing.\n"
        "Exit status: 0 all is well, 1 something was found, 2 it could not be checked.",
    )
    check.add_argument("bridge", metavar="BRIDGE", nargs="?")
    check.add_argument(
        "--uplink",
        metavar="IF",
        action="append",
        default=[],
        help="an uplink for the attach, in failover order (default: the bond's members)",
    )
    check.add_argument("--policy", metavar="P", help="the policy for the attach")
    check.add_argument("--teaming", metavar="T", help="the teaming for the attach")
    check.add_argument("--json", action="store_true", help="print JSON")

    show = commands.add_parser(
        "show", help="show uplinks, VM ports, and the uplink of each VM port"
    )
    show.add_argument("bridge", metavar="BRIDGE", nargs="?")
    show.add_argument("--json", action="store_true", help="print JSON")

    _add_top(commands)

    setting = commands.add_parser("set", help="check settings and change them")
    setting.epilog_of = _keys
    setting.add_argument("table", choices=["bridge", "interface"], metavar="bridge|interface")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("settings", metavar="KEY=VALUE", nargs="+")
    _add_confirm(setting)

    for name, text in (
        ("move", "bind a VM port to an uplink now"),
        ("pin", "bind a VM port to an uplink and keep it there"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("port", metavar="PORT")
        command.add_argument("uplink", metavar="UPLINK")
    unpin = commands.add_parser("unpin", help="let the policy move a VM port again")
    unpin.add_argument("port", metavar="PORT")

    for name, text in (
        ("drain", "move all VM ports off an uplink, and wait until it is idle"),
        ("undrain", "use a drained uplink again"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("uplink", metavar="UPLINK")
    plan = commands.add_parser("plan", help="show what the policies would move now")
    what = plan.add_mutually_exclusive_group()
    what.add_argument("bridge", metavar="BRIDGE", nargs="?")
    what.add_argument(
        "--endpoints",
        action="store_true",
        help="measure the VMs of this host for 10 s (two updates of statistics), and show which tunnel endpoint each should use",
    )
    plan.add_argument("--json", action="store_true", help="print JSON")
    apply = commands.add_parser("apply", help="make the moves of the last plan")
    apply.add_argument("bridge", metavar="BRIDGE", nargs="?")
    explain = commands.add_parser("explain", help="explain why a VM port is on its uplink")
    explain.add_argument("port", metavar="PORT", help="the interface or the VM")
    explain.add_argument("--json", action="store_true", help="print JSON")
    history = commands.add_parser(
        "history", help="show past decisions, with their reasons and results"
    )
    history.add_argument("bridge", metavar="BRIDGE", nargs="?")
    history.add_argument("--port", metavar="PORT", help="show only this VM port or VM")
    history.add_argument(
        "--last", metavar="N", type=_last, help="show the last N entries (default: 20)"
    )
    history.add_argument("--json", action="store_true", help="print each entry as a line of JSON")

    rescue = commands.add_parser(
        "rescue", help="without the service: let a bridge of plain uplinks forward by one of them"
    )
    which = rescue.add_mutually_exclusive_group(required=True)
    which.add_argument("bridge", metavar="BRIDGE", nargs="?")
    which.add_argument(
        "--all", action="store_true", help="rescue every attached bridge that needs it"
    )

    bundle = commands.add_parser(
        "support-bundle",
        help="collect in one file what is needed to find a fault",
        description="Collect in one file what is needed to find a fault: settings, status, history, flows, groups,\n"
        "counters, versions and logs, without secrets. This also works without the service.",
    )
    bundle.add_argument(
        "bridges", metavar="BRIDGE", nargs="*", help="whose flows (default: attached bridges)"
    )
    bundle.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="the file, or its directory (default: ovs-lbt-support-HOST-TIME.tar.gz here)",
    )

    completion = commands.add_parser(
        "completion", help="print the script by which a shell completes commands"
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], metavar="bash|zsh|fish")

    commands.add_parser("replay", help="show what policies would do with recorded traffic")
    commands.add_parser("bench", help="run a benchmark layout")
    _add_examples(commands)
    return parser


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
        help=f"with {option}: do it, and do not only say what it means",
    )


def _add_confirm(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--confirm",
        metavar="S",
        type=_seconds_to_confirm,
        help="undo this in S seconds (5 to 86400), unless: ovs-lbt confirm BRIDGE",
    )


def _seconds_to_confirm(text: str) -> str:
    from controller.operations import unconfirmed

    try:
        unconfirmed.seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} -> {unconfirmed.EXPECTED}") from None
    return text


def _add_top(commands: Any) -> None:
    top = commands.add_parser(
        "top",
        help="watch uplinks, VM ports and decisions",
        description=manual.SUMMARY,
        epilog=manual.text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("bridges", metavar="BRIDGE", nargs="*", help="show only these (default: all)")
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
        help="show only VM ports with this text in port, VM, uplink or reason",
    )
    top.add_argument(
        "--once", action="store_true", help="print one screen as plain text, for scripts and pipes"
    )


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


def _is_text(word: str) -> bool:
    """Whether an argument is valid UTF-8: Python passes other bytes on as lone surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _service_asked(parser: argparse.ArgumentParser, given: str | None) -> str:
    """The name of the service to ask: the option, else the variable, else the default."""
    if given is not None or not (named := os.environ.get("OVS_LBT_NAME")):
        return given or client.NAME
    try:
        return _service(named)
    except argparse.ArgumentTypeError as error:
        parser.error(f"OVS_LBT_NAME: {error}")


def _check_keys(parser: argparse.ArgumentParser, table: str, settings: Sequence[str]) -> None:
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


def _words(options: argparse.Namespace) -> list[str]:
    """The arguments of a command in the form that the service expects."""
    match options.command:
        case "attach":
            return [*_attach_words(options), *_confirm_words(options)]
        case "detach":
            purge = ["--purge"] if options.purge else []
            return [options.bridge, *purge, *_confirm_words(options)]
        case "confirm" | "revert":
            return [options.bridge]
        case "show" | "plan":
            return [*_bridge(options), *(["--json"] if options.json else [])]
        case "apply":
            return _bridge(options)
        case "explain":
            return [options.port, *(["--json"] if options.json else [])]
        case "history":
            return _history_words(options)
        case "set":
            changed = [options.table, options.name, *options.settings]
            return [*changed, *_confirm_words(options)]
        case "unpin":
            return [options.port]
        case "drain" | "undrain":
            return [options.uplink]
        case _:
            return [options.port, options.uplink]


def _attach_words(options: argparse.Namespace) -> list[str]:
    settings = {
        "policy": options.policy,
        "uplinks": ",".join(options.uplink) if options.uplink else None,
        "teaming": options.teaming,
        "mode": "observe" if getattr(options, "observe", False) else None,
    }
    given = (f"{key}={value}" for key, value in settings.items() if value is not None)
    return [options.bridge, *given]


def _confirm_words(options: argparse.Namespace) -> list[str]:
    return [] if options.confirm is None else ["--confirm", options.confirm]


def _bridge(options: argparse.Namespace) -> list[str]:
    """The bridge argument, if given. An empty name is kept: the service then reports it."""
    return [] if options.bridge is None else [options.bridge]


def _history_words(options: argparse.Namespace) -> list[str]:
    words = _bridge(options)
    for name, value in (("--port", options.port), ("--last", options.last)):
        words += [] if value is None else [name, value]
    return [*words, *(["--json"] if options.json else [])]


def _run(options: argparse.Namespace) -> int:
    blamed = _take_variables(options)
    tls_files = (options.private_key, options.certificate, options.ca_cert)
    readers = options.metrics_ca_cert
    _log(logging.DEBUG if options.verbose else logging.INFO, options.verbose)
    try:
        metrics = _address("--metrics", options.metrics or DEFAULT_METRICS, "ADDR:PORT or none")
        listen = _address("--listen", options.listen or "none", "ADDR:PORT")
        if options.ovsdb is not None:
            _check_remote(options.ovsdb)
    except ValueError as error:
        return _failed(_blamed(str(error), blamed), status=2)
    try:
        # This import comes first: the framework may patch the standard library.
        importlib.import_module("controller.openflow.framework")
    except (ValueError, ImportError) as error:
        return _failed(str(error))
    if (obstacle := client.obstacle() or client.read_only() or _running()) is not None:
        return _failed(obstacle)
    from controller.host.journal import default_path
    from controller.host.sockets import TlsFiles
    from controller.ovsdb.database import DatabaseAway
    from controller.service import Options, Service, exit_now

    try:
        tls = TlsFiles.of(*tls_files)
        kept = options.history != "none"
        history = Path(options.history or default_path(options.service)) if kept else None
        metrics_tls = TlsFiles.for_metrics(tls, readers)
        database = _remote(options.ovsdb)
        settings = Options(
            database, metrics, listen, tls, metrics_tls, history, name=options.service
        )
        service = Service(settings)
    except (DatabaseAway, ValueError, OSError) as error:
        _failed(_blamed(because(error), blamed))
        exit_now(1)
        return 1
    exit_now(service.run())
    return 1


def _log(level: int, everything: bool = False) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    logging.getLogger("controller").setLevel(level)
    for noisy, quiet in (
        ("os_ken", logging.WARNING),
        ("ryu", logging.WARNING),
        ("ovsdbapp", logging.CRITICAL),
    ):
        logging.getLogger(noisy).setLevel(logging.INFO if everything else quiet)


def _remote(given: str | None) -> str:
    import ovs.dirs

    return given or f"unix:{ovs.dirs.RUNDIR}/db.sock"


def _running() -> str | None:
    """Why `ovs-lbt run` must not start, if a service of this name is already running."""
    import ovs.daemon
    import ovs.vlog

    ovs.vlog.Vlog.set_level("any", "any", "off")
    pid = ovs.daemon.read_pidfile(str(client.pidfile()))
    found = f"a service is already running as process {pid}"
    return f"{found} -> a single service, or another --name for a standby" if pid > 0 else None


def _detach(words: list[str]) -> int:
    """Detach through the service if it is running, else with a service of our own."""
    if client.obstacle() is not None or client.running():
        return _ask("detach", words)
    if (obstacle := client.read_only()) is not None:
        return _failed(obstacle)
    if (another := client.another()) is not None:
        expected = f"the service that is: ovs-lbt -t {another} detach {' '.join(words)}"
        return _failed(f"no service {client.pidfile().stem} is running -> {expected}")
    _log(logging.ERROR)
    importlib.import_module("controller.openflow.framework")
    from controller import one_shot
    from controller.ovsdb.database import DatabaseAway
    from controller.service import exit_now

    try:
        remote = _remote(os.environ.get("OVS_LBT_OVSDB"))
        status = one_shot.detach(remote, words[0], tuple(words[1:]))
    except (DatabaseAway, ValueError, OSError) as error:
        status = _failed(_blamed(because(error), {"--ovsdb": "OVS_LBT_OVSDB"}))
    sys.stdout.flush()
    exit_now(status)
    return status


def _moves_a_bond(options: argparse.Namespace) -> str | None:
    """The option by which a command moves a bond between Linux and Open vSwitch, if it is there."""
    if getattr(options, "from_bond", None) is not None:
        return "--from-bond"
    return "--to-bond" if getattr(options, "to_bond", None) is not None else None


def _from_bond(options: argparse.Namespace) -> int:
    """Make a bond of Linux one of the bridge, and attach it."""
    from controller import from_linux_bond as moving
    from controller.config.keys import BRIDGE_KEYS
    from controller.operations import bond_plan, linux_bond

    if options.uplink:
        return _failed("--uplink with --from-bond -> one of them: the bond's members are uplinks")
    for word in _attach_words(options)[1:]:
        key, _, value = word.partition("=")
        try:
            BRIDGE_KEYS[key].parse(value)
        except ValueError:
            return _failed(f"{key}: {value} -> {BRIDGE_KEYS[key].expects(value)}")
    if (obstacle := client.obstacle()) is not None or not client.running():
        return _failed(obstacle or "no service is running -> start one with: ovs-lbt run")
    try:
        host = moving.survey(options.bridge, options.from_bond)
        print(bond_plan.forward(host))
        if not options.yes:
            return _failed("nothing was changed -> the same command with --yes")
        moving.move(host, _say)
    except linux_bond.CannotMove as why:
        return _failed(str(why))
    _say(bond_plan.configuration(host))
    if status := _ask("attach", _words(options)):
        back = f"ovs-lbt detach {options.bridge} --to-bond {options.from_bond} --yes"
        return _failed(
            f"{options.from_bond} has moved, but is not attached; to go back: {back}", status
        )
    return 0


def _to_bond(options: argparse.Namespace) -> int:
    """Detach a bridge, unless it is detached, and make its bond one of Linux again."""
    from controller import from_linux_bond as moving
    from controller.operations import bond_plan, linux_bond

    try:
        host = moving.survey_back(options.bridge, options.to_bond)
        print(bond_plan.back(host))
        if not options.yes:
            return _failed("nothing was changed -> the same command with --yes")
        if moving.is_attached(options.bridge):
            words = [sys.executable, "-m", "controller.cli", "-t", options.service]
            purge = ["--purge"] if options.purge else []
            if status := moving.ended([*words, "detach", options.bridge, *purge]):
                return status
        moving.move_back(host, _say)
    except linux_bond.CannotMove as why:
        return _failed(str(why))
    return 0


def _say(line: str) -> None:
    """Say what is being done, also to a terminal that has gone meanwhile."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _until_confirmed(options: argparse.Namespace) -> int:
    """Make a change that is reverted unless it is confirmed. The reversal is armed first.

    So nothing that happens to this command or the service, from the first moment on, prevents it.
    """
    from controller.host import arming

    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    words = _words(options)
    if options.command != "detach" and not client.running():
        return _ask(options.command, words)
    bridge = options.bridge if options.command != "set" else _bridge_of(options)
    if bridge is None:
        return _ask(options.command, words)
    try:
        armed = arming.arm(bridge, float(options.confirm), options.service)
    except arming.NotArmed as error:
        return _failed(str(error))
    if options.command == "detach" and not client.running():
        return _detach(words)
    try:
        _tell(client.ask(f"lbt/{options.command}", words))
    except client.Refusal as why:
        armed.disarm()
        return _failed(str(why))
    except client.Unanswered as why:
        return _failed(str(why))
    return 0


def _bridge_of(options: argparse.Namespace) -> str | None:
    """The bridge that `set` concerns; None if the interface is on none."""
    if options.table == "bridge":
        return str(options.name)
    from controller.host import one_uplink

    try:
        found = one_uplink.run("ovs-vsctl", "iface-to-br", options.name.partition("/")[0])
    except (one_uplink.Refused, OSError):
        return None
    return found.strip()


def _confirm(bridge: str) -> int:
    """Confirm through the service if it is running, else in the database."""
    from controller import reversal

    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    try:
        if client.running():
            _tell(client.ask("lbt/confirm", [bridge]))
        else:
            print(reversal.confirm(bridge))
    except (client.Refusal, client.Unanswered, reversal.Unknown) as why:
        return _failed(_too_late(bridge, str(why)))
    return 0


def _too_late(bridge: str, why: str) -> str:
    """Why a change was not confirmed. If it was reverted, says so instead of "nothing waits"."""
    from controller import reversal

    if why != reversal.nothing_waits(bridge):
        return why
    from controller.host import journal

    words = [bridge, "--last", "20", "--json"]
    try:
        if client.running():
            told = client.ask("lbt/history", words)
        else:
            told = journal.answer(journal.default_path(client.NAME), tuple(words))
    except (client.Refusal, client.Unanswered, ValueError, OSError):
        return why
    if (reverted := reversal.last_reversal(told)) is None:
        return why
    return f"bridge {bridge}: too late: {reverted} -> the change once more"


def _revert(bridge: str) -> int:
    """Revert through the service if it is running, else with a service of our own."""
    from controller import reversal

    if client.obstacle() is not None or client.running():
        return _ask("revert", [bridge])
    try:
        if reversal.waits(bridge) is None:
            return _failed(reversal.nothing_waits(bridge))
    except reversal.Unknown as why:
        return _failed(str(why))
    return reversal.once(bridge)


def _history(service: str, words: list[str]) -> int:
    """Ask the service for the history. Without a service, read its default file."""
    if client.running():
        return _ask("history", words)
    from controller.host import journal

    try:
        print(journal.answer(journal.default_path(service), tuple(words)))
    except (ValueError, OSError) as error:
        return _failed(because(error))
    return 0


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from controller import check

    words = _attach_words(options)
    if options.bridge is None and len(words) > 1:
        parser.error("settings for an attach -> a BRIDGE that is not attached")
    return check.main(words if options.bridge is not None else [], options.json)


def _complete(words: list[str]) -> int:
    """Print what may stand at the cursor. Errors are nobody's business while somebody types."""
    from controller.completion import command

    print(command.answer(_parser(), _other_parsers(), words or [""]))
    return 0


def _completion(shell: str) -> int:
    from controller.completion import command

    print(command.script(shell), end="")
    return 0


def _other_parsers() -> dict[str, Callable[[], argparse.ArgumentParser]]:
    """The parsers of commands that have their own."""

    def replay() -> argparse.ArgumentParser:
        from controller.replay import command

        return command._parser()

    def bench() -> argparse.ArgumentParser:
        from topologies import bench

        return bench._parser()

    return {"replay": replay, "bench": bench}


def _rescue(options: argparse.Namespace) -> int:
    import ovs.vlog

    from controller.host.one_uplink import Refused
    from controller.ovsdb.database import DatabaseAway
    from controller.rescue import rescue

    ovs.vlog.Vlog.set_level("any", "any", "off")
    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    try:
        for line in rescue(_remote(os.environ.get("OVS_LBT_OVSDB")), options.bridge):
            print(line, flush=True)
    except (Refused, DatabaseAway, ValueError) as error:
        return _failed(_blamed(str(error), {"--ovsdb": "OVS_LBT_OVSDB"}))
    return 0


def _plan_endpoints(options: argparse.Namespace) -> int:
    import ovs.vlog

    from controller.endpoint_plan import plan
    from controller.operations.endpoint_view import NoChoice
    from controller.ovsdb.database import DatabaseAway

    ovs.vlog.Vlog.set_level("any", "any", "off")
    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    try:
        print(plan(_remote(os.environ.get("OVS_LBT_OVSDB")), options.json))
    except (NoChoice, DatabaseAway, ValueError) as error:
        return _failed(_blamed(str(error), {"--ovsdb": "OVS_LBT_OVSDB"}))
    return 0


def _failed(why: str, status: int = 1) -> int:
    """Print an error. Returns the exit status."""
    print(f"ovs-lbt: {why}", file=sys.stderr)
    return status


def _take_variables(options: argparse.Namespace) -> dict[str, str]:
    """Fill options of `run` that were not given from variables. Returns the variable by option."""
    taken = {}
    for option, variable in RUN_VARIABLES.items():
        name = option.removeprefix("--").replace("-", "_")
        if getattr(options, name) is None and (value := os.environ.get(variable)):
            setattr(options, name, value)
            taken[option] = variable
    return taken


def _blamed(why: str, taken: dict[str, str]) -> str:
    """The error text, naming the variable instead of the option that it stood for."""
    for option, variable in taken.items():
        why = re.sub(rf"(?<![\w-]){option}(?![\w-])", variable, why)
    return why


def _check_remote(remote: str) -> None:
    """Check the form of the database's address.

    Raises:
        ValueError: the form is wrong.
    """
    if not re.fullmatch(r"unix:.+|(tcp|ssl):.+:[0-9]{1,5}", remote, re.ASCII):
        raise ValueError(f"--ovsdb: {remote} -> unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")


def _address(option: str, text: str, expected: str) -> tuple[str, int] | None:
    """The address and port of ADDR:PORT; None for the word `none`.

    Raises:
        ValueError: the text is neither.
    """
    if text == "none":
        return None
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{option}: {text} -> {expected}")
    return host.strip("[]"), int(port)


def _ask(command: str, words: list[str]) -> int:
    """Send a command to the service and print its answer. Returns the exit status."""
    if (answer := _answer(command, words)) is None:
        return 1
    _tell(answer)
    return 0


def _tell(answer: str) -> None:
    """Print an answer, its warnings to stderr."""
    for line in answer.splitlines(keepends=True):
        warning = line.startswith("warning: ")
        (sys.stderr if warning else sys.stdout).write(line)


def _answer(command: str, words: list[str]) -> str | None:
    """The service's answer. If there is none, prints the reason and returns None."""
    try:
        if (obstacle := client.obstacle()) is not None:
            raise client.Unanswered(obstacle)
        return client.ask(f"lbt/{command}", words)
    except (client.Refusal, client.Unanswered) as why:
        print(f"ovs-lbt: {why}", file=sys.stderr)
        return None


def _show(bridge: str | None) -> int:
    """Ask for JSON and draw it here, where the width and colours of the terminal are known."""
    words = [] if bridge is None else [bridge]
    if (answer := _answer("show", [*words, "--json"])) is None:
        return 1
    from controller.text import show_view, terminal

    shown = json.loads(answer)
    if shown.get("standby"):
        print(show_view.standing_by(shown["leader"]))
        lines = []
    else:
        lines = show_view.waiting(shown, terminal.look(), _time_of_day)
        lines += show_view.blocks(shown["bridges"], terminal.look())
    lines += show_view.faults(shown, terminal.look())
    sys.stdout.write(terminal.written(lines))
    return 0


def _time_of_day(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def _top(options: argparse.Namespace) -> int:
    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    from controller.top import command

    return command.main(options)


if __name__ == "__main__":
    sys.exit(main())
