"""The `ovs-lbt` command. Answers go to stdout, diagnostics to stderr.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

DEFAULT_METRICS = "127.0.0.1:9476"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["bench"]:
        from topologies import bench

        return bench.main(words[1:])
    options = _parser().parse_args(words)
    if options.command == "run":
        return _run(options)
    if options.command == "detach":
        return _detach(options.bridge)
    return _ask(options.command, _words(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovs-lbt", description="Load-Based Teaming for Open vSwitch."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="the service")
    run.add_argument(
        "--ovsdb",
        metavar="unix:PATH",
        default=os.environ.get("OVS_LBT_OVSDB"),
        help="the database (default: the one in OVS's run directory)",
    )
    run.add_argument(
        "--metrics",
        metavar="ADDR:PORT",
        default=os.environ.get("OVS_LBT_METRICS", DEFAULT_METRICS),
        help="where metrics are served (default: %(default)s)",
    )
    run.add_argument("--verbose", action="store_true", help="log every detail")

    attach = commands.add_parser("attach", help="take a bridge over")
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

    show = commands.add_parser("show", help="uplinks, ports and who is bound where")
    show.add_argument("bridge", metavar="BRIDGE", nargs="?")
    show.add_argument("--json", action="store_true", help="for programs")

    setting = commands.add_parser("set", help="change settings, checked first")
    setting.add_argument("table", choices=["bridge", "interface"], metavar="bridge|interface")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("settings", metavar="KEY=VALUE", nargs="+")

    for name, text in (("move", "bind a VM port to an uplink now"), ("pin", "and keep it there")):
        command = commands.add_parser(name, help=text)
        command.add_argument("port", metavar="PORT")
        command.add_argument("uplink", metavar="UPLINK")
    unpin = commands.add_parser("unpin", help="let a VM port move again")
    unpin.add_argument("port", metavar="PORT")

    commands.add_parser("bench", help="run a benchmark layout: ovs-lbt bench LAYOUT")
    return parser


def _words(options: argparse.Namespace) -> list[str]:
    """A command's words as the service takes them."""
    match options.command:
        case "attach":
            return _attach_words(options)
        case "show":
            return [*filter(None, [options.bridge]), *(["--json"] if options.json else [])]
        case "set":
            return [options.table, options.name, *options.settings]
        case "unpin":
            return [options.port]
        case _:
            return [options.port, options.uplink]


def _attach_words(options: argparse.Namespace) -> list[str]:
    settings = {
        "policy": options.policy,
        "uplinks": ",".join(options.uplink),
        "teaming": options.teaming,
        "mode": "observe" if options.observe else None,
    }
    return [options.bridge, *(f"{key}={value}" for key, value in settings.items() if value)]


def _run(options: argparse.Namespace) -> int:
    _log(logging.DEBUG if options.verbose else logging.INFO, options.verbose)
    try:
        metrics = _address(options.metrics)
    except ValueError as error:
        print(f"ovs-lbt: {error}", file=sys.stderr)
        return 1
    if (obstacle := _stranger() or _running()) is not None:
        print(f"ovs-lbt: {obstacle}", file=sys.stderr)
        return 1
    from controller.ovsdb import DatabaseAway
    from controller.service import Options, Service, exit_now

    try:
        service = Service(Options(_remote(options.ovsdb), metrics))
    except (DatabaseAway, OSError) as error:
        print(f"ovs-lbt: {error}", file=sys.stderr)
        exit_now(1)
        return 1
    exit_now(service.run())
    return 1


def _log(level: int, everything: bool = False) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    logging.getLogger("controller").setLevel(level)
    for noisy, quiet in (("os_ken", logging.WARNING), ("ovsdbapp", logging.CRITICAL)):
        logging.getLogger(noisy).setLevel(logging.INFO if everything else quiet)


def _remote(given: str | None) -> str:
    import ovs.dirs

    return given or f"unix:{ovs.dirs.RUNDIR}/db.sock"


def _stranger() -> str | None:
    """What keeps this user out of Open vSwitch's run directory; None if nothing does."""
    import ovs.dirs

    directory = ovs.dirs.RUNDIR
    if not os.path.isdir(directory) and os.geteuid() == 0:
        return None
    if os.access(directory, os.W_OK | os.X_OK):
        return None
    return f"user {os.geteuid()}, who may not write to {directory} -> root"


def _running() -> str | None:
    """Another service beside this Open vSwitch, as `ovs-lbt run` must not find it."""
    import ovs.daemon
    import ovs.dirs
    import ovs.vlog

    ovs.vlog.Vlog.set_level("any", "any", "off")
    pid = ovs.daemon.read_pidfile(f"{ovs.dirs.RUNDIR}/ovs-lbt.pid")
    return f"a service runs already as process {pid} -> only one" if pid > 0 else None


def _detach(bridge: str) -> int:
    """By the service; without one, all the same."""
    if _stranger() is not None or _service() is not None:
        return _ask("detach", [bridge])
    _log(logging.ERROR)
    from controller import alone
    from controller.ovsdb import DatabaseAway
    from controller.service import exit_now

    try:
        status = alone.detach(_remote(os.environ.get("OVS_LBT_OVSDB")), bridge)
    except (DatabaseAway, ValueError, OSError) as error:
        print(f"ovs-lbt: {error}", file=sys.stderr)
        status = 1
    sys.stdout.flush()
    exit_now(status)
    return status


def _address(text: str) -> tuple[str, int] | None:
    """ADDR:PORT; the word `none` serves nothing.

    Raises:
        ValueError: it is neither.
    """
    if text == "none":
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--metrics: {text} -> ADDR:PORT or none")
    return host.strip("[]"), int(port)


def _ask(command: str, words: list[str]) -> int:
    """Have the running service carry out a command."""
    if (stranger := _stranger()) is not None:
        print(f"ovs-lbt: {stranger}", file=sys.stderr)
        return 1
    if (client := _service()) is None:
        print("ovs-lbt: no service is running -> start one with: ovs-lbt run", file=sys.stderr)
        return 1
    error, refusal, answer = client.transact(f"lbt/{command}", words)
    if error:
        print(f"ovs-lbt: the service ended: {os.strerror(error)}", file=sys.stderr)
        return 1
    if refusal is not None:
        print(f"ovs-lbt: {refusal.rstrip()}", file=sys.stderr)
        return 1
    for line in (answer or "").splitlines(keepends=True):
        warning = line.startswith("warning: ")
        (sys.stderr if warning else sys.stdout).write(line)
    return 0


def _service() -> Any:
    """A line to the running service; None if there is none."""
    import ovs.daemon
    import ovs.unixctl
    import ovs.unixctl.server
    import ovs.util
    import ovs.vlog

    ovs.util.PROGRAM_NAME = "ovs-lbt"
    ovs.vlog.Vlog.set_level("any", "any", "off")
    error, path = ovs.unixctl.socket_name_from_target("ovs-lbt")
    if error:
        return None
    error, client = ovs.unixctl.server.UnixctlClient.create(path)
    return None if error else client


if __name__ == "__main__":
    sys.exit(main())
