"""The arguments of a command in the form that the service expects."""

from __future__ import annotations

import argparse

# What stands alone, in the order in which the service expects it; then options, by their destination.
ALONE = ("table", "name", "bridge", "port", "uplink")
OPTIONS = {
    "purge": "--purge",
    "only_port": "--port",
    "last": "--last",
    "rollback_after": "--rollback-after",
    "json": "--json",
}


def words(options: argparse.Namespace) -> list[str]:
    """The arguments of a command in the form that the service expects."""
    if options.command == "attach":
        asked = attach_words(options)
    else:
        # An empty name is kept: the service then reports it.
        given = (getattr(options, name, None) for name in ALONE)
        asked = [*(word for word in given if word is not None), *getattr(options, "settings", ())]
    for name, option in OPTIONS.items():
        match getattr(options, name, None):
            case True:
                asked.append(option)
            case str(value):
                asked += [option, value]
    return asked


def attach_words(options: argparse.Namespace) -> list[str]:
    """The bridge, and the settings that an attach is given."""
    settings = {
        "policy": options.policy,
        "uplinks": ",".join(options.uplink) if options.uplink else None,
        "teaming": options.teaming,
        "mode": "observe" if getattr(options, "observe", False) else None,
    }
    given = (f"{key}={value}" for key, value in settings.items() if value is not None)
    return [options.bridge, *given]
