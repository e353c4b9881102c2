"""Reads a trace of one bridge from the service's metrics in Prometheus."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any

from controller.api.status import BITS_PER_BYTE
from controller.config.kinds import LAST_S
from controller.replay.trace import LEAST_CAPACITY_BPS, MOST_BPS, BadTrace, HostTrace
from controller.text.wording import because, invalid

STEP_S = 300
TIMEOUT_S = 60.0
# The largest accepted answer. A month of 500 ports needs less.
MOST_ANSWER_BYTES = 256 * 2**20
# Exceptions from an answer that has an unexpected structure.
_OF_ANOTHER_SHAPE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


def fetch(url: str, bridge: str, since_s: int, now_s: float) -> list[HostTrace]:
    """Fetch a bridge's mean VM port loads in steps of five minutes. Each `instance` is a host.

    Raises:
        BadTrace: Prometheus does not answer, or its answer is not a trace.
    """
    end_s = now_s // STEP_S * STEP_S
    span = (end_s - since_s + STEP_S, end_s)
    chosen = f"{{bridge={json.dumps(bridge)}}}"
    hosts: dict[str, HostTrace] = {}
    for metric, values in _ask(url, f"ovslbt_uplink_capacity_bytes_per_second{chosen}", span):
        capacity_bps = BITS_PER_BYTE * values[-1][1]
        name = _label(metric, "instance")
        if capacity_bps < LEAST_CAPACITY_BPS:
            slow = f"an uplink with {capacity_bps:g} bit/s"
            raise BadTrace(f"{bridge} at {name}: {slow}; expected {LEAST_CAPACITY_BPS:g} or more")
        host = hosts.setdefault(name, HostTrace(name, capacity_bps))
        if capacity_bps != host.capacity_bps:
            unequal = f"uplinks with {host.capacity_bps:g} and {capacity_bps:g} bit/s"
            raise BadTrace(f"{bridge} at {name}: {unequal}; expected equal uplinks")
    for direction, counter in enumerate(("transmit", "receive")):
        rate = f"rate(ovslbt_port_{counter}_bytes_total{chosen}[{STEP_S}s])"
        for metric, values in _ask(url, rate, span):
            name, port = _label(metric, "instance"), _label(metric, "port")
            for at_s, bytes_per_second in values if name in hosts else ():
                # A rate covers the step that ends at its time.
                loads = hosts[name].samples.setdefault(at_s - STEP_S, {})
                load = list(loads.get(port, (0.0, 0.0)))
                load[direction] = BITS_PER_BYTE * bytes_per_second
                loads[port] = (load[0], load[1])
    found = [hosts[name] for name in sorted(hosts) if hosts[name].samples]
    if not found:
        raise BadTrace(f"{url} has no samples for bridge {bridge} and its uplinks in that time")
    for host in found:
        # A gap in the recording ends the sample before it.
        last_s = max(host.samples)
        for at_s in [at_s for at_s in host.samples if at_s < last_s]:
            host.samples.setdefault(at_s + STEP_S, {})
        host.samples = dict(sorted(host.samples.items()))
    return found


def _ask(
    url: str, query: str, span: tuple[float, float]
) -> Iterator[tuple[Mapping[str, str], list[tuple[float, float]]]]:
    """Query Prometheus, and return the labels and the (time, value) pairs of each series."""
    asked = {"query": query, "start": span[0], "end": span[1], "step": STEP_S}
    address = f"{url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    try:
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise ValueError(url)
    except ValueError as error:
        raise BadTrace(invalid(url, "http://HOST:PORT or https://HOST:PORT")) from error
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            text = answer.read(MOST_ANSWER_BYTES + 1)
        if len(text) > MOST_ANSWER_BYTES:
            raise BadTrace(f"the answer exceeds {MOST_ANSWER_BYTES} bytes; use a shorter --since")
        answered: Any = json.loads(text)
        series = [
            (dict(one["metric"]), [(float(at_s), float(value)) for at_s, value in one["values"]])
            for one in answered["data"]["result"]
        ]
    except (*_OF_ANOTHER_SHAPE, HTTPException) as error:
        raise BadTrace(f"{url} does not offer the HTTP API of Prometheus") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        why = because(reason) if isinstance(reason, Exception) else str(reason)
        raise BadTrace(f"{url} does not answer: {why}") from error
    for metric, values in series:
        kept = [
            (at_s, value)
            for at_s, value in values
            if STEP_S <= at_s <= LAST_S and 0 <= value <= MOST_BPS / BITS_PER_BYTE
        ]
        if kept:
            yield metric, kept


def _label(metric: Mapping[str, str], name: str) -> str:
    label = metric.get(name)
    if not isinstance(label, str) or not label:
        raise BadTrace(f"a time series has no label {name}")
    return label
