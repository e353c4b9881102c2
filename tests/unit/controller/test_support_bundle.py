"""The parts of a support bundle: a name from the database is neither a path nor an option."""

from __future__ import annotations

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
