"""The surroundings of a command: the log, the database's address, and variables that stand for options."""

from __future__ import annotations

import argparse
import logging
import os
import re

from controller.api.commands import BY_NAME
from controller.text import terminal

# The environment variables that stand for options of `run` that are not given.
RUN_VARIABLES = {
    option.name: f"OVS_LBT_{option.dest.upper()}"
    for option in BY_NAME["run"].arguments
    if option.metavar and option.name != "--name"
}


def log(level: int, everything: bool = False) -> None:
    """Log to stderr: ours from this level on, and of libraries what they warn of, or everything."""
    terminal.log_to_stderr()
    logging.getLogger("controller").setLevel(level)
    for noisy, quiet in (
        ("os_ken", logging.WARNING),
        ("ryu", logging.WARNING),
        ("ovsdbapp", logging.CRITICAL),
    ):
        logging.getLogger(noisy).setLevel(logging.INFO if everything else quiet)


def blamed_database(why: str) -> str:
    """The error text, naming the variable that may have given the address of the database."""
    return blamed(why, {"--ovsdb": RUN_VARIABLES["--ovsdb"]})


def take_variables(options: argparse.Namespace) -> dict[str, str]:
    """Fill options of `run` that were not given from variables. Returns the variable by option."""
    taken = {}
    for option, variable in RUN_VARIABLES.items():
        name = option.removeprefix("--").replace("-", "_")
        if getattr(options, name) is None and (value := os.environ.get(variable)):
            setattr(options, name, value)
            taken[option] = variable
    return taken


def blamed(why: str, taken: dict[str, str]) -> str:
    """The error text, naming the variable instead of the option that it stood for."""
    for option, variable in taken.items():
        why = re.sub(rf"(?<![\w-]){option}(?![\w-])", variable, why)
    return why
