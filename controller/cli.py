"""The `ovs-lbt` command. Answers go to stdout, diagnostics to stderr.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller.host import client
from controller.text.wording import because
from controller.top import manual

DEFAULT_METRICS = "127.0.0.1:9476"
SERVICE_NAME = (
    f"{client.NAME}, or a name that begins with it and goes on with letters, digits, dots, dashes,"
    f" 20 at most, such as {client.NAME}-b"
)
# What options of `run` are where they are not given.
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
    """A parser whose epilog is made when somebody asks for help, as it takes a while."""

    epilog_of: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.epilog_of is not None:
            self.epilog = self.epilog_of()
        return super().format_help()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["bench"]:
        from topologies import bench

        return bench.main(words[1:])
    if words[:1] == ["replay"]:
        from controller.replay import command

        return command.main(words[1:])
    parser = _parser()
    if (bad := next((word for word in words if not _is_text(word)), None)) is not None:
        parser.error(f"{bad!a} -> text in UTF-8")
    options = parser.parse_args(words)
    options.service = _service_asked(parser, options.service)
    client.call(options.service)
    if options.command == "run":
        return _run(options)
    if options.command == "detach":
        return _detach(_words(options))
    if options.command == "set":
        _check_keys(parser, options.table, options.settings)
    if options.command == "rescue":
        return _rescue(options)
    if options.command == "history":
        return _history(options.service, _words(options))
    if options.command == "show" and not options.json:
        return _show(options.bridge)
    if options.command == "top":
        return _top(options)
    return _ask(options.command, _words(options))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ovs-lbt", description="Load-Based Teaming for Open vSwitch.")
    parser.add_argument(
        *("-t", "--target"),
        dest="service",
        metavar="NAME",
        type=_service,
        help=f"of two services beside one Open vSwitch, the one to ask (default: {client.NAME})",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="the service")
    run.add_argument(
        "--ovsdb",
        metavar="unix:PATH|tcp:HOST:PORT|ssl:HOST:PORT",
        help="the database (default: the one in OVS's run directory)",
    )
    run.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        help="where bridges may dial us, over TLS if its files are given (default: nowhere)",
    )
    for name, text in (
        ("private-key", "our key"),
        ("certificate", "our certificate"),
        ("ca-cert", "the authority that signed the switch's certificate"),
        ("metrics-ca-cert", "the authority that signed those of who may read metrics"),
    ):
        run.add_argument(f"--{name}", metavar="FILE", help=f"TLS: {text}")
    run.add_argument(
        "--metrics",
        metavar="ADDR:PORT",
        help=f"where metrics are served, or none (default: {DEFAULT_METRICS})",
    )
    run.add_argument(
        "--history",
        metavar="FILE",
        help="where decisions are written down, or none "
        "(default: ovs-lbt-history.jsonl beside Open vSwitch's logs)",
    )
    run.add_argument(
        "--name",
        dest="service",
        metavar="NAME",
        type=_service,
        default=argparse.SUPPRESS,
        help="of two services beside one Open vSwitch, each has its own: one leads, the other "
        "stands by (default: ovs-lbt)",
    )
    run.add_argument("--verbose", action="store_true", help="log every detail")

    attach = commands.add_parser(
        "attach",
        help="take a bridge over",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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

    detach = commands.add_parser("detach", help="give a bridge back")
    detach.add_argument("bridge", metavar="BRIDGE")
    detach.add_argument(
        "--purge", action="store_true", help="and remove all settings, also after a detach"
    )

    show = commands.add_parser("show", help="uplinks, ports and who is bound where")
    show.add_argument("bridge", metavar="BRIDGE", nargs="?")
    show.add_argument("--json", action="store_true", help="for programs")

    _add_top(commands)

    setting = commands.add_parser(
        "set",
        help="change settings, checked first",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setting.epilog_of = _keys
    setting.add_argument("table", choices=["bridge", "interface"], metavar="bridge|interface")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("settings", metavar="KEY=VALUE", nargs="+")

    for name, text in (("move", "bind a VM port to an uplink now"), ("pin", "and keep it there")):
        command = commands.add_parser(name, help=text)
        command.add_argument("port", metavar="PORT")
        command.add_argument("uplink", metavar="UPLINK")
    unpin = commands.add_parser("unpin", help="let a VM port move again")
    unpin.add_argument("port", metavar="PORT")

    for name, text in (
        ("drain", "move VM ports off an uplink, and answer when it is idle"),
        ("undrain", "use a drained uplink again"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("uplink", metavar="UPLINK")
    plan = commands.add_parser("plan", help="what the policies would move now")
    plan.add_argument("bridge", metavar="BRIDGE", nargs="?")
    plan.add_argument("--json", action="store_true", help="for programs")
    apply = commands.add_parser("apply", help="move what the last plan showed")
    apply.add_argument("bridge", metavar="BRIDGE", nargs="?")
    explain = commands.add_parser("explain", help="why a VM port is where it is")
    explain.add_argument("port", metavar="PORT", help="its interface, or its VM")
    explain.add_argument("--json", action="store_true", help="for programs")
    history = commands.add_parser("history", help="what was decided, when and why")
    history.add_argument("bridge", metavar="BRIDGE", nargs="?")
    history.add_argument("--port", metavar="PORT", help="of this VM port, or VM, only")
    history.add_argument("--last", metavar="N", type=_last, help="so many entries (default: 20)")
    history.add_argument("--json", action="store_true", help="as written: a line of JSON each")

    rescue = commands.add_parser("rescue", help="without the service: forward by one plain uplink")
    which = rescue.add_mutually_exclusive_group(required=True)
    which.add_argument("bridge", metavar="BRIDGE", nargs="?")
    which.add_argument("--all", action="store_true", help="every attached bridge that needs it")

    commands.add_parser("replay", help="policies over recorded traffic: ovs-lbt replay TRACE")
    commands.add_parser("bench", help="run a benchmark layout: ovs-lbt bench LAYOUT")
    return parser


def _add_top(commands: Any) -> None:
    top = commands.add_parser(
        "top",
        help="uplinks, VM ports and decisions, live",
        description=manual.SUMMARY,
        epilog=manual.text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("bridges", metavar="BRIDGE", nargs="*", help="these only (default: all)")
    top.add_argument(
        "--interval",
        metavar="S",
        type=_interval,
        default=manual.INTERVAL_S,
        help="seconds between two looks, 0.5 to 60 (default: %(default)g)",
    )
    top.add_argument(
        "--sort",
        metavar="COLUMN",
        choices=list(manual.SORTS),
        default=manual.SORT,
        help=f"one of {', '.join(manual.SORTS)} (default: %(default)s)",
    )
    top.add_argument(
        "--filter",
        metavar="TEXT",
        default="",
        help="only VM ports with this text in port, VM, uplink or reason",
    )
    top.add_argument(
        "--once", action="store_true", help="one screen as plain text, for scripts and pipes"
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
    """Whether an argument can be sent, and written down: others' bytes come as lone surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _service_asked(parser: argparse.ArgumentParser, said: str | None) -> str:
    """The name of the service that is meant."""
    if said is not None or not (named := os.environ.get("OVS_LBT_NAME")):
        return said or client.NAME
    try:
        return _service(named)
    except argparse.ArgumentTypeError as error:
        parser.error(f"OVS_LBT_NAME: {error}")


