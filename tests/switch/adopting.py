"""What an operator sees of a command that fails, and of a bridge before and after."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from tests.switch.bed import Bed
from tests.switch.service import Service
from tests.switch.waiting import HANG_S, wait_until


def refused(service: Service, *words: str) -> str:
    """A command that must fail; its only line."""
    return one_line(service.command(*words))


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, len(lines), done.stdout) == (1, 1, ""), done
    assert re.search(r"\S+; \S+", lines[0]), f"no problem; what to do: {lines[0]}"
    return lines[0]


def state(bed: Bed) -> dict[str, Any]:
    """All that an operator could compare: flows, groups, and the database's records.

    What was learned for our pipeline comes and goes while there is one, and so does what holds a flood up.
    """
    flows = bed.ofctl("dump-flows", "--no-stats").splitlines()
    groups = bed.ofctl("dump-groups").splitlines()
    if any("cookie=0x6c627400" in f for f in flows):
        flows = [f for f in flows if "cookie=0x6c627403" not in f and "hard_timeout=" not in f]
    return {
        "flows": sorted(f.strip() for f in flows if "actions=" in f),
        "groups": sorted(g.strip() for g in groups if "group_id=" in g),
        "records": records(bed),
    }


def comes_to(bed: Bed, expected: dict[str, Any], besides_team: bool = False) -> None:
    """Wait until `state` is `expected`: the service shows what it has decided before the switch has it.

    `besides_team`: the last valid team need not be written again yet.
    """

    def compared(found: dict[str, Any]) -> dict[str, Any]:
        records = found["records"]
        if besides_team:
            records = [re.sub(r'ovs-lbt-team=("[^"]*"|[^",}]*)(, )?', "", r) for r in records]
        return {**found, "records": records}

    end_s = time.monotonic() + HANG_S
    while (found := compared(state(bed))) != compared(expected) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert found == compared(expected)


@contextlib.contextmanager
def attached_from_standalone(bed: Bed, service: Service) -> Iterator[None]:
    """Plain uplinks are attached in this block, of which NORMAL used one alone before, and does afterwards."""
    with bed.cable_pulled(bed.uplinks[1]):
        bed.ovs.vsctl("del-fail-mode", bed.bridge)
        service.attach(bed)
        assert bed.fail_mode() == "secure"
    wait_until(lambda: service.all_up(bed), "both uplinks work")
    yield
    with bed.cable_pulled(bed.uplinks[1]):
        service.do("detach", bed.bridge)
        assert bed.fail_mode() == "", "detach restores what was before attach"
        bed.ovs.vsctl("set-fail-mode", bed.bridge, "secure")


def has_ours(bed: Bed) -> bool:
    """Whether the switch has flows of ours."""
    return "cookie=0x6c62" in bed.ofctl("dump-flows")


def records(bed: Bed) -> list[str]:
    """What is ours to change in the database, and what is not."""
    columns = {
        "bridge": "name,controller,fail_mode,external_ids,other_config,ports",
        "port": "name,external_ids,other_config,bond_mode,lacp,tag,interfaces",
        "interface": "name,external_ids,other_config,options",
    }
    return [bed.ovs.vsctl(f"--columns={columns[table]}", "list", table) for table in columns]
