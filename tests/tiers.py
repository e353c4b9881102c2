"""What `make test` leaves to `make test-all`, so that it comes to twelve minutes.

`make test` keeps each preset and teaming with one failover, each promise of delivery once, and what guards
against loops, duplicates and lost VMs. Left out are the same checks on further teams, figures with limits,
and tests that set up other software: OVN, libvirt, packages, the commands of the documents, benches. Also
left out as a whole are VLANs that path checks miss, an upstream switch without its own uplink, and a leader
that is stopped.

tests/tiers.txt lists the tests: a file below tests/, and behind `: ` parts of the names of its tests, with
` | ` between them. Of a file without parts, all tests are left out. A list may go on in an indented line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
# Files that take longest. They begin first, so that at the end no worker has one left while others have none.
LONGEST = (
    *("switch/test_presets.py", "switch/test_delivery.py", "switch/test_faults.py"),
    *("switch/test_confirm.py", "switch/test_check.py", "switch/test_restart.py"),
    *("switch/test_hashing.py", "switch/test_path_check.py", "switch/test_hostile.py"),
    *("switch/test_vm_life.py", "switch/test_attach.py", "switch/test_adoption.py"),
    *("mininet/test_layouts.py", "switch/test_load_based.py"),
    *("switch/test_lacp.py", "switch/test_standby.py", "switch/test_split.py"),
)


def _read(text: str) -> Mapping[str, tuple[str, ...]]:
    entries = (line.partition(": ") for line in re.sub(r"\n +", " ", text).splitlines())
    return {file: tuple(parts.split(" | ")) for file, _, parts in entries}


# An empty part is in every name.
THOROUGH = _read(LIST.read_text())


def is_thorough(file: str, name: str) -> bool:
    """Whether `make test` leaves out the test of this name in a file, which is named from tests/ on."""
    return any(part in name for part in THOROUGH.get(file, ()))