def _check_keys(parser: argparse.ArgumentParser, table: str, settings: Sequence[str]) -> None:
    """What can be known to be wrong without asking what is set."""
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
    """A command's words as the service takes them."""
    match options.command:
        case "attach":
            return _attach_words(options)
        case "detach":
            return [options.bridge, *(["--purge"] if options.purge else [])]
        case "show" | "plan":
            return [*_bridge(options), *(["--json"] if options.json else [])]
        case "apply":
            return _bridge(options)
        case "explain":
            return [options.port, *(["--json"] if options.json else [])]
        case "history":
            return _history_words(options)
        case "set":
            return [options.table, options.name, *options.settings]
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
        "mode": "observe" if options.observe else None,
    }
    given = (f"{key}={value}" for key, value in settings.items() if value is not None)
    return [options.bridge, *given]


def _bridge(options: argparse.Namespace) -> list[str]:
    """The bridge that is named, if one is; an empty name is one that no bridge has."""
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
        # Before all others: it may have to patch the standard library.
        importlib.import_module("controller.openflow.framework")
    except (ValueError, ImportError) as error:
        return _failed(str(error))
    if (obstacle := client.obstacle() or client.read_only() or _running()) is not None:
        return _failed(obstacle)
    from controller.host.journal import default_path
    from controller.host.wires import TlsFiles
    from controller.ovsdb.database import DatabaseAway
    from controller.service import Options, Service, exit_now

    try:
        tls = TlsFiles.of(*tls_files)
        kept = options.history != "none"
        history = Path(options.history or default_path(options.service)) if kept else None
        metrics_tls = TlsFiles.for_metrics(tls, readers)
        database = _remote(options.ovsdb)
        told = Options(database, metrics, listen, tls, metrics_tls, history, name=options.service)
        service = Service(told)
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
    """Another service beside this Open vSwitch, as `ovs-lbt run` must not find it."""
    import ovs.daemon
    import ovs.vlog

    ovs.vlog.Vlog.set_level("any", "any", "off")
    pid = ovs.daemon.read_pidfile(str(client.pidfile()))
    found = f"a service runs already as process {pid}"
    return f"{found} -> only one, or another --name for a standby" if pid > 0 else None


