"""A VM's name with escape sequences and line ends, and of any length, controls no output."""

from __future__ import annotations

import json

from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

FORGED = "2026-01-01 00:00:00,000 INFO controller.x: forged"
NAME = f"vm\x1b]0;title\x07\x1b[2J\x9b2J\u202e\n{FORGED}" + "x" * 20_000 + "x y" * 7_000


@on_beds(BedSpec(BALANCE_SLB, 2, (None, None)))
def test_a_vm_id_controls_no_output(attached: Bed, service: Service) -> None:
    bed, port, name = attached, attached.vms[0].port, NAME
    ids = f"external_ids:vm-id={json.dumps(name)}"
    bed.ovs.vsctl("set", "interface", port, ids)
    wait_until(
        lambda: service.port(bed, port)["vm"] == name, "the name is known, and JSON is exact"
    )
    try:
        service.place(bed, 0)
        service.place(bed, 1)
        bed.ovs.vsctl("set", "interface", port, "external_ids:ovs-lbt-pin=nowhere")
        asked = [
            ("explain", port),
            ("history", "--port", port),
            ("history", "--port", name),
            *(("plan", bed.bridge), ("check", bed.bridge), ("show", bed.bridge), ("top", "--once")),
            *(("pin", name, "x"), ("history", "--last", name)),
            *(("__complete", "explain", ""), ("__complete", "move", port, "")),
        ]
        for words in asked:
            done = service.command(*words)
            for text in (done.stdout, done.stderr):
                _harmless(text, words)
        told = json.loads(service.command("explain", port, "--json").stdout)
        assert told["vm"] == name
        assert any(f'vm="{_escaped(name)}"' in sample for sample in service.metrics())
        _harmless(
            bed.ovs.run("ovs-appctl", "-t", "ovs-lbt", "lbt/explain", port), ("ovs-appctl",), 10**6
        )
        _harmless(service.log.read_text(), ("log",), 10**6)
    finally:
        bed.ovs.vsctl("remove", "interface", port, "external_ids", "vm-id")
        bed.ovs.vsctl("remove", "interface", port, "external_ids", "ovs-lbt-pin")


def _harmless(text: str, words: tuple[str, ...], longest: int = 30_000) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in text), (words, text)
    assert f"\n{FORGED}" not in text, (words, text)
    assert len(text) < longest, words[0]


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
