"""Writes the JSON of all dashboards into this directory: `python -m dashboards.generate`."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import bridge, controller, decisions, fleet

DIRECTORY = Path(__file__).parent
DASHBOARDS = {
    "fleet.json": fleet.build,
    "bridge.json": bridge.build,
    "decisions.json": decisions.build,
    "controller.json": controller.build,
}


def texts() -> dict[str, str]:
    """Return the text of each dashboard's JSON file, by file name."""
    return {
        name: json.dumps(build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
        for name, build in DASHBOARDS.items()
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (DIRECTORY / name).write_text(text)
