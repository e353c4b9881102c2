"""Every command that changes something, with --dry-run: the database and the switch stay as they are."""

from __future__ import annotations

import json

from controller.api.commands import COMMANDS
from tests.said import says
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service

pytestmark = on_beds(*[BedSpec(team, 2, (None, None), (None,)) for team in (PLAIN, BALANCE_SLB)])


def state(bed: Bed, service: Service) -> dict[str, object]:
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


def test_nothing_changes(bed: Bed, service: Service) -> None:
    vm, uplinks = bed.vms[0], [uplink.name for uplink in bed.uplinks]
    lines = list[str]()

    def dry(*words: str) -> list[str]:
        before = state(bed, service)
        done = service.command(*words, "--dry-run")
        assert done.returncode == 0, f"{words}: {done.stderr}"
        assert state(bed, service) == before, words
        lines.append(words[0])
        return done.stdout.splitlines()

    with service.attached(bed, "--policy", "originating-port"):
        at = service.bindings(bed)[vm.port]
        other = next(name for name in uplinks if name != at)
        move = f"would move {vm.port}: {at} -> {other}"
        assert dry("move", vm.port, other) == [f"{move} (manual)"]
        assert dry("pin", vm.port, other)[1:] == [f"{move} (pin)"]
        assert f"{move} (drain)" in dry("drain", at)
        assert dry("unpin", vm.port) == ["nothing would change"]
        threshold = f"would set threshold=60 on bridge {bed.bridge}"
        assert dry("set", "bridge", bed.bridge, "threshold=60") == [threshold]
        temporary = dry("set", "bridge", bed.bridge, "threshold=60", "--rollback-after", "60")
        assert says(temporary[1], "roll this back after 60 s", f"ovs-lbt confirm {bed.bridge}")
        assert says(dry("detach", bed.bridge)[0], "would remove", f"from bridge {bed.bridge}")
        refused = service.command("move", vm.port, "nope", "--dry-run")
        assert (refused.returncode, refused.stderr.strip()) == (
            1,
            service.command("move", vm.port, "nope").stderr.strip(),
        )
        service.do("drain", at)
        assert dry("undrain", at)[0] == f"would remove role from interface {at}"
        service.do("undrain", at)
        service.do("plan", bed.bridge)
        assert says(dry("apply", bed.bridge)[0], "no moves")
        service.do("set", "bridge", bed.bridge, "threshold=60", "--rollback-after", "600")
        assert says(dry("unset", "bridge", bed.bridge, "threshold")[0], "would remove threshold")
        with service.dead():
            assert says(dry("detach", bed.bridge)[0], "would remove", "policy", "threshold")
            for command in ("confirm", "rollback"):
                assert says(dry(command, bed.bridge)[-1], bed.bridge, "would", "the change by set")
            assert says("\n".join(dry("rescue", "--all")), bed.bridge, "needs no rescue")
        for command in ("confirm", "rollback"):
            assert says(dry(command, bed.bridge)[-1], bed.bridge, "would", "the change by set")
        service.do("rollback", bed.bridge)
    said = dry("attach", bed.bridge, *bed.uplink_options, "--policy", "explicit")
    assert says(said[0], "would set", "policy=explicit", f"on bridge {bed.bridge}")
    assert set(lines) == {row.name for row in COMMANDS if row.changes}
