"""What commands say and which programs of the host they run, and the moves on recorded traffic.

Knows names of `controller`, as `adapter` does.
"""

# ruff: noqa: PT008
from __future__ import annotations

import argparse
import contextlib
import json
import platform
import shlex
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import ovs.dirs

from controller import rescue
from controller.api.events import AddressesRead, DatabaseRead
from controller.config.rows import Ovn
from controller.host import addresses
from controller.replay.figures import fluid_bound
from controller.replay.host import Host, Options
from controller.replay.switch import Switch
from controller.replay.trace import read as read_trace
from tests.goldens.adapter import Here, row_of, run_command
from tests.goldens.rendering import indented, told
from tests.goldens.steps import Played

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "docs" / "examples" / "replay-trace.csv.gz"


# ---- programs of the host ------------------------------------------------------------------


class Programs:
    """Stands in for all programs that are run: notes them, and answers those that it knows.

    Of several answers to one command, each is given once, the last one again and again.
    """

    def __init__(self, **answers: str | list[str]) -> None:
        self.answers = dict(answers)
        self.lines: list[str] = []

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.lines.append(f"run {shlex.join(command)}")
        self.lines += indented(options.get("input") or "")
        line = " ".join(word for word in command if not word.startswith("--timeout"))
        known = [name for name in self.answers if name in line]
        if not known:
            return subprocess.CompletedProcess(command, 1, "", "no answer\n")
        said = self.answers[max(known, key=len)]
        if isinstance(said, list):
            said = said.pop(0) if len(said) > 1 else said[0]
        return subprocess.CompletedProcess(command, 0, said, "")


@contextlib.contextmanager
def _host(programs: Programs, *sockets: str) -> Iterator[Path]:
    """A run directory of its own with these sockets, in which time passes only while somebody sleeps."""
    clock = [1000.0]

    def sleep(seconds: float) -> None:
        programs.lines.append(f"sleep {seconds:.3g}")
        clock[0] += seconds

    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="goldens")))
        for name in sockets:
            wire = stack.enter_context(socket.socket(socket.AF_UNIX))
            wire.bind(str(directory / name))
        stack.enter_context(mock.patch.object(ovs.dirs, "RUNDIR", str(directory)))
        stack.enter_context(mock.patch.object(ovs.dirs, "LOGDIR", str(directory)))
        stack.enter_context(mock.patch("subprocess.run", programs.run))
        stack.enter_context(mock.patch("time.sleep", sleep))
        stack.enter_context(mock.patch("time.monotonic", lambda: clock[0]))
        yield directory


def _typed(programs: Programs, directory: Path, *lines: str) -> Iterator[str]:
    for line in lines:
        yield f"$ ovs-lbt {line}"
        yield from _anywhere([*run_command(line.split()), *programs.lines], directory)
        programs.lines.clear()


def _anywhere(lines: Iterable[str], directory: Path) -> Iterator[str]:
    """Lines without the name of the run directory."""
    return (line.replace(str(directory), "RUNDIR") for line in lines)


def _three_seconds(team: str) -> Here:
    """What has become of a team after its first three seconds."""
    here = Played(team)
    here.start()
    here.run_for(3.0)
    return here


def rescued() -> Iterator[str]:
    plain = ("plain", "uplinks=3", "vms=1", "eth1.role=standby", "vnet0@mac='02:00:00:00:00:0a'")
    others = (("bond",), ("plain", "unattached"), ("plain", "policy=dynamic"))
    rows = row_of(plain), *(row_of(team, f"br{n}") for n, team in enumerate(others, 1))
    read = DatabaseRead(rows, ovn=Ovn(("192.0.2.1",)))
    up: dict[str, Any] = {"get interface": ["down\n", "down\n", "up\n"]}
    flows = "cookie=0x6c627400, actions=drop\n"
    down = {"get interface": "down\n"}
    answered: tuple[dict[str, Any], ...] = ({**up}, down, {**up, "dump-flows": flows}, {})
    here = AddressesRead({"vnet0": ("192.0.2.1", "fd00::1")})
    for number, answers in enumerate(answered):
        known = {"ovs-ofctl": "", "ovs-appctl": "", "protocols": "[OpenFlow13]", "ovs-vsctl": ""}
        programs = Programs(**(known if number < 3 else {}), **answers)
        with (
            _host(programs, "br0.mgmt", "br3.mgmt") as directory,
            mock.patch.object(rescue, "read", lambda _: read),
            mock.patch("controller.announce_endpoints.read", lambda _: read),
            mock.patch.object(addresses, "read_addresses", lambda: here),
        ):
            yield from _typed(programs, directory, "rescue br0", "rescue br1", "rescue br9")
            yield from _typed(programs, directory, "rescue br2", "rescue --all")


