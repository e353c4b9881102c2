"""Carries out commands that also work while the service is stopped.

These are `rescue`, `plan --endpoints`, `detach`, `confirm`, `rollback`, and the option --rollback-after.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from controller.api.commands import DRY_RUN
from controller.cli import answers, run
from controller.host import client
from controller.text.wording import STARTED, Refused, quoted


def rescue(bridge: str | None, dry_run: bool) -> int:
    """Make a bridge (None: all) forward on one of its plain uplinks, without the service."""
    from controller import rescue as rescuing

    return _print(lambda: rescuing.rescue(client.database(), bridge, dry_run))


def plan_endpoints(as_json: bool) -> int:
    """Show the planned tunnel endpoint of each VM, after a short measurement of VMs' loads."""
    from controller import announce_endpoints
    from controller.host.programs import run as run_program
    from controller.operations import endpoint_plan as plan

    def found() -> Iterator[str]:
        if not (remote := client.database()).startswith("unix:"):
            raise Refused(
                f"database {remote} is invalid; expected unix:PATH, on the host of the tunnel endpoints"
            )
        vsctl = partial(run_program, "ovs-vsctl", f"--db={remote}", remedy=STARTED)
        listed = ("--format=json", f"--columns={plan.STATISTICS}", "list", "Interface")
        database = announce_endpoints.read(remote)
        endpoints = announce_endpoints.marked(database).endpoints
        host = plan.survey(database.bridges, database.ovn, endpoints)
        interval = vsctl("--if-exists", "get", "Open_vSwitch", ".", plan.INTERVAL)
        measured_s = plan.measured_for_s(interval)
        before = plan.counters_of(vsctl(*listed))
        time.sleep(measured_s)
        answer = plan.answer(host, before, plan.counters_of(vsctl(*listed)), measured_s)
        yield json.dumps(answer, indent=2) if as_json else plan.as_text(host, answer)

    return _print(found)


def _print(found: Callable[[], Iterable[str]]) -> int:
    """Print the lines that `found` returns, or its error, and return the exit status."""
    import ovs.vlog

    ovs.vlog.Vlog.set_level("any", "any", "off")
    if (obstacle := client.obstacle()) is not None:
        return answers.failed(obstacle)
    try:
        for line in found():
            print(line, flush=True)
    except (Refused, ValueError) as error:
        return answers.failed(run.blamed_database(str(error)))
    return 0


def detach(words: list[str]) -> int:
    """Detach a bridge through the service if it is running, else with a temporary service."""
    if client.obstacle() is not None or client.running():
        return answers.ask("detach", words)
    if (obstacle := client.read_only()) is not None:
        return answers.failed(obstacle)
    if (another := client.another()) is not None:
        remedy = f"use the running service: ovs-lbt -t {quoted(another)} detach {shlex.join(words)}"
        return answers.failed(f"service {client.pidfile().stem} is not running; {remedy}")
    if DRY_RUN.name in words:
        return _dry_run("detach", words)
    run.log(logging.ERROR)
    importlib.import_module("controller.openflow.framework")
    from controller import one_shot
    from controller.service import serve_and_exit

    return serve_and_exit(
        lambda: one_shot.detach(client.database(), *words),
        lambda why: answers.failed(run.blamed_database(why)),
    )


def _dry_run(command: str, words: list[str]) -> int:
    """Print the changes that a temporary service would make, read only from the database."""
    from controller.announce_endpoints import read
    from controller.api.engine_commands import Reply
    from controller.api.events import Request
    from controller.engine import Engine

    def found() -> Iterator[str]:
        engine = Engine(time.time())
        engine.handle(read(client.database()), 0.0)
        for given in engine.handle(Request(1, (command, *words)), 0.0):
            if isinstance(given, Reply):
                if given.refused:
                    raise Refused(given.text)
                yield given.text

    return _print(found)


# ---- changes that are rolled back unless confirmed -----------------------------------------


def until_confirmed(options: argparse.Namespace, words: list[str]) -> int:
    """Make a change that is rolled back unless it is confirmed.

    The rollback timer is started first, so the rollback works even if this command or the service fails.
    """
    from controller.host import arming

    if (obstacle := client.obstacle()) is not None:
        return answers.failed(obstacle)
    if options.command != "detach" and not client.running():
        return answers.ask(options.command, words)
    bridge = options.bridge if options.command != "set" else _bridge_of(words)
    if bridge is None:
        return answers.ask(options.command, words)
    armed = arming.arm(bridge, float(options.rollback_after), options.service)
    if options.command == "detach" and not client.running():
        return detach(words)
    try:
        return answers.ask(options.command, words)
    except Refused as why:
        # A service that does not answer may have made the change.
        if not isinstance(why, client.Unanswered):
            armed.disarm()
        raise


def confirm(words: list[str]) -> int:
    """Confirm a change through the service if it is running, else in the database."""
    from controller import reversal

    bridge = words[0]
    if (obstacle := client.obstacle()) is not None:
        return answers.failed(obstacle)
    try:
        if client.running():
            return answers.ask("confirm", words)
        if DRY_RUN.name in words:
            return _dry_run("confirm", words)
        print(reversal.confirm(bridge))
    except Refused as why:
        return answers.failed(_too_late(bridge, str(why)))
    return 0


def revert(words: list[str]) -> int:
    """Roll back a change through the service if it is running, else with a temporary service."""
    from controller import reversal

    if client.obstacle() is not None or client.running():
        return answers.ask("revert", words)
    reversal.waiting(words[0])
    return _dry_run("revert", words) if DRY_RUN.name in words else reversal.once(words[0])


def _bridge_of(words: list[str]) -> str | None:
    """Return the bridge whose settings `set` changes, from a dry run; None if the service refuses the change.

    Raises:
        Unanswered: the service did not answer.
    """
    try:
        told = client.ask("lbt/set", [*words, DRY_RUN.name])
    except client.Unanswered:
        raise
    except Refused:
        return None
    # The last line ends with the command that confirms the change.
    return shlex.split(told.splitlines()[-1])[-1]


def _too_late(bridge: str, why: str) -> str:
    """Return why a change was not confirmed: `why`, or a rollback that the history contains."""
    from controller import reversal
    from controller.host import journal
    from controller.operations import unconfirmed

    if why != unconfirmed.nothing_waits(bridge):
        return why

    asked = [bridge, "--last", "20", "--json"]
    try:
        if client.running():
            told = client.ask("lbt/history", asked)
        else:
            told = journal.answer(journal.default_path(client.NAME), tuple(asked))
    except (Refused, ValueError, OSError):
        return why
    if (reverted := reversal.last_reversal(told)) is None:
        return why
    return f"bridge {bridge}: too late to confirm: {reverted}; repeat the change"
