"""The arguments of a command in the form that the service expects."""

from __future__ import annotations

import argparse


def words(options: argparse.Namespace) -> list[str]:
    """The arguments of a command in the form that the service expects."""
    match options.command:
        case "attach":
            return [*attach_words(options), *_confirm_words(options)]
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
