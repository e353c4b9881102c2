"""Alertmanager with the documents' rules: of two severities of one alert, the critical one calls somebody."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import documents
from tests.switch import prometheus
from tests.switch.service import free_tcp_port
from tests.unit.dashboards.test_rules import played

ROUTES = """\
route: {receiver: nobody, group_by: [...]}
receivers: [{name: nobody}]
"""

Labels = dict[str, str]


def expected(alert: str, severity: str) -> Labels:
    """The labels that a case expects of an alert of ours; promtool holds the rules against it."""
    for case in played():
        for rule in case.get("alert_rule_test", []):
            for fired in rule["exp_alerts"]:
                if (rule["alertname"], fired["exp_labels"]["severity"]) == (alert, severity):
                    return {"alertname": alert, **fired["exp_labels"]}
    raise AssertionError(f"no case of tests/rules expects {alert} with severity {severity}")


def raised(address: str, *alerts: Labels) -> dict[frozenset[tuple[str, str]], bool]:
    """Raise alerts, as Prometheus does; by its labels, whether each calls somebody."""
    url, body = f"http://{address}/api/v2/alerts", json.dumps([{"labels": one} for one in alerts])
    json_type = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, data=body.encode(), headers=json_type)
    urllib.request.urlopen(asked, timeout=10).close()
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return {key(one["labels"]): not one["status"]["inhibitedBy"] for one in found}


def key(labels: Labels) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """The address of Alertmanager with the block of the documents."""
    (block,) = documents.labelled("alertmanager")
    config = tmp_path / "alertmanager.yml"
    config.write_text(f"{ROUTES}{block.text}\n")
    names = ("prometheus-alertmanager", "alertmanager")
    program = next(filter(None, map(shutil.which, names)), None)
    assert program, f"found none of {names} on PATH, expected Debian's: run make setup"
    address = f"127.0.0.1:{free_tcp_port()}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.path={tmp_path}/data",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with prometheus.ready(command, address, tmp_path / "log"):
        yield address


def test_a_critical_alert_silences_the_warning_of_the_same_and_no_other(
    alertmanager: str,
) -> None:
    full = expected("OvsLbtUplinkSaturated", "critical")
    unrelieved = expected("OvsLbtUplinkSaturated", "warning")
    assert unrelieved == {**full, "severity": "warning"}
    others = [
        {**unrelieved, "uplink": "eth9"},
        {**unrelieved, "bridge": "br9"},
        {**unrelieved, "instance": "h9:9476"},
        {**unrelieved, "alertname": "OvsLbtUplinkDown"},
    ]
    assert raised(alertmanager, unrelieved) == {key(unrelieved): True}
    calls = raised(alertmanager, full, unrelieved, *others)
    assert calls == {key(full): True, key(unrelieved): False, **{key(o): True for o in others}}


def test_of_two_broken_rules_each_calls_somebody(alertmanager: str) -> None:
    """One is critical, and the other one has nothing to do with it."""
    without = expected("OvsLbtRuleBroken", "critical")
    together = expected("OvsLbtRuleBroken", "warning")
    assert without["rule"] != together["rule"]
    assert without["bridge"] == together["bridge"]
    calls = raised(alertmanager, without, together)
    assert calls == {key(without): True, key(together): True}
