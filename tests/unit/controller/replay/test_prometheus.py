"""Traces from Prometheus, as its HTTP API tells them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from controller import cli
from controller.config.kinds import DURATION
from controller.replay import prometheus
from controller.replay.prometheus import fetch
from controller.replay.trace import BadTrace

NOW_S = 1_000_000_010.0
END_S = 999_999_900


class Prometheus(BaseHTTPRequestHandler):
    """Answers by the metric that a query names."""

    series: dict[str, Any]
    asked: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query)
        name = next((name for name in self.series if name in query["query"][0]), None)
        result = {"resultType": "matrix", "result": self.series[name] if name else []}
        body = json.dumps({"status": "success", "data": result}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Prometheus.series, Prometheus.asked = {}, []
    served = HTTPServer(("127.0.0.1", 0), Prometheus)
    thread = threading.Thread(target=served.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}/"
    served.shutdown()
    thread.join()
    served.server_close()


def one(values: dict[int, float], **labels: str) -> dict[str, Any]:
    metric = {"instance": "hv1:9476", "bridge": "br0", **labels}
    return {"metric": metric, "values": [[at_s, str(value)] for at_s, value in values.items()]}


def record(capacity: float = 1000) -> None:
    Prometheus.series = {
        "capacity": [
            one({END_S: 1000}, uplink="eth1"),
            one({END_S: capacity}, uplink="eth2"),
        ],
        "port_transmit": [
            one({END_S - 600: 10, END_S: 30, END_S + 300: float("nan")}, port="vnet0"),
            one({END_S: 40}, port="vnet1"),
            one({END_S: 40}, port="vnet1", instance="unknown"),
        ],
        "port_receive": [one({END_S: 50}, port="vnet0")],
    }


def test_rates_become_samples_of_the_step_before_and_gaps_are_idle(server: str) -> None:
    record()
    (host,) = fetch(server, "br0", 3600, NOW_S)
    assert (host.name, host.capacity_bps) == ("hv1:9476", 8000)
    assert host.intervals() == [
        (END_S - 900, END_S - 600, {"vnet0": (80, 0)}),
        (END_S - 600, END_S - 300, {}),
        (END_S - 300, END_S, {"vnet0": (240, 400), "vnet1": (320, 0)}),
    ]
    asked = [query["query"][0] for query in Prometheus.asked]
    assert asked[1] == 'rate(ovslbt_port_transmit_bytes_total{bridge="br0"}[300s])'
    spans = {(q["start"][0], q["end"][0], q["step"][0]) for q in Prometheus.asked}
    assert spans == {(f"{END_S - 3300:.1f}", f"{END_S:.1f}", "300")}


def test_nothing_recorded_and_unequal_uplinks_are_refused(server: str) -> None:
    with pytest.raises(BadTrace, match="has no samples for bridge br0 and its uplinks"):
        fetch(server, "br0", 3600, NOW_S)
    record(capacity=500)
    with pytest.raises(BadTrace, match="uplinks with 8000 and 4000 bit/s; expected equal uplinks"):
        fetch(server, "br0", 3600, NOW_S)


def test_the_command_replays_it(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    record()
    words = ["replay", "--prometheus", server, "--bridge", "br0", "--policy", "load-based"]
    assert cli.main([*words, "--json", "--processes", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["load-based"]["duration_s"] == 900


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("7d", 604800), ("2w", 1209600)])
def test_durations(text: str, seconds: int) -> None:
    assert DURATION.parse(text) == seconds


@pytest.mark.parametrize(
    "series",
    [
        {"metric": ["instance"], "values": [[END_S, "1"]]},
        {"metric": {"instance": 7}, "values": [[END_S, "1e9"]]},
        {"metric": {"instance": "hv1"}, "values": [[10**400, "1e9"]]},
        {"metric": {"instance": "hv1"}, "values": [[END_S, "0"]]},
        {"metric": {"instance": "hv1"}, "values": {"a": 1}},
        "series",
    ],
    ids=["a list", "a number", "a time that is none", "no capacity", "no values", "a text"],
)
def test_an_answer_of_another_shape_is_refused(server: str, series: Any) -> None:
    Prometheus.series = {"capacity": [series]}
    with pytest.raises(BadTrace, match=r"Prometheus|no label|expected 1 or more"):
        fetch(server, "br0", 3600, NOW_S)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(
        BadTrace, match=r"http://\[::1 is invalid; expected http://HOST:PORT or https://HOST:PORT"
    ):
        fetch("http://[::1", "br0", 3600, NOW_S)


def test_an_answer_that_goes_on_is_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record()
    monkeypatch.setattr(prometheus, "MOST_ANSWER_BYTES", 100)
    with pytest.raises(BadTrace, match="the answer exceeds 100 bytes"):
        fetch(server, "br0", 3600, NOW_S)
