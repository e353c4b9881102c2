"""The dashboards as the tests load them: apart from those that a Grafana has of its own.

Whoever has them in a folder keeps them as they are. So here each has another uid, and leads to the
others under their other uids.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.unit.dashboards.dashboards import ALL, Dashboard

# A method, a path below /api, and what is sent: what Grafana answers.
Call = Callable[[str, str, object], Any]
FOLDER, FOLDER_TITLE, SUFFIX = "ovs-lbt-test", "ovs-lbt test", "-test"
UIDS = frozenset(str(dashboard.json["uid"]) for dashboard in ALL)
# A uid wherever it stands: in a link, or in a query that makes a link of it.
UID = re.compile(rf"(?<![\w-])({'|'.join(sorted(UIDS))})(?![\w-])")


def own_uid(dashboard: Dashboard) -> str:
    return f"{dashboard.json['uid']}{SUFFIX}"


def own(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard under a uid of the tests, all rows open."""
    opened = {**dashboard.json, "id": None, "panels": _opened(dashboard)}
    renamed: dict[str, Any] = json.loads(UID.sub(rf"\1{SUFFIX}", json.dumps(opened)))
    return renamed


@contextlib.contextmanager
def own_folder(call: Call) -> Iterator[None]:
    """With a folder of the tests in this block, which takes its dashboards along as it goes."""
    if any(left["uid"] == FOLDER for left in call("GET", "folders", None)):
        call("DELETE", f"folders/{FOLDER}", None)
    call("POST", "folders", {"uid": FOLDER, "title": FOLDER_TITLE})
    try:
        yield
    finally:
        call("DELETE", f"folders/{FOLDER}", None)


def load(call: Call, dashboard: Dashboard) -> None:
    """Load it into the folder of the tests, and see that Grafana has all of its panels."""
    uid = own_uid(dashboard)
    body = {"dashboard": own(dashboard), "overwrite": True, "folderUid": FOLDER}
    assert call("POST", "dashboards/db", body)["uid"] == uid
    kept = call("GET", f"dashboards/uid/{uid}", None)["dashboard"]
    found = [panel for row in kept["panels"] for panel in (row, *row.get("panels", []))]
    assert len(found) == len(dashboard.panels), dashboard


def _opened(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The panels with all rows open. Grafana keeps those of a row that is not collapsed beside it."""
    return [
        one
        for panel in dashboard.json["panels"]
        for one in (
            ({**panel, "collapsed": False, "panels": []}, *panel["panels"])
            if panel.get("collapsed")
            else (panel,)
        )
    ]
