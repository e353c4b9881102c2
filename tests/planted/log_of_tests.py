"""A pytest plugin: logs each phase of each test, with its worker and times."""

from __future__ import annotations

import json
import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport | pytest.CollectReport) -> None:
    # Workers send their reports to the process that started them.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        # The report of a worker that crashed has no times.
        times = {name: getattr(report, name, 0.0) for name in ("start", "stop")}
        known = {"test": report.nodeid, "when": report.when, "outcome": report.outcome, **times}
        with open(os.environ["PLANTED_LOG"], "a") as log:
            print(json.dumps({**known, "worker": getattr(report, "worker_id", "")}), file=log)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        pytest_runtest_logreport(report)
