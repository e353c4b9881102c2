"""A Grafana of this machine's own network, asked as a browser asks it, and shown to one."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import math
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dashboards.panels import NOT_KNOWN
from tests.switch import grafana_loading
from tests.switch.prometheus import INTERVAL_MS, Prometheus
from tests.switch.wire import inside
from tests.unit.dashboards.dashboards import Dashboard, Query

# Where this module is imported; the tests themselves run in a network of their own.
MACHINES_NETWORK = f"/proc/self/fd/{os.open('/proc/thread-self/ns/net', os.O_RDONLY)}"
DATA_SOURCE = "ovs-lbt test"
CHUNK_BYTES = 65536
# High enough that every panel is on the screen, as Grafana asks for those only.
SCREEN, SHOWN_WITHIN_MS, RENDERED_WITHIN_S = "1600,8000", 30_000, 180
# Where a panel begins in the page: in Grafana 9 and 10, and in 11.
PANEL = re.compile(r'data-(?:panelid|viz-panel-key)="(?:panel-)?(\d+)[^"]*"')
# What marks an error: in Grafana 9, in 10, and in 11; and what timelines say of data they cannot show.
FAILED = re.compile(
    r'panel-info-corner--error|="Panel status"|Panel (?:header|status) error'
    r"|>\s*(?:Data does not have a time field|No graphable fields)\s*<"
)
# Timelines have words of their own for it, and so have tiles and bars.
NO_DATA = re.compile(rf">\s*(?:No data(?: in response)?|{NOT_KNOWN})\s*<")
# Panels that are drawn, and on what. One that fails in the browser may stay empty without a word.
DRAWN, CANVAS = {"timeseries", "state-timeline", "heatmap"}, "<canvas"


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
                with grafana_loading.own_folder(self._call):
                    yield self
            finally:
                self._call("DELETE", f"datasources/uid/{uid}")

    def load(self, dashboard: Dashboard) -> None:
        """Load it under a uid of the tests, all rows open, and see that Grafana has all of its panels."""
        grafana_loading.load(self._call, dashboard)

    def show(
        self,
        dashboard: Dashboard,
        chosen: Mapping[str, str],
        span_s: tuple[float, float],
        directory: Path,
    ) -> dict[str, str]:
        """What is wrong with the panels that a browser shows, by title: no data, an error, or nothing."""
        browser = shutil.which("chromium")
        assert browser, "found no chromium on PATH"
        asked = {f"var-{name}": value for name, value in chosen.items()}
        asked |= _span(span_s)
        asked["var-datasource"] = self._source["uid"]
        with self._without_login() as base, inside(MACHINES_NETWORK):
            url = f"{base}/d/{grafana_loading.own_uid(dashboard)}?kiosk&{urllib.parse.urlencode(asked)}"
            page = subprocess.run(
                [
                    *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                    *("--disable-background-networking", "--disable-component-update"),
                    "--no-proxy-server",
                    f"--user-data-dir={directory}",
                    f"--window-size={SCREEN}",
                    f"--virtual-time-budget={SHOWN_WITHIN_MS}",
                    *("--dump-dom", url),
                ],
                capture_output=True,
                text=True,
                timeout=RENDERED_WITHIN_S,
                check=True,
            ).stdout
        titles = {panel["id"]: panel["title"] for panel in dashboard.asking}
        drawn = {panel["title"] for panel in dashboard.asking if panel["type"] in DRAWN}
        parts = PANEL.split(page)[1:]
        shown = {
            titles[int(n)]: part
            for n, part in zip(parts[::2], parts[1::2], strict=True)
            if int(n) in titles
        }
        expected = set(titles.values())
        wrong = dict.fromkeys(expected - shown.keys(), "is not on the page")
        for title, part in shown.items():
            if FAILED.search(part):
                wrong[title] = "an error"
            elif NO_DATA.search(part):
                wrong[title] = "no data"
            elif title in drawn and CANVAS not in part:
                wrong[title] = "nothing is drawn"
        return wrong

    @contextlib.contextmanager
    def _without_login(self) -> Iterator[str]:
        """The URL in this block by which a browser reaches it that has no credentials."""
        base, headers = self._base, self._headers

        class Relay(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                sent = {k: v for k, v in self.headers.items() if k != "Accept-Encoding"}
                request = urllib.request.Request(
                    base + self.path, self.rfile.read(length) or None, sent | headers
                )
                request.method = self.command
                try:
                    answer = urllib.request.urlopen(request, timeout=60)
                except urllib.error.HTTPError as error:
                    answer = error
                with answer, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    body = answer.read()
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        with inside(MACHINES_NETWORK):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)

        def serve() -> None:
            with inside(MACHINES_NETWORK):
                server.serve_forever()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def ask(self, query: Query, text: str, span_s: tuple[float, float]) -> str:
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
        try:
            answer = self._call("POST", "ds/query", {"queries": [asked], **_span(span_s)})
        except AssertionError as error:
            # So that whoever asked says of which panel the query is.
            return str(error)
        result = answer["results"][query.ref]
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
                told = answer.read()
                return json.loads(told) if told else None
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None


def _span(span_s: tuple[float, float]) -> dict[str, str]:
    """From when until when is shown, in milliseconds. The end is rounded up: it has a sample."""
    since_s, until_s = span_s
    return {"from": f"{since_s * 1000:.0f}", "to": f"{math.ceil(until_s * 1000)}"}


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
