"""The parts of a support bundle: a name from the database is neither a path nor an option."""

from __future__ import annotations

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
