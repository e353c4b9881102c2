"""Command lines that the documents, the man page and the help had at revision 20533f2 still work.

`kept_commands.txt` has these lines in the order in which they run, each with the exit status that
it had at that revision. Below a line are the paths and the types of the JSON that it printed. Names
of bridges and interfaces are those of `_build`, and `trace.csv` is the start of the recorded
traffic in docs/examples. A line that cannot run here has the word `parsed` instead of a status: the
parser has to accept it. CHANGELOG.md tells of one with the word `removed`. `! kill` ends the
service. Entries of `history` with the outcome of a move are left out: they follow after a window.
"""

from __future__ import annotations

import gzip
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from controller.cli import arguments
from tests.documents import ROOT
from tests.switch import datapath
from tests.switch.bed import run
from tests.switch.service import Service
from tests.switch.waiting import HANG_S, wait_until
from topologies import bench as bench_command
from topologies.network.private_ovs import PrivateOvs

FILE = Path(__file__).with_name("kept_commands.txt")
PARSED = "parsed"
PORTS = {"br0": ("vnet0", "vnet1", "vnet3"), "br1": ("eth4", "eth5", "web0")}
BOND = ("eth0", "eth1", "eth2", "eth3")
VM_ID, VM_MAC = "3a5c1f2e-9b1d-4c58-8a2e-0123456789ab", "52:54:00:5e:00:01"
TRACE_ROWS = 60

# Runs each command in a fork of one process, because to start Python takes longer than most commands.
RUNNER = """
import json, os, sys, tempfile
from controller import cli
for line in sys.stdin:
    files = [tempfile.TemporaryFile() for _ in range(2)]
    child = os.fork()
    if not child:
        for number, file in enumerate([open(os.devnull, "rb"), *files]):
            os.dup2(file.fileno(), number)
        sys.exit(cli.main(json.loads(line)))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = [os.pread(file.fileno(), 1 << 24, 0).decode() for file in files]
    print(json.dumps([status, *said]), flush=True)
"""


@dataclass
class Line:
    """A command line, its exit status or a word, and the types of its JSON by their paths."""

    text: str
    expected: str
    types: dict[str, str] = field(default_factory=dict)


def lines() -> list[Line]:
    """The lines of the file, in order."""
    found: list[Line] = []
    for line in FILE.read_text().splitlines():
        if line.startswith("    "):
            path, _, kinds = line.strip().rpartition(" ")
            found[-1].types[path] = kinds
        elif line and not line.startswith("#"):
            expected, _, text = line.partition(" ")
            found.append(Line(text, expected))
    return found


def types(printed: str) -> dict[str, str]:
    """The types in JSON, by path; a history has one object a line."""
    try:
        values = [json.loads(printed)]
    except json.JSONDecodeError:
        values = [[json.loads(line) for line in printed.splitlines()]]
    found: dict[str, set[str]] = {}
    for path, kind in (one for value in values for one in _typed(value, "")):
        found.setdefault(path, set()).add(kind)
    return {path or ".": "|".join(sorted(kinds)) for path, kinds in found.items()}


