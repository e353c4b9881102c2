"""Builds the parser for the arguments of all commands, and their help texts."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from controller.api.commands import BY_NAME, COMMANDS, listing, service_name
from controller.api.requests import Command, refuse_unknown
from controller.host import client
from controller.text.wording import Refused, invalid, one_line, one_of, unknown

# The modules of commands with a separate parser.
SEPARATE = {"replay": "controller.replay.command", "bench": "topologies.bench"}


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in the same form as the service, on one line.

    `details` returns the first part of the epilog. It is called only for `--help`, because it is slow.
    """

    details: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.details is not None:
            self.epilog = "\n\n".join(filter(None, [self.details(), self.epilog]))
            self.details = None
        return super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if action.dest == "command":
            message = unknown("command", value, action.choices, f"{self.prog} --help")
        else:
            message = invalid(value, one_of(action.choices), action.choices)
        raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


class _WithoutCommands(argparse.RawDescriptionHelpFormatter):
    """A formatter that omits the commands, because the description lists them by purpose."""

    def add_argument(self, action: argparse.Action) -> None:
        if action.dest != "command":
            super().add_argument(action)


class _Version(argparse.Action):
    """Prints the version, and determines it only then, because that is slow."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_given: object) -> None:
        import importlib.metadata

        print(f"{parser.prog} {importlib.metadata.version('ovs-lbt')}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. Those in `SEPARATE` also have parsers in their modules."""
    made = _Parser(
        prog="ovs-lbt",
        description=f"Load-Based Teaming for Open vSwitch.\n{listing()}",
        formatter_class=_WithoutCommands,
        epilog="ovs-lbt COMMAND --help: the arguments of a command, with examples. See also: man ovs-lbt",
    )
    made.add_argument("--version", action=_Version, help="print the version and exit")
    told = f"the service to connect to, if several run on one Open vSwitch instance (default: {client.NAME})"
    _add_target(made, help=told)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for row in COMMANDS:
        _add(commands.add_parser(row.name, help=row.help, aliases=row.aliases), row)
    return made


def parsed(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a command. Options can also precede the last positional arguments."""
    options, more = parser.parse_known_args(given)
    if more and not any(word.startswith("-") for word in more):
        for last in BY_NAME[options.command].positionals[-1:]:
            value = getattr(options, last.dest)
            if last.nargs in ("+", "*"):
                setattr(options, last.dest, [*value, *more])
                more = []
            elif last.nargs == "?" and value is None:
                setattr(options, last.dest, more.pop(0))
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    return options


def separate_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser from the module of a command in `SEPARATE`."""
    made: argparse.ArgumentParser = importlib.import_module(SEPARATE[command])._parser()
    return made


def service_asked(parser: argparse.ArgumentParser, given: str | None) -> str:
    """Return the name of the service to contact: `given`, else OVS_LBT_NAME, else the default."""
    if given is not None or not (named := os.environ.get("OVS_LBT_NAME")):
        return given or client.NAME
    try:
        return service_name(named)
    except ValueError as error:
        parser.error(f"OVS_LBT_NAME: {error}")


def check_keys(parser: argparse.ArgumentParser, table: str, settings: Sequence[str]) -> None:
    """Exit with a usage error if a key in `settings` does not exist or is given twice."""
    from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_KEYS, settable

    ours = BRIDGE_KEYS if table == "bridge" else UPLINK_KEYS | VM_KEYS
    try:
        refuse_unknown(settings, settable(ours))
    except Refused as why:
        parser.error(str(why))


def _add_target(parser: argparse.ArgumentParser, **settings: Any) -> None:
    names = ("-t", "--target")
    kind = _converted(service_name)
    parser.add_argument(*names, dest="service", metavar="NAME", type=kind, **settings)


def _add(command: _Parser, row: Command) -> None:
    """Add the arguments of a command to its parser, with help, a description and examples."""
    # --target is also accepted after the command, without a default that would override its value.
    _add_target(command, help=argparse.SUPPRESS, default=argparse.SUPPRESS)
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = row.description or f"{row.help[0].upper()}{row.help[1:]}."
    command.epilog, command.details = row.examples_text(), row.details
    excluding: Any = command
    if row.exclusive:
        excluding = command.add_mutually_exclusive_group(required=row.one_required)
    for number, argument in enumerate(row.arguments):
        into = excluding if number < 2 else command
        settings: dict[str, Any] = {
            "metavar": argument.metavar,
            "type": argument.parse and _converted(argument.parse),
            "choices": argument.choices or None,
            "nargs": argument.nargs,
            "action": "append" if argument.repeated else None,
            "default": [] if argument.repeated else argument.default,
        }
        if not argument.metavar:
            settings = {"action": "store_true"}
        settings = {name: value for name, value in settings.items() if value is not None}
        names = filter(None, (argument.name, argument.older))
        into.add_argument(*names, help=argument.help, **settings)


def _converted(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `parse` with its errors converted, so that argparse prints their text."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert
