"""The metrics: names, types and labels as the service exports them, with their help texts."""

from __future__ import annotations

from controller.metrics.exporter import HELP, PREFIX
from policies.model import Reason
from tests.unit.dashboards.exported import BR0, families

# Pages with more about a metric.
MORE = {
    "uplink_path_fault": "guide/path-checks.md",
    "path_rounds": "guide/path-checks.md",
    "path_frames": "guide/path-checks.md",
    "endpoint_info": "overlay.md",
    "port_shares": "policies/shares.md",
    "port_units": "policies/many-vms.md",
    "rule_broken": "policies/rules.md",
    "settling": "#settling-and-inbound",
    "inbound_follow": "#settling-and-inbound",
    "faults": "guide/install.md#the-service",
}
HEAD = "| metric | type | labels | meaning |\n|---|---|---|---|"
# Of a histogram's samples, those whose labels are the same as those of the family.
UNLIKE = ("_created", "_bucket")


def markdown() -> str:
    """A table of all metrics, in the order of the help texts, and the reasons of moves."""
    exported = {
        family.name.removeprefix(PREFIX).removesuffix("_seconds")
        if family.type == "histogram"
        else family.name.removeprefix(PREFIX): family
        for family in families(BR0)
    }
    rows = []
    for name, text in HELP.items():
        family = exported[name]
        sample = next(s for s in family.samples if not s.name.endswith(UNLIKE))
        full = family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
        more = f" [More]({MORE[name]})" if name in MORE else ""
        rows.append(f"| `{full}` | {family.type} | {', '.join(sample.labels)} | {text}{more} |")
    reasons = ", ".join(reason.value for reason in Reason)
    return "\n".join([HEAD, *rows, "", f"Reasons for moves: {reasons}."])