def _typed(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        # Kinds of events have fields of their own.
        at = f"{path}({value['event']})" if "event" in value else path
        yield at, "object"
        for key, inner in value.items():
            yield from _typed(inner, f"{at}.{key}")
    elif isinstance(value, list):
        yield path, "list"
        for inner in value:
            yield from _typed(inner, f"{path}[]")
    else:
        names = {bool: "boolean", int: "number", float: "number", str: "text", type(None): "null"}
        yield path, names[type(value)]


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is missing or of another type. A value that may be null is null at any time."""
    found = [f"{path} is missing" for path in before if path not in now]
    for path in before.keys() & now.keys():
        old, new = (set(kinds.split("|")) - {"null"} for kinds in (before[path], now[path]))
        if old and not new <= old:
            found.append(f"{path} was {before[path]}, is {now[path]}")
    return found


@dataclass
class Bench:
    service: Service
    runner: subprocess.Popen[str]
    directory: Path

    def called(self, text: str) -> tuple[int, str, str]:
        """A command line's exit status, standard output and standard error."""
        program, *words = shlex.split(text)
        if program != "ovs-lbt":
            env = self.service.ovs.env
            done = subprocess.run([program, *words], env=env, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr
        assert self.runner.stdin and self.runner.stdout
        print(json.dumps(words), file=self.runner.stdin, flush=True)
        status, out, err = json.loads(self.runner.stdout.readline())
        for bundle in self.directory.glob("*.tar.gz"):
            # The next bundle has the same name if it is written in the same second.
            bundle.unlink()
        if words[0] == "attach" and status == 0:
            wait_until(self._connected, "all bridges are connected")
        return status, out, err

    def _connected(self) -> bool:
        shown: list[dict[str, Any]] = json.loads(self.service.ask("show", "--json"))["bridges"]
        return all(b["connected"] and all(p["uplink"] for p in b["ports"]) for b in shown)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    names = [*BOND, *(name for ports in PORTS.values() for name in ports)]
    for name in names:
        address = ["address", VM_MAC] if name == "vnet1" else []
        run("ip", "link", "add", name, "type", "veth", "peer", f"{name}x", *address)
        run("ip", "link", "set", name, "up")
        run("ip", "link", "set", f"{name}x", "up")
    with gzip.open(ROOT / "docs/examples/replay-trace.csv.gz", "rt") as trace:
        (tmp_path / "trace.csv").write_text("".join(itertools.islice(trace, TRACE_ROWS)))
    with PrivateOvs(prefix="ovs-lbt-kept-") as ovs:
        _build(ovs)
        service = Service(ovs)
        command, pipe = [sys.executable, "-c", RUNNER], subprocess.PIPE
        runner = subprocess.Popen(
            command, env=ovs.env, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True
        )
        try:
            service.start()
            yield Bench(service, runner, tmp_path)
        finally:
            service.kill()
            runner.communicate(timeout=HANG_S)
    for name in names:
        run("ip", "link", "del", name)


def _build(ovs: PrivateOvs) -> None:
    """br0 has a bond, VM ports and a patch port; br1 has plain uplinks and a VM port."""
    words: list[str] = []
    for bridge in (*PORTS, "br-int"):
        words += ["--", "add-br", bridge, "--", "set", "bridge", bridge, datapath.SETTING]
    words += ["--", "add-bond", "br0", "bond0", *BOND, "bond_mode=balance-slb"]
    words += ["--", "set-fail-mode", "br1", "secure"]
    for bridge, ports in PORTS.items():
        words += [word for port in ports for word in ("--", "add-port", bridge, port)]
    ends = (("br0", "patch-provnet", "patch-int"), ("br-int", "patch-int", "patch-provnet"))
    for bridge, end, other in ends:
        words += ["--", "add-port", bridge, end, "--", "set", "interface", end]
        words += ["type=patch", f"options:peer={other}"]
    words += ["--", "set", "interface", "vnet0", "external_ids:vm-id=web-1"]
    identity = [f'external_ids:vm-id="{VM_ID}"', f'external_ids:attached-mac="{VM_MAC}"']
    words += ["--", "set", "interface", "vnet1", *identity]
    ovs.vsctl(*words[1:])


def test_command_lines_end_and_print_json_as_before(bench: Bench) -> None:
    wrong = []
    for line in lines():
        if line.expected == "!":
            bench.service.kill()
        elif line.expected.isdecimal():
            status, out, err = bench.called(line.text)
            if str(status) != line.expected:
                wrong.append(f"{line.text}: ended with {status}, not {line.expected}: {err or out}")
            elif line.types:
                wrong += [f"{line.text}: {change}" for change in changes(line.types, types(out))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("line", [line.text for line in lines() if line.expected == PARSED])
def test_a_command_line_is_accepted(line: str) -> None:
    words = shlex.split(line)[1:]
    if words[0] == "bench":
        named = bench_command.OTHERS.get(words[1])
        parser = import_module(named).parser() if named else bench_command._parser()
        options = parser.parse_args(words[1 + bool(named) :])
        assert named or bench_command._usage_error(options) == ""
    elif words[0] == "replay":
        arguments.separate_parser("replay").parse_args(words[1:])
    else:
        arguments.parser().parse_args(words)
