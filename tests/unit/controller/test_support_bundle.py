"""The parts of a support bundle: a name from the database is neither a path nor an option."""

from __future__ import annotations

import random
import resource
from pathlib import Path

import pytest

from controller import support_bundle


@pytest.mark.parametrize("name", ["..", "../../etc/cron.d/x", "/etc/passwd", "--help"])
def test_a_bridge_is_no_path_and_no_option(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def run(*command: str) -> str:
        ran.append(command)
        return ""

    monkeypatch.setattr(support_bundle, "run", run)
    for part, source in support_bundle._of_bridge(name):
        source()
        assert part.count("/") == 2 and ".." not in part.split("/")
    assert all(name not in command or command[-1] == name for command in ran)
    assert all("--" in command for command in ran if command[0] == "ovs-ofctl")


def test_a_name_that_cannot_be_followed_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the link of another user in /tmp, which root may not follow."""
    monkeypatch.setattr(support_bundle, "_sources", lambda *_: iter(()))
    assert support_bundle.main([], "ovs-lbt", Path("x" * 300)) == 1
    assert "; choose another file with --out" in capsys.readouterr().err


def test_a_disk_that_is_full_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, path = random.Random(1).randbytes(100_000).hex(), tmp_path / "bundle.tar.gz"
    monkeypatch.setattr(support_bundle, "_sources", lambda *_: iter([("log", lambda: text)]))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        assert support_bundle.main([], "ovs-lbt", path) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = f"ovs-lbt: {path}: File too large; choose another file with --out\n"
    assert capsys.readouterr().err == told
    assert support_bundle.main([], "ovs-lbt", path) == 0, "the same file, with more room"
