#!/usr/bin/python3
"""As much of systemd as maintainer scripts ask for, where it is not process 1.

    python init.py ROOT      in ROOT, as its `systemctl`: starts units, until it is killed itself
    systemctl [--OPTION] VERB [--] UNIT...

What concerns files only (`preset`, `enable`) is the real one's. A unit is what its file says: ExecStart, its EnvironmentFile, and Type=notify's READY=1.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

ADDRESS = "/run/init.sock"
LOG = "/run/init.log"
REAL = "/usr/bin/systemctl.real"
UNITS = ("/etc/systemd/system", "/lib/systemd/system")
READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 30.0

_running: dict[str, subprocess.Popen[bytes]] = {}


def serve(root: str) -> None:
    """Answer one `systemctl` after another."""
    os.chroot(root)
    os.chdir("/")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(ADDRESS)
        server.listen()
        while True:
            client, _ = server.accept()
            with client:
                words = json.loads(client.makefile().readline())
                with open(LOG, "a", encoding="utf-8") as log:
                    print(*words, file=log)
                status, text = answer(words)
                client.sendall(json.dumps([status, text]).encode())


def ask(words: list[str]) -> int:
    if {"preset", "enable"} & set(words):
        os.execve(REAL, ["systemctl", *words], {**os.environ, "SYSTEMD_OFFLINE": "1"})
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(ADDRESS)
        client.sendall(json.dumps(words).encode() + b"\n")
        status, text = json.loads(client.makefile().read())
    print(text, end="")
    return int(status)


def answer(words: list[str]) -> tuple[int, str]:
    """The exit status of a `systemctl`, and what it prints."""
    verb, *named = [word for word in words if not word.startswith("-")]
    units = [name if "." in name else f"{name}.service" for name in named]
    match verb:
        case "daemon-reload" | "reset-failed":
            return 0, ""
        case "is-enabled":
            enabled = Path(UNITS[0], "multi-user.target.wants", units[0]).is_symlink()
            return (0, "enabled\n") if enabled else (1, "disabled\n")
        case "is-active":
            return (0 if alive(units[0]) else 3), ""
        case "show":
            return 0, "".join(map(shown, units))
        case "start":
            return max(start(unit) for unit in units), ""
        case "stop":
            return max(stop(unit) for unit in units), ""
        case "restart":
            return max(stop(unit) or start(unit) for unit in units), ""
    return 1, f"this systemctl does not support {verb}\n"


def alive(unit: str) -> bool:
    return unit in _running and _running[unit].poll() is None


def shown(unit: str) -> str:
    """Of a unit's properties, those that tell whether it is there and runs."""
    there = any(Path(place, unit).exists() for place in UNITS)
    load, active = "loaded" if there else "not-found", "active" if alive(unit) else "inactive"
    return f"Id={unit}\nLoadState={load}\nActiveState={active}\n"


def start(unit: str) -> int:
    if alive(unit):
        return 0
    settings = settings_of(unit)
    environment = dict(os.environ)
    for line in lines(settings["EnvironmentFile"].removeprefix("-")):
        name, _, value = line.partition("=")
        environment[name] = value.strip("\"'")
    notices = f"/run/{unit}.notify"
    Path(notices).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor, open(LOG, "ab") as log:
        supervisor.bind(notices)
        supervisor.settimeout(READY_TIMEOUT_S)
        _running[unit] = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *shlex.split(settings["ExecStart"])],
            env={**environment, "NOTIFY_SOCKET": notices},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            while b"READY=1" not in supervisor.recv(4096).splitlines():
                pass
        except TimeoutError:
            return 1
    return 0


def stop(unit: str) -> int:
    if alive(unit):
        _running[unit].terminate()
        _running[unit].wait(END_TIMEOUT_S)
    return 0


def settings_of(unit: str) -> dict[str, str]:
    """A unit's settings; of one that is given several times, the first."""
    file = next(path for place in UNITS if (path := Path(place, unit)).exists())
    found: dict[str, str] = {}
    for line in lines(str(file)):
        name, _, value = line.partition("=")
        found.setdefault(name, value)
    return found


def lines(path: str) -> list[str]:
    """A file's lines that say something; none where there is no file."""
    text = Path(path).read_text() if Path(path).exists() else ""
    return [line for line in text.splitlines() if "=" in line and not line.startswith("#")]


if __name__ == "__main__":
    if Path(sys.argv[0]).name == "systemctl":
        sys.exit(ask(sys.argv[1:]))
    serve(sys.argv[1])
