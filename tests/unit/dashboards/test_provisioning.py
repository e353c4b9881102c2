"""What Prometheus, Grafana and compose are given: it fits together, and its files are there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.commands import DEFAULT_METRICS
from tests.unit.dashboards.dashboards import ALL, DIRECTORY

PROVISIONING = DIRECTORY / "provisioning"
PROMETHEUS = PROVISIONING / "prometheus.yml"
DATA_SOURCES = PROVISIONING / "grafana" / "datasources" / "prometheus.yml"
PROVIDERS = PROVISIONING / "grafana" / "dashboards" / "ovs-lbt.yml"
COMPOSE = DIRECTORY / "compose.yml"
CONFIGURATIONS = "/etc/grafana/provisioning"


def load(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def service(name: str) -> dict[str, Any]:
    found = load(COMPOSE)["services"][name]
    assert isinstance(found, dict)
    return found


def mounts(name: str) -> dict[str, Path]:
    """What a container has of ours, by the place where it has it."""
    found = {}
    for volume in service(name)["volumes"]:
        source, target, *mode = volume.split(":")
        if source.startswith("."):
            assert mode == ["ro"], volume
            found[target] = (DIRECTORY / source).resolve()
        else:
            assert source in load(COMPOSE)["volumes"], volume
    return found


def of_container(name: str, path: str) -> Path:
    """The file of ours that a path means inside the container."""
    for target, source in mounts(name).items():
        if path == target or path.startswith(f"{target}/"):
            return source / path.removeprefix(target).lstrip("/")
    raise AssertionError(f"{name} has no {path}")


def flag(name: str) -> str:
    given = [word for word in service("prometheus")["command"] if word.startswith(f"--{name}=")]
    assert len(given) == 1, given
    return str(given[0].partition("=")[2])


@pytest.mark.system
def test_prometheus_takes_its_configuration_with_the_rules() -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", str(PROMETHEUS)], capture_output=True, text=True, timeout=30
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert set(re.findall(r"Checking .*/rules/(\S+)", checked.stdout)) == {
        path.name for path in (DIRECTORY / "rules").glob("*.yml")
    }
    assert "rules found" in checked.stdout


def test_prometheus_scrapes_where_the_service_listens() -> None:
    (job,) = load(PROMETHEUS)["scrape_configs"]
    assert job["job_name"] == "ovs-lbt"
    assert job["static_configs"] == [{"targets": [DEFAULT_METRICS]}]


def test_grafana_asks_the_prometheus_that_is_started() -> None:
    (source,) = load(DATA_SOURCES)["datasources"]
    assert source["url"] == f"http://{flag('web.listen-address')}"
    assert source["isDefault"] is True
    # A variable of the dashboards chooses among data sources of this type.
    assert all(d.variables["datasource"]["query"] == source["type"] for d in ALL)
    interval = load(PROMETHEUS)["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_images_are_pinned_and_files_are_there(name: str) -> None:
    assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+\.\d+", service(name)["image"])
    for target, source in mounts(name).items():
        assert source.exists(), f"{target}: no {source}"
    # The service listens on the host's loopback.
    assert service(name)["network_mode"] == "host"


def test_containers_find_what_they_are_told_to_read() -> None:
    assert of_container("prometheus", flag("config.file")) == PROMETHEUS
    (rules,) = load(PROMETHEUS)["rule_files"]
    inside = os.path.normpath(f"{flag('config.file')}/../{rules}")
    assert of_container("prometheus", inside) == DIRECTORY / "rules" / "*.yml"
    assert of_container("grafana", f"{CONFIGURATIONS}/datasources/prometheus.yml") == DATA_SOURCES
    assert of_container("grafana", f"{CONFIGURATIONS}/dashboards/ovs-lbt.yml") == PROVIDERS
    (provider,) = load(PROVIDERS)["providers"]
    provided = of_container("grafana", provider["options"]["path"])
    for dashboard in ALL:
        assert (provided / f"{dashboard.name}.json").exists()
    # Grafana looks for dashboards below that, too.
    assert len(list(provided.rglob("*.json"))) == len(ALL)
    home = service("grafana")["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert of_container("grafana", home) == DIRECTORY / "fleet.json"


def test_nothing_listens_beyond_this_host() -> None:
    assert flag("web.listen-address").startswith("127.0.0.1:")
    assert service("grafana")["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
