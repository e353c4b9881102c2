"""What set-up refuses, before it changes anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import documents

# Without apt-get, so that a set-up which is not refused ends before it does anything.
TOOLS = ("dirname", "readlink", "id")


@pytest.mark.parametrize(
    ("words", "linked"),
    [([], ".venv"), (["demo"], ".venv"), (["ryu"], ".venv-ryu"), (["kernel"], ".venv")],
)
@pytest.mark.parametrize("there", [True, False])
def test_an_environment_that_is_a_link_is_refused_and_left_alone(
    words: list[str], linked: str, there: bool, tmp_path: Path
) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other" / linked
    (checkout / ".ci").mkdir(parents=True)
    shutil.copy(documents.ROOT / ".ci/setup", checkout / ".ci")
    if there:
        other.mkdir(parents=True)
        (other / ".setup-stamp").write_text("of the other checkout\n")
    (checkout / linked).symlink_to(other)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))

    ended = subprocess.run(
        ["/bin/bash", str(checkout / ".ci/setup"), *words],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr == (
        f"setup: {checkout / linked} is a link to {other}, but each checkout needs a directory "
        "of its own; remove the link\n"
    )
    assert (checkout / linked).is_symlink() and other.exists() is there
    if there:
        assert (other / ".setup-stamp").read_text() == "of the other checkout\n"
