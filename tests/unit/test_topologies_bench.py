"""The bench's command line: exit statuses, and answers that say what was expected."""

from __future__ import annotations

import os
import shutil

import pytest

from topologies import bench


def test_an_unknown_layout_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["no_such_layout"]) == 2
    assert "no_such_layout -> vmware_lbt" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [[], ["vmware_lbt", "--direction", "sideways"], ["vmware_lbt", "--repeat", "0"]],
)
def test_wrong_words_are_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(words) == 2
    assert capsys.readouterr().err


def test_help_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--help"]) == 0
    assert "--faithful" in capsys.readouterr().out


def test_without_root_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bench.main(["vmware_lbt"]) == 1
    assert "user id 1000 -> root" in capsys.readouterr().err


def test_a_missing_program_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nginx" else f"/bin/{name}")
    assert bench.main(["vmware_lbt"]) == 1
    assert "nginx" in capsys.readouterr().err
