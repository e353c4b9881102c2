"""The Open vSwitch releases that were tested, and the oldest one that has what we need."""

from __future__ import annotations

import re

from controller.text.wording import one_line, shortened

# Each is a row in the table of docs/releases.md.
RUN_ON = ((3, 1), (3, 3), (3, 5), (3, 7))
# Since 2.8, `learn` has a limit and can report whether it learned. Bundles of group mods are older.
LEAST = (2, 8)
KEY = "Open_vSwitch ovs_version"
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def release_of(version: str | None) -> tuple[int, int] | None:
    """The release of a version such as `3.1.0-dev` or `2.17.9-vendor5`; None if unknown."""
    found = _RELEASE.match(version.strip()) if version is not None else None
    return (int(found[1]), int(found[2])) if found else None


def refusal(version: str | None) -> str | None:
    """Why this Open vSwitch cannot be used; None if it can."""
    release = release_of(version)
    if release is None or release >= LEAST:
        return None
    return f"{KEY}: {_found(version)} -> {_text(LEAST)} or later, which can limit what the learn action learns"


def warning(version: str | None) -> str | None:
    """A warning if this Open vSwitch is not a tested release; else None.

    Only ovs-ctl writes the version to the database. Without a version there is no warning.
    """
    if version is None or release_of(version) in RUN_ON:
        return None
    return f"{KEY}: {_found(version)} -> {' | '.join(map(_text, RUN_ON))}, the tested releases"


def _found(version: str | None) -> str:
    return shortened(one_line(version or ""))


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
