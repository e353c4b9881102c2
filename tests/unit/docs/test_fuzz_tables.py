"""The table of fuzzed cases in docs/reliability/hostile-input.md, against its raw figures."""

from __future__ import annotations

from tests import documents
from tests.unit.docs.figures import raw, rows

PAGE = "docs/reliability/hostile-input.md"
HEAD = "| what is fuzzed | cases | failed |"
# The rows of the table, and the targets of each.
TARGETS = {
    "bytes from a switch: corrupted, truncated, of any length": ["openflow"],
    "sequences of a switch's messages to a whole service": ["switch events"],
    "frames: probes, replies of hosts, announcements, LLDP": ["frames"],
    "database records, and the replica of the database": ["database", "replica"],
    "command lines, control commands, and the control socket's bytes": [
        "command line",
        "commands",
        "control socket",
    ],
    "plans during `apply`, and records of unconfirmed changes": ["plans"],
    "traces, and responses of Prometheus": ["trace", "prometheus"],
    "lines of the history file": ["history"],
}


def test_how_many_cases_of_each_target_ran_and_failed() -> None:
    found, table = raw("fuzz/summary.json"), rows(PAGE, HEAD)
    assert {name for names in TARGETS.values() for name in names} == found["targets"].keys()
    assert table.keys() == TARGETS.keys()
    for what, names in TARGETS.items():
        of = [found["targets"][name] for name in names]
        cases, failed = sum(one["cases"] for one in of), sum(len(one["failures"]) for one in of)
        assert table[what] == [f"{cases:,}", f"{failed}"]
    text = " ".join((documents.ROOT / PAGE).read_text().split())
    assert f"{found['cases']:,} cases" in text
    assert f"{found['seconds'] / 60:.0f} minutes on one core" in text