def _detach(words: list[str]) -> int:
    """By the service; without one, all the same."""
    if client.obstacle() is not None or client.running():
        return _ask("detach", words)
    if (obstacle := client.read_only()) is not None:
        return _failed(obstacle)
    if (another := client.another()) is not None:
        expected = f"one that is: ovs-lbt -t {another} detach {' '.join(words)}"
        return _failed(f"no service {client.pidfile().stem} is running -> {expected}")
    _log(logging.ERROR)
    importlib.import_module("controller.openflow.framework")
    from controller import alone
    from controller.ovsdb.database import DatabaseAway
    from controller.service import exit_now

    try:
        remote = _remote(os.environ.get("OVS_LBT_OVSDB"))
        status = alone.detach(remote, words[0], purge="--purge" in words)
    except (DatabaseAway, ValueError, OSError) as error:
        status = _failed(_blamed(because(error), {"--ovsdb": "OVS_LBT_OVSDB"}))
    sys.stdout.flush()
    exit_now(status)
    return status


def _history(service: str, words: list[str]) -> int:
    """Of the service; without one, from the file where it writes unless told otherwise."""
    if client.running():
        return _ask("history", words)
    from controller.host import journal

    try:
        print(journal.answer(journal.default_path(service), tuple(words)))
    except (ValueError, OSError) as error:
        return _failed(because(error))
    return 0


def _rescue(options: argparse.Namespace) -> int:
    import ovs.vlog

    from controller.ovsdb.database import DatabaseAway
    from controller.rescue import Refused, rescue

    ovs.vlog.Vlog.set_level("any", "any", "off")
    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    try:
        for line in rescue(_remote(os.environ.get("OVS_LBT_OVSDB")), options.bridge):
            print(line, flush=True)
    except (Refused, DatabaseAway, ValueError) as error:
        return _failed(_blamed(str(error), {"--ovsdb": "OVS_LBT_OVSDB"}))
    return 0


def _failed(why: str, status: int = 1) -> int:
    """Say so; the exit status."""
    print(f"ovs-lbt: {why}", file=sys.stderr)
    return status


def _take_variables(options: argparse.Namespace) -> dict[str, str]:
    """Give the options of `run` that were not given what variables say; those, by the option."""
    taken = {}
    for option, variable in RUN_VARIABLES.items():
        name = option.removeprefix("--").replace("-", "_")
        if getattr(options, name) is None and (value := os.environ.get(variable)):
            setattr(options, name, value)
            taken[option] = variable
    return taken


def _blamed(why: str, taken: dict[str, str]) -> str:
    """An error, with the variable in place of an option that nobody gave."""
    for option, variable in taken.items():
        why = re.sub(rf"(?<![\w-]){option}(?![\w-])", variable, why)
    return why


def _check_remote(remote: str) -> None:
    """Whether a database can be dialled there at all.

    Raises:
        ValueError: it cannot.
    """
    if not re.fullmatch(r"unix:.+|(tcp|ssl):.+:[0-9]{1,5}", remote, re.ASCII):
        raise ValueError(f"--ovsdb: {remote} -> unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")


def _address(option: str, text: str, expected: str) -> tuple[str, int] | None:
    """ADDR:PORT; the word `none` means nowhere.

    Raises:
        ValueError: it is neither.
    """
    if text == "none":
        return None
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{option}: {text} -> {expected}")
    return host.strip("[]"), int(port)


def _ask(command: str, words: list[str]) -> int:
    """Have the running service carry out a command, and print its answer."""
    if (answer := _answer(command, words)) is None:
        return 1
    for line in answer.splitlines(keepends=True):
        warning = line.startswith("warning: ")
        (sys.stderr if warning else sys.stdout).write(line)
    return 0


def _answer(command: str, words: list[str]) -> str | None:
    """The running service's answer; None after a line that says why there is none."""
    try:
        if (obstacle := client.obstacle()) is not None:
            raise client.Unanswered(obstacle)
        return client.ask(f"lbt/{command}", words)
    except (client.Refusal, client.Unanswered) as why:
        print(f"ovs-lbt: {why}", file=sys.stderr)
        return None


def _show(bridge: str | None) -> int:
    """Drawn here, where the terminal is known."""
    words = [] if bridge is None else [bridge]
    if (answer := _answer("show", [*words, "--json"])) is None:
        return 1
    from controller.text import show_view, terminal

    told = json.loads(answer)
    if told.get("standby"):
        print(show_view.standing_by(told["leader"]))
        lines = []
    else:
        lines = show_view.blocks(told["bridges"], terminal.look())
    lines += show_view.faults(told, terminal.look())
    sys.stdout.write(terminal.written(lines))
    return 0


def _top(options: argparse.Namespace) -> int:
    if (obstacle := client.obstacle()) is not None:
        return _failed(obstacle)
    from controller.top import command

    return command.main(options)


if __name__ == "__main__":
    sys.exit(main())
