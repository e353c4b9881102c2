"""Runs the `ovs-lbt` command. Answers go to stdout, diagnostics to stderr.

Exit status: 0 done, 1 refused or failed, 2 wrong usage; 141, as for SIGPIPE, if stdout is closed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from controller.api.commands import BY_NAME
from controller.api.requests import words
from controller.cli import answers, arguments, run, without_service
from controller.host import client
from controller.text import terminal
from controller.text.wording import Refused

# The command that completion scripts call; it is not meant for users.
HIDDEN = "__complete"


def main(given: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit status."""
    with terminal.until_unread():
        try:
            return _main(given)
        except Refused as why:
            return answers.failed(str(why))


def _main(given: Sequence[str] | None) -> int:
    asked = list(sys.argv[1:] if given is None else given)
    if asked[:1] == ["bench"]:
        from topologies import bench

        return bench.main(asked[1:])
    # Output for programs is never shortened: JSON, and the name of a file.
    terminal.guard(whole="--json" in asked or "support-bundle" in asked)
    if asked[:1] == ["replay"]:
        from controller.replay import command

        return command.main(asked[1:])
    if asked[:1] == [HIDDEN]:
        from controller.cli import completion

        # No errors are shown while the user types.
        print(completion.answer(asked[1:] or [""]))
        return 0
    parser = arguments.parser()
    # Python represents bytes that are not UTF-8 as lone surrogates, which cannot be encoded.
    for bad in (word for word in asked if word.encode(errors="ignore").decode() != word):
        parser.error(f"{bad!a} is invalid; expected text in UTF-8")
    options = arguments.parsed(parser, asked)
    named = options.name if options.command == "run" else None
    options.service = arguments.service_asked(parser, named or options.service)
    client.call(options.service)
    if options.command == "run":
        return run.run(options)
    moves = next(
        (o for o in ("from_bond", "to_bond") if getattr(options, o, None) is not None), None
    )
    waits = getattr(options, "rollback_after", None) is not None
    dry_run = getattr(options, "dry_run", False)
    if moves and waits:
        return answers.failed(
            f"--rollback-after does not work with --{moves.replace('_', '-')}, because a timer cannot roll back the migration of a bond"
        )
    asked = words(BY_NAME[options.command], vars(options))
    if moves:
        from controller.cli import bonds

        return bonds.from_bond(options, asked) if moves == "from_bond" else bonds.to_bond(options)
    if options.command == "check":
        settings = [word for word in asked if word != "--json"]
        if options.bridge is None and settings:
            parser.error("BRIDGE is missing; --uplink, --policy and --teaming require it")
        return answers.check(settings, options.json)
    if options.command == "support-bundle":
        from controller import support_bundle

        return support_bundle.main(options.bridges, options.service, options.out)
    if options.command == "set":
        arguments.check_keys(parser, options.table, options.settings)
    if options.command == "unset":
        arguments.check_keys(parser, options.table, [f"{key}=" for key in options.keys])
    if waits and not dry_run:
        return without_service.until_confirmed(options, asked)
    if options.command == "detach":
        return without_service.detach(asked)
    if options.command == "confirm":
        return without_service.confirm(asked)
    if options.command in ("rollback", "revert"):
        return without_service.revert(asked)
    if options.command == "rescue":
        return without_service.rescue(options.bridge, dry_run)
    if options.command == "completion":
        from controller.cli import completion

        print(completion.script(options.shell), end="")
        return 0
    if options.command == "history":
        return answers.history(options.service, asked)
    if options.command == "show" and not options.json:
        return answers.show(options.bridge)
    if options.command == "top":
        from controller.cli import top

        return top.main(options)
    if options.command == "plan" and options.endpoints:
        return without_service.plan_endpoints(options.json)
    return answers.ask(options.command, asked)
