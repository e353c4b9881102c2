"""A Grafana of this machine's own network, asked as a browser asks it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from tests.switch.prometheus import INTERVAL_MS, Prometheus
from tests.switch.wire import inside
from tests.unit.dashboards.dashboards import Dashboard, Query

# Where this module is imported; the tests themselves run in a network of their own.
MACHINES_NETWORK = f"/proc/self/fd/{os.open('/proc/thread-self/ns/net', os.O_RDONLY)}"
DATA_SOURCE = "ovs-lbt test"
CHUNK_BYTES = 65536


class Grafana:
    """What GRAFANA_URL names, credentials included."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._headers = {"Content-Type": "application/json"}
        if parts.username:
            user = f"{urllib.parse.unquote(parts.username)}:"
            secret = user + urllib.parse.unquote(parts.password or "")
            encoded = base64.b64encode(secret.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        self._source: dict[str, str] = {}

    @contextlib.contextmanager
    def asking(self, prometheus: Prometheus) -> Iterator[Grafana]:
        """With a data source in this block that reaches this Prometheus."""
        for left in self._call("GET", "datasources"):
            if left["name"] == DATA_SOURCE:
                self._call("DELETE", f"datasources/uid/{left['uid']}")
        with _reachable(prometheus) as url:
            made = self._call(
                "POST",
                "datasources",
                {
                    "name": DATA_SOURCE,
                    "type": "prometheus",
                    "access": "proxy",
                    "url": url,
                    "jsonData": {"timeInterval": f"{INTERVAL_MS}ms"},
                },
            )
            uid = made["datasource"]["uid"]
            self._source = {"type": "prometheus", "uid": uid}
            try:
                yield self
            finally:
                self._call("DELETE", f"datasources/uid/{uid}")

    def load(self, dashboard: Dashboard) -> None:
        """Load it, and see that Grafana has all of its panels."""
        body = {"dashboard": {**dashboard.json, "id": None}, "overwrite": True}
        uid = self._call("POST", "dashboards/db", body)["uid"]
        assert uid == dashboard.json["uid"]
        kept = self._call("GET", f"dashboards/uid/{uid}")["dashboard"]
        assert len(kept["panels"]) == len(dashboard.panels), dashboard

    def ask(self, query: Query, text: str, since_s: float) -> str:
        """Ask a query as the panel does; what is wrong with the answer, or nothing."""
        asked = {
            "refId": query.ref,
            "datasource": self._source,
            "expr": text,
            "instant": query.instant,
            "range": not query.instant,
            "intervalMs": INTERVAL_MS,
            "maxDataPoints": 1000,
        }
        span = {"from": f"{since_s * 1000:.0f}", "to": f"{time.time() * 1000:.0f}"}
        result = self._call("POST", "ds/query", {"queries": [asked], **span})["results"][query.ref]
        if result.get("error"):
            return str(result["error"])
        if any(
            frame["schema"].get("meta", {}).get("notices") for frame in result.get("frames", [])
        ):
            return "Grafana has something to say of it"
        values = [
            column for frame in result.get("frames", []) for column in frame["data"]["values"]
        ]
        return "" if any(values) else "no data"

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._base}/api/{path}", data, self._headers)
        request.method = method
        try:
            with inside(MACHINES_NETWORK), urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None


@contextlib.contextmanager
def _reachable(prometheus: Prometheus) -> Iterator[str]:
    """The URL in this block by which the machine's own network reaches it."""
    there = urllib.parse.urlsplit(prometheus.url)
    address = (str(there.hostname), int(there.port or 0))
    with inside(MACHINES_NETWORK):
        listening = socket.create_server(("127.0.0.1", 0))
    with open("/proc/thread-self/ns/net") as ours:
        network = f"/proc/self/fd/{ours.fileno()}"

        def relay() -> None:
            with inside(network), contextlib.suppress(OSError):
                while True:
                    near, _ = listening.accept()
                    far = socket.create_connection(address)
                    for one, other in ((near, far), (far, near)):
                        threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

        threading.Thread(target=relay, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := one.recv(CHUNK_BYTES):
            other.sendall(chunk)
        other.shutdown(socket.SHUT_WR)
