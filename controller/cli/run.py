"""Starts the service for `ovs-lbt run`, or prints the reason why it does not start.

Commands that do the work of a stopped service use the same log and the same environment variables.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
from pathlib import Path

from controller.api.commands import BY_NAME, DEFAULT_METRICS
from controller.cli import answers
from controller.host import client
from controller.text import terminal
from controller.text.wording import invalid

# The form of the database's address.
REMOTE = re.compile(r"unix:.+|(tcp|ssl):.+:[0-9]{1,5}", re.ASCII)
# The environment variables that replace missing options of `run`.
RUN_VARIABLES = {
    option.name: f"OVS_LBT_{option.dest.upper()}"
    for option in BY_NAME["run"].arguments
    if option.metavar and option.name != "--name"
}


def run(options: argparse.Namespace) -> int:
    """Run the service until the process exits. Return an exit status only if it does not start."""
    taken = take_variables(options)
    tls_files = (options.private_key, options.certificate, options.ca_cert)
    readers = options.metrics_ca_cert
    log(logging.DEBUG if options.verbose else logging.INFO, options.verbose)
    try:
        metrics = address("--metrics", options.metrics or DEFAULT_METRICS, "ADDR:PORT or none")
        listen = address("--listen", options.listen or "none", "ADDR:PORT")
        if options.ovsdb is not None and not REMOTE.fullmatch(options.ovsdb):
            expected = "unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT"
            raise ValueError(f"--ovsdb: {invalid(options.ovsdb, expected)}")
    except ValueError as error:
        return answers.failed(blamed(str(error), taken), status=2)
    try:
        # This import comes first: the framework may patch the standard library.
        importlib.import_module("controller.openflow.framework")
    except (ValueError, ImportError) as error:
        return answers.failed(str(error))
    if (obstacle := client.obstacle() or client.read_only() or _running()) is not None:
        return answers.failed(obstacle)
    from controller.host.journal import default_path
    from controller.host.sockets import TlsFiles
    from controller.service import Options, Service, serve_and_exit

    def made() -> Service:
        tls = TlsFiles.tls_files_of(*tls_files)
        kept = options.history != "none"
        history = Path(options.history or default_path(options.service)) if kept else None
        metrics_tls = TlsFiles.for_metrics(tls, readers)
        database = client.database(options.ovsdb)
        return Service(
            Options(database, metrics, listen, tls, metrics_tls, history, name=options.service)
        )

    return serve_and_exit(made, lambda why: answers.failed(blamed(why, taken)))


def address(option: str, text: str, expected: str) -> tuple[str, int] | None:
    """Parse an address and a port in the form ADDR:PORT; None for the word `none`.

    Raises:
        ValueError: `text` is neither ADDR:PORT nor `none`.
    """
    if text == "none":
        return None
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{option}: {invalid(text, expected)}")
    return host.strip("[]"), int(port)


def _running() -> str | None:
    """Return an error text if a service with this name is already running, else None."""
    import ovs.daemon
    import ovs.vlog

    ovs.vlog.Vlog.set_level("any", "any", "off")
    pid = ovs.daemon.read_pidfile(str(client.pidfile()))
    found = f"a service is already running as process {pid}"
    return f"{found}; to start a standby, use another --name" if pid > 0 else None


# ---- the log and the environment variables -------------------------------------------


def log(level: int, everything: bool = False) -> None:
    """Log ovs-lbt's messages to stderr, from `level` up. `everything`: INFO from libraries, too."""
    terminal.log_to_stderr()
    logging.getLogger("controller").setLevel(level)
    for noisy, quiet in (
        ("os_ken", logging.WARNING),
        ("ryu", logging.WARNING),
        ("ovsdbapp", logging.CRITICAL),
    ):
        logging.getLogger(noisy).setLevel(logging.INFO if everything else quiet)


def blamed_database(why: str) -> str:
    """Return the error text with options of `run` replaced by their environment variables."""
    return blamed(why, RUN_VARIABLES)


def take_variables(options: argparse.Namespace) -> dict[str, str]:
    """Set missing options of `run` from environment variables; return those used, by option."""
    taken = {}
    for option, variable in RUN_VARIABLES.items():
        name = option.removeprefix("--").replace("-", "_")
        if getattr(options, name) is None and (value := os.environ.get(variable)):
            setattr(options, name, value)
            taken[option] = variable
    return taken


def blamed(why: str, taken: dict[str, str]) -> str:
    """Return the error text, with each option in `taken` replaced by its environment variable."""
    for option, variable in taken.items():
        why = re.sub(rf"(?<![\w-]){option}(?![\w-])", variable, why)
    return why
