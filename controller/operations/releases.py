"""The releases of Open vSwitch that we have run on, and the first one on which we can."""

from __future__ import annotations

import re

from controller.text.wording import one_line, shortened

# Each a row of README's table, with what ran there.
RUN_ON = ((3, 1), (3, 3), (3, 5))
# Its `learn` has a limit and writes whether it learned; group mods come in bundles since 2.6.
LEAST = (2, 8)
KEY = "Open_vSwitch ovs_version"
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def release_of(version: str | None) -> tuple[int, int] | None:
    """`3.1.0`, `3.1.0-dev` or `2.17.9-vendor5` as a release; None where it cannot be told."""
    found = _RELEASE.match(version.strip()) if version is not None else None
    return (int(found[1]), int(found[2])) if found else None


def refusal(version: str | None) -> str | None:
    """Why we cannot work on this Open vSwitch; None if we may."""
    release = release_of(version)
    if release is None or release >= LEAST:
        return None
    return f"{KEY}: {_told(version)} -> {_text(LEAST)} or later, whose learn action has a limit"


def warning(version: str | None) -> str | None:
    """That we have not run on this Open vSwitch; None if we have.

    Only ovs-ctl writes down which one it is: of one that was started otherwise nothing is said.
    """
    if version is None or release_of(version) in RUN_ON:
        return None
    return f"{KEY}: {_told(version)} -> {' | '.join(map(_text, RUN_ON))}, which were tested"


def _told(version: str | None) -> str:
    return shortened(one_line(version or ""))


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