def upstream() -> Iterator[str]:
    """What `check` adds of counters of the network."""
    cookie = "cookie=0x6c62740000000000, duration=9.1s, "
    flow = cookie + "table={}, n_packets={}, n_bytes=9, priority={},{} actions=drop\n"
    multicast = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"
    for counts in ((500, 0, 900, 0), (500, 300, 900, 900), (5, 0, 2, 0), (900, 0, 3000, 1000)):
        sent, back, first, second = counts
        dumped = "".join(
            flow.format(table, count, 10, match)
            for table in range(26)
            for count, match in (
                (sent, multicast), (back, f"reg4=0x1,reg5=0x1,reg6=0x1,{multicast}"),
                (first, "reg1=0x1,reg2=0"), (second, "reg1=0x2,reg2=0"), (second, "reg1=0x2,reg2=0x1007"),
                (first, "reg1=0x1,reg2=0x1007"),
            )
        )  # fmt: skip
        listed = {
            "headings": ["name", "mtu", "link_speed", "statistics"],
            "data": [
                ["eth1", 1500, 10**9, ["map", [["rx_packets", 5000]]]],
                ["eth2", 9000, 10**10, ["map", [["rx_packets", 0]]]],
            ],
        }
        for team in ("bond policy=load-based", "static policy=load-based"):
            here = _three_seconds(team)
            here.lines.clear()
            programs = Programs(**{"dump-flows": dumped, "ovs-vsctl": json.dumps(listed)})
            with _host(programs, "br0.mgmt"):
                here.quiet = True
                here.do_cli("check")
                here.do_cli("check", "--json")
            yield f"{team} {counts}"
            yield from here.lines
            yield from programs.lines


def bundled() -> Iterator[str]:
    """What is in a support bundle, and what had to be run for it."""
    keys = ["map", [["ovs-lbt-policy", "slb"], ["password", "secret"]]]
    row = json.dumps({"headings": ["name", "external_ids"], "data": [["br0", keys]]})
    line = "2026-01-0{0}T00:00:00Z host ovs-vswitchd[1]: line {0} password=x\n"
    log = "".join(map(line.format, range(1, 9)))
    answers = {"find Bridge": "br0 br1\n", "list ": row, "journalctl": log, "ps -eo": log}
    programs = Programs(**answers)
    # Python runs `uname -p` once in a process, and keeps the answer.
    platform.processor()
    with _host(programs) as directory:
        (directory / "ovs-vswitchd.log").write_text(log)
        yield f"$ ovs-lbt support-bundle --out {directory.name[:0]}FILE"
        out = directory / "bundle.tar.gz"
        said = list(run_command(["support-bundle", "--out", str(out)]))
        yield from _anywhere((line for line in said if "/proc" not in line), directory)
        with tarfile.open(out) as archive:
            for member in archive.getmembers():
                part = member.name.partition("/")[2]
                yield f"{part} {member.mode:o}"
                if part not in ("versions", "README", "options"):
                    content = archive.extractfile(member)
                    yield from indented(content.read().decode() if content else "")
        yield from _anywhere(programs.lines, directory)


# ---- people --------------------------------------------------------------------------------


def helped(commands: Sequence[str]) -> Iterator[str]:
    """Help, the scripts of shells, wrong usage, and the man page."""
    with _host(Programs()) as directory, _as_one_python():
        for line in commands:
            yield f"$ ovs-lbt {line}"
            yield from _anywhere(run_command(line.split()), directory)
    yield from (ROOT / "docs" / "ovs-lbt.8").read_text().splitlines()


@contextlib.contextmanager
def _as_one_python() -> Iterator[None]:
    """Let argparse print an option's value once, as from Python 3.13 on, and the usage on one line."""
    made = argparse.HelpFormatter._format_action_invocation
    usage = argparse.HelpFormatter._format_usage

    def options(self: argparse.HelpFormatter, action: argparse.Action) -> str:
        if not action.option_strings:
            return made(self, action)
        names = ", ".join(action.option_strings)
        default = self._get_default_metavar_for_optional(action)
        return f"{names} {self._format_args(action, default)}" if action.nargs != 0 else names

    def on_one_line(*arguments: Any) -> str:
        return " ".join(usage(*arguments).split()) + "\n\n"

    formatter = argparse.HelpFormatter
    with mock.patch.multiple(
        formatter, _format_action_invocation=options, _format_usage=on_one_line
    ):
        yield


def replayed(policy: str, samples: int, **settings: str) -> Iterator[str]:
    """Moves with times, and figures, of recorded traffic."""
    (host, *_) = read_trace(TRACE)
    host.samples = {
        at_s: loads for n, (at_s, loads) in enumerate(host.samples.items()) if n < samples
    }
    lines: list[str] = []
    commit = Switch.commit

    def noted(switch: Switch, changes: Any, now_s: float) -> None:
        before: Any = dict(switch.routes), dict(switch.bucket_uplinks)
        commit(switch, changes, now_s)
        after: Any = dict(switch.routes), dict(switch.bucket_uplinks)
        for was, is_now in zip(before, after, strict=True):
            moved = {key: at for key, at in is_now.items() if was.get(key) != at}
            lines.extend(
                f"{now_s:.3f} {told(key)}: {told(at)}" for key, at in sorted(moved.items())
            )

    uplinks = 3 if settings else 2
    with mock.patch.object(Switch, "commit", noted):
        figures = Host(host, policy, Options(settings=settings, uplinks=uplinks)).replay()
    yield from lines
    yield told(figures.as_json(fluid_bound([host], uplinks)))
