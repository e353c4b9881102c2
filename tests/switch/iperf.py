"""TCP streams between a VM and a host upstream."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.switch.bed import Station, run
from tests.switch.waiting import wait_until


@contextlib.contextmanager
def server(host: Station) -> Iterator[None]:
    """iperf3 listens at a host in this block."""
    assert host.point.netns
    command = ["ip", "netns", "exec", host.point.netns, "iperf3", "--server"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: ":5201" in run("ss", "-ltn", netns=host.point.netns), "iperf3 is listening"
        )
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def client(
    vm: Station, host: Station, seconds: int, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """A VM sends to a host, at most until this block ends."""
    assert vm.point.netns
    command = ["ip", "netns", "exec", vm.point.netns, "iperf3", "--client", host.ip, "--json"]
    command += ["--time", str(seconds), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            # Where its server is gone it would try for ever, as fast as it can.
            process.kill()


def end(
    process: subprocess.Popen[str],
    seconds: int,
    look: Callable[[], object] = lambda: None,
    every_s: float | None = None,
) -> dict[str, Any]:
    """Wait for a client's end; the sums of its report: `sum_sent` and `sum_received`.

    Meanwhile `look` is called, at first and then `every_s`.
    """
    deadline_s = time.monotonic() + seconds + 30
    while True:
        look()
        left_s = deadline_s - time.monotonic()
        try:
            # Its report is more than a pipe has room for: it has to be read all the time.
            answer, _ = process.communicate(timeout=min(every_s or left_s, left_s))
            break
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline_s:
                raise
    report = json.loads(answer)
    assert "error" not in report, report["error"]
    sums: dict[str, Any] = report["end"]
    return sums
