"""Commands without the service and with --dry-run: the database and the switch stay as they are.

With the service: tests/unit/controller/operations/test_dry_run.py.
"""

from __future__ import annotations

import json

from tests.said import says
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service

pytestmark = on_beds(*[BedSpec(team, 2, (None, None), (None,)) for team in (PLAIN, BALANCE_SLB)])


def state(bed: Bed) -> dict[str, object]:
    """The settings in the database, and the flows and groups of the switch."""
    columns = {"Bridge": "name,external_ids,other_config,fail_mode"}
    columns |= {"Port": "name,external_ids,other_config,protected,qos"}
    columns |= {"Interface": "name,external_ids,other_config,options"}
    columns |= {"Open_vSwitch": "external_ids"}
    listed = [word for t, c in columns.items() for word in ("--", f"--columns={c}", "list", t)]
    records = bed.ovs.vsctl("--format=json", *listed).splitlines()
    flows = bed.ofctl("dump-flows", "--no-stats", "--no-names")
    return {
        **{table: json.loads(found) for table, found in zip(columns, records, strict=True)},
        # Learned flows, which have a timeout, come and go with frames.
        "flows": sorted(flow for flow in flows.splitlines() if "_timeout=" not in flow),
        "groups": sorted(bed.ofctl("dump-groups").splitlines()),
    }


def test_nothing_changes_without_the_service(bed: Bed, service: Service) -> None:
    def dry(*words: str) -> list[str]:
        before = state(bed)
        done = service.command(*words, "--dry-run")
        assert done.returncode == 0, f"{words}: {done.stderr}"
        assert state(bed) == before, words
        return done.stdout.splitlines()

    with service.attached(bed, "--policy", "originating-port"):
        service.do("set", "bridge", bed.bridge, "threshold=60", "--rollback-after", "600")
        with service.dead():
            assert says(dry("detach", bed.bridge)[0], "would remove", "policy", "threshold")
            for command in ("confirm", "rollback"):
                assert says(dry(command, bed.bridge)[-1], bed.bridge, "would", "the change by set")
            assert says("\n".join(dry("rescue", "--all")), bed.bridge, "needs no rescue")
        service.do("rollback", bed.bridge)
