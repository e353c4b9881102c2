"""Steady flows that never end, and ears that count them: one sender and one set of ears for a world.

To start a sender and to open ears for each event takes longer than most events.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.switch.bed import Bed, Shot, Station
from tests.switch.chaos import losses
from tests.switch.wire import STREAM_SHIFT, CountingEar, Ears, Point, sending_socket

# Between two frames of which nothing comes any more.
QUIET_S = 0.02
# What a switch has not delivered by then is looked for once more.
LANDS_WITHIN_S = 0.3
# A frame to send, and in each so manyth round.
Sending = tuple[Station, bytes, int]


@dataclass(frozen=True, slots=True)
class Rounds:
    """What was sent: when each round began and ended, and what interfaces refused."""

    first: int
    end: int
    at_s: Mapping[int, tuple[float, float]]
    refused: Mapping[int, Collection[int]]
    latest_s: float

    def sent(
        self, flow: int, first: int, end: int, every: int = 1
    ) -> dict[int, tuple[float, float]]:
        """The frames of a flow that went out in these rounds, by their number."""
        return {
            n: at_s
            for n, at_s in self.at_s.items()
            if first <= n < end and n % every == 0 and flow not in self.refused.get(n, ())
        }


class Traffic:
    """Flows from VMs and from the first host of a bed, and what of them comes in anywhere."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        stations = [*bed.vms, bed.hosts[0]]
        hosts = [host.point for host in bed.hosts]
        self._host_names = {point.name for point in hosts}
        self._sockets: dict[str, socket.socket] = {}
        self._process: subprocess.Popen[str] | None = None
        # What flows send, and since which round; and the first round that was not counted.
        self._going_on: dict[int, tuple[Sending, int]] = {}
        self.counted = 0
        points = [vm.point for vm in bed.vms] + [u.upstream_end for u in bed.uplinks] + hosts
        self.ears = Ears(points, CountingEar)
        try:
            for station in stations:
                self._sockets[str(station)] = sending_socket(station.point)
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("sender.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[made.fileno() for made in self._sockets.values()],
                text=True,
            )
            self._tell({"period_s": 1 / losses.PPS})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._process:
            self._process.communicate(timeout=60)
        for made in self._sockets.values():
            made.close()
        self.ears.close()

    # ---- flows -----------------------------------------------------------------------------

    def set(self, flows: Mapping[int, Sending | None]) -> int:
        """What these flows send from now on; None: nothing. The first round of which this holds."""
        changed = {
            number: sending
            and [self._sockets[str(sending[0])].fileno(), sending[1].hex(), sending[2]]
            for number, sending in flows.items()
        }
        first = int(self._ask({"set": changed})["from"])
        for number, sending in flows.items():
            self._going_on.pop(number, None)
            if sending:
                self._going_on[number] = sending, first
        return first

    def go_on(self, flows: Mapping[int, Sending]) -> dict[int, int]:
        """These flows and no others. By flow, the first round that nobody has counted yet.

        What sends the same as before was not interrupted.
        """
        changed: dict[int, Sending | None] = {}
        changed |= {n: None for n in self._going_on if n not in flows}
        for number, (station, frame, every) in flows.items():
            was = self._going_on.get(number)
            same = was and (str(was[0][0]), *was[0][1:]) == (str(station), frame, every)
            if not same:
                changed[number] = station, frame, every
        self.set(changed)
        for ear in map(self._ear, self.ears.by_name):
            ear.forget_before(self.counted)
        return {number: max(self.counted, self._going_on[number][1]) for number in flows}

    def rounds(self, first: int) -> Rounds:
        """All rounds from `first` until now."""
        told = self._ask({"report": first})
        return Rounds(
            first,
            told["next"],
            {n: (begun_s, ended_s) for n, begun_s, ended_s in told["rounds"]},
            {int(n): frozenset(flows) for n, flows in told["refused"].items()},
            told["latest_s"],
        )

    def landed(self, flows: Mapping[int, Sequence[str]], since: int) -> None:
        """Wait a moment until something newer of each flow has come in wherever it is heard.

        Frames of a flow keep their order, so what is missing then is lost.
        """
        end_s = time.monotonic() + LANDS_WITHIN_S
        waiting = {(point, flow) for flow, points in flows.items() for point in points}
        while waiting and time.monotonic() < end_s:
            self.ears.listen(within_s=0.01)
            waiting = {
                (point, flow)
                for point, flow in waiting
                if self._ear(point).newest.get(flow, -1) < since
            }

    def heard(self) -> dict[str, Mapping[int, Mapping[int, int]]]:
        """By point and flow, how often each frame came in there."""
        return {name: self._ear(name).counts for name in self.ears.by_name}

    def listen_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.ears.listen(within_s=0.01)

    # ---- single frames -------------------------------------------------------------------------

    @contextlib.contextmanager
    def listening_at(self, point: Point) -> Iterator[None]:
        """There is an ear there, too, in this block."""
        self.ears.by_name[point.name] = CountingEar(point)
        try:
            yield
        finally:
            self.ears.by_name.pop(point.name).close()

    def fire(self, shots: Sequence[Shot]) -> Mapping[int, Counter[str]]:
        """Send frames one after another; by a frame's id, how many copies came out where.

        As `Bed.fire`: at a station of the bridge under test, or at the upstream end of an uplink.
        """
        for shot in shots:
            self._bed.send(shot.point, shot.frame)
            self.ears.listen(within_s=0.002)
        self._bed.fence()
        self.ears.until_quiet(below_id=1 << STREAM_SHIFT, quiet_s=QUIET_S)
        copies: dict[int, Counter[str]] = {shot.frame_id: Counter() for shot in shots}
        for name, counts in self.heard().items():
            single = counts.get(0, {}) if name not in self._host_names else {}
            for frame_id in copies.keys() & single.keys():
                copies[frame_id][name] = single[frame_id]
        return copies

    # ---- the sender ----------------------------------------------------------------------------

    def _ear(self, name: str) -> CountingEar:
        ear = self.ears.by_name[name]
        assert isinstance(ear, CountingEar)
        return ear

    def _tell(self, order: Mapping[str, Any]) -> None:
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        self._tell(order)
        assert self._process
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the sender has ended"
        told: dict[str, Any] = json.loads(line)
        return told
