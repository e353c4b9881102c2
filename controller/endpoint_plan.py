"""`ovs-lbt plan --endpoints`: measures the VMs of an overlay host, and says which endpoint suits each.

The service follows only attached bridges, and an integration bridge is never one. So the command
reads Open vSwitch's database itself, twice, and writes nothing.
"""

from __future__ import annotations

import json
import time

from controller.announce_endpoints import marked, read
from controller.host.programs import run
from controller.operations import endpoint_view
from controller.operations.endpoint_view import Counters
from controller.text.wording import Refused

# How often ovs-vswitchd writes statistics to the database, unless asked otherwise. Readings that are
# a multiple of it apart see as many updates, whenever they begin.
UPDATE_INTERVAL_S = 5.0
UPDATES = 2
MS_PER_S = 1000


def plan(remote: str, as_json: bool) -> str:
    """The answer for the Open vSwitch of this host. Takes as long as it measures.

    Raises:
        Refused: there is nothing to choose, or the database does not answer or cannot be read.
    """
    if not remote.startswith("unix:"):
        raise Refused(f"database {remote} -> unix:PATH, on the host of the tunnel endpoints")
    found = read(remote)
    host = endpoint_view.survey(found.bridges, found.ovn, marked(found).endpoints)
    measured_s = UPDATES * _update_interval_s(remote)
    before = _counters(remote)
    time.sleep(measured_s)
    answer = endpoint_view.answer(host, before, _counters(remote), measured_s)
    return endpoint_view.as_json(answer) if as_json else endpoint_view.as_text(answer)


def _update_interval_s(remote: str) -> float:
    key = "other_config:stats-update-interval"
    asked = _vsctl(remote, "--if-exists", "get", "Open_vSwitch", ".", key)
    digits = asked.strip().strip('"')
    is_number = digits.isascii() and digits.isdigit()
    return max(UPDATE_INTERVAL_S, int(digits) / MS_PER_S if is_number else 0.0)


def _counters(remote: str) -> Counters:
    listed = json.loads(
        _vsctl(remote, "--format=json", "--columns=name,statistics", "list", "Interface")
    )
    rows = ((name, dict(statistics)) for name, (_, statistics) in listed["data"])
    return {name: (int(of.get("rx_bytes", 0)), int(of.get("tx_bytes", 0))) for name, of in rows}


def _vsctl(remote: str, *words: str) -> str:
    return run("ovs-vsctl", f"--db={remote}", *words, expected="a running ovsdb-server")
