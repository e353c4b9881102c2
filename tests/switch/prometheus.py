"""Prometheus and Alertmanager as processes of a test."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.switch.service import free_tcp_port
from tests.switch.waiting import wait_until


@contextlib.contextmanager
def running(config: Path, directory: Path, *options: str) -> Iterator[int]:
    """Prometheus with this configuration; its data and its log are in the directory. Yields its port."""
    program = shutil.which("prometheus")
    assert program, "found no prometheus on PATH, expected Debian's: run make setup"
    port = free_tcp_port()
    address = f"127.0.0.1:{port}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={address}",
        *options,
    ]
    with ready(command, address, directory / "log"):
        yield port


@contextlib.contextmanager
def ready(command: Sequence[str], address: str, log: Path) -> Iterator[None]:
    """Prometheus or Alertmanager by this command, once it is ready at an address."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def is_ready() -> bool:
        assert process.poll() is None, f"{command[0]} ended: {log.read_text()[-1000:]}"
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"http://{address}/-/ready", timeout=5))
        return False

    try:
        wait_until(is_ready, f"{command[0]} is ready")
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
