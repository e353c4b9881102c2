"""Tests that load the dashboards into somebody's Grafana leave what is there as it is."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.switch import grafana_loading as loading
from tests.unit.dashboards.dashboards import ALL, Dashboard

# What a text names that begins with the uid of a dashboard of ours.
NAMED = re.compile(r"ovs-lbt-(?:fleet|bridge|decisions|controller)[\w-]*")
IN_LINK = re.compile(r"/d/([\w-]+)")
THEIRS = "infrastructure"


class Somebodys:
    """A Grafana whose owner has the dashboards in a folder. It does what Grafana's HTTP API does."""

    def __init__(self, *folders: str) -> None:
        self.folders = {THEIRS, *folders}
        self.dashboards = {
            dashboard.json["uid"]: (THEIRS, copy.deepcopy(dashboard.json)) for dashboard in ALL
        }
        for folder in folders:
            self.dashboards[f"left in {folder}"] = (folder, {"panels": []})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        match method, path.split("/"):
            case "GET", ["folders"]:
                return [{"uid": uid} for uid in sorted(self.folders)]
            case "POST", ["folders"]:
                assert body["uid"] not in self.folders, "a folder with the uid already exists"
                self.folders.add(body["uid"])
                return {"uid": body["uid"]}
            case "DELETE", ["folders", uid]:
                self.folders.remove(uid)
                self.dashboards = {n: kept for n, kept in self.dashboards.items() if kept[0] != uid}
                return None
            case "POST", ["dashboards", "db"]:
                uid = body["dashboard"]["uid"]
                assert body["overwrite"] or uid not in self.dashboards, "the uid is taken"
                # Without a folder, a dashboard leaves the one that it was in.
                folder = body.get("folderUid", "")
                assert not folder or folder in self.folders, "no such folder"
                self.dashboards[uid] = (folder, copy.deepcopy(body["dashboard"]))
                return {"uid": uid}
            case "GET", ["dashboards", "uid", uid]:
                return {"dashboard": self.dashboards[uid][1]}
        raise AssertionError(f"asked {method} {path}")


each_dashboard = pytest.mark.parametrize("dashboard", ALL, ids=str)


def strings(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield from (key, *strings(value))
    elif isinstance(found, list):
        for value in found:
            yield from strings(value)
    elif isinstance(found, str):
        yield found


def test_every_dashboard_is_loaded_into_a_folder_of_the_tests_under_a_uid_of_the_tests() -> None:
    grafana = Somebodys()
    with loading.own_folder(grafana.call):
        for dashboard in ALL:
            loading.load(grafana.call, dashboard)
        places = {uid: folder for uid, (folder, _) in grafana.dashboards.items()}
    shipped = {dashboard.json["uid"]: THEIRS for dashboard in ALL}
    ours = {f"{uid}{loading.SUFFIX}": loading.FOLDER for uid in shipped}
    assert places == shipped | ours
    assert not set(shipped) & set(ours)


def test_what_its_owner_has_stays_as_and_where_it_is() -> None:
    grafana, untouched = Somebodys(), Somebodys()
    with loading.own_folder(grafana.call):
        for dashboard in ALL:
            loading.load(grafana.call, dashboard)
    assert vars(grafana) == vars(untouched)


def test_nothing_is_left_after_a_test_that_fails_or_was_killed() -> None:
    grafana, untouched = Somebodys(loading.FOLDER), Somebodys()

    def fail() -> None:
        with loading.own_folder(grafana.call):
            loading.load(grafana.call, ALL[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert vars(grafana) == vars(untouched)


@each_dashboard
def test_nothing_of_it_leads_to_what_its_owner_has(dashboard: Dashboard) -> None:
    here, there = list(strings(dashboard.json)), list(strings(loading.own(dashboard)))
    before = sorted(name for text in here for name in NAMED.findall(text))
    after = sorted(name for text in there for name in NAMED.findall(text))
    assert after == [f"{name}{loading.SUFFIX}" for name in before]
    # In links of the dashboard and of its panels, and in queries that links are made of.
    loaded = {loading.own_uid(one) for one in ALL}
    led_to = {name for text in there for name in IN_LINK.findall(text)}
    assert led_to
    assert led_to <= loaded
    assert set(after) <= loaded


@each_dashboard
def test_it_is_the_same_dashboard_otherwise(dashboard: Dashboard) -> None:
    own = loading.own(dashboard)
    found = [panel for row in own["panels"] for panel in (row, *row.get("panels", []))]
    assert [panel["id"] for panel in found] == [panel["id"] for panel in dashboard.panels]
    assert not any(row.get("collapsed") for row in own["panels"])
    back = json.dumps(found, sort_keys=True).replace(loading.SUFFIX, "")
    asked = [[t["expr"] for t in p["targets"]] for p in json.loads(back) if p["type"] != "row"]
    assert asked == [[t["expr"] for t in panel["targets"]] for panel in dashboard.asking]
    variables = {one["name"]: one for one in own["templating"]["list"]}
    assert variables == dashboard.variables
    assert own["annotations"] == dashboard.json["annotations"]
