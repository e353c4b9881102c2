"""A load of TCP flows between end systems, run by iperf3."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.streams import Flow, received_bytes, spread, stream_rates_bps
from topologies.network import processes

FIRST_PORT = 5201
LISTEN_TIMEOUT_S = 10.0
# Time to start all senders before the first flow begins.
READY_S = 0.5
END_TIMEOUT_S = 10.0
# iperf3's report of a flow; empty if the flow failed.
Report = Mapping[str, Any]
# Computes further figures from all reports and the throughput of the measured part.
Derive = Callable[[Sequence[Report], float], Mapping[str, float]]


class StreamLoad(Load):
    """Runs flows, each with its own sender and receiver process.

    `measured_s` is a part of the load in which every flow sends. Without it, the whole load is
    measured, and each stream's rate is the one while its flow sends.

    `derive` computes further figures. With `may_fail`, a flow that cannot connect or loses its
    connection counts as a flow without traffic; otherwise it is an error.
    """

    def __init__(
        self,
        stage: Stage,
        flows: Sequence[Flow],
        measured_s: tuple[float, float] | None = None,
        *,
        derive: Derive | None = None,
        may_fail: bool = False,
    ) -> None:
        self._stage = stage
        self._flows = list(flows)
        self._derive = derive
        self._may_fail = may_fail
        self.load_s = max(flow.begin_s + flow.duration_s for flow in flows)
        self._is_whole = measured_s is None
        self.measured_s = self.steady_s = measured_s or (0.0, self.load_s)
        self._receivers: list[subprocess.Popen[bytes]] = []
        self._senders: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all programs. Each sender waits until its flow begins."""
        for number, flow in enumerate(self._flows):
            command = flow.receiver_command(FIRST_PORT + number)
            pid = self._stage.host_pids[flow.receiver]
            self._receivers.append(processes.start_in(pid, command, self._log("receiver", number)))
        for number, flow in enumerate(self._flows):
            self._await_listening(flow.receiver, FIRST_PORT + number)
        self.start_s = time.monotonic() + READY_S
        for number, flow in enumerate(self._flows):
            wait_s = max(0.0, self.start_s + flow.begin_s - time.monotonic())
            command = ["sh", "-c", f'sleep {wait_s:.3f}; exec "$@"', "sh"]
            command += flow.sender_command(FIRST_PORT + number)
            pid = self._stage.host_pids[flow.sender]
            self._senders.append(processes.start_in(pid, command, self._log("sender", number)))

    def finish(self) -> Outcome:
        """Wait for all flows. `details` has each stream's rate in the measured part."""
        end_s = self.start_s + self.load_s
        reports = [self._report(number, end_s) for number in range(len(self._flows))]
        rates_bps = [
            self._rates_bps(flow, report) for flow, report in zip(self._flows, reports, strict=True)
        ]
        streams_bps = [rate_bps for flow in rates_bps for rate_bps in flow]
        found = spread(streams_bps)
        received = sum(map(received_bytes, reports))
        throughput_bps = received * 8 / self.load_s if self._is_whole else found.total
        figures: dict[str, float] = {"stream_mean_bps": found.mean}
        if len(streams_bps) > 1:
            figures |= {"stream_stdev_bps": found.stdev, "stream_cv": found.cv}
        if self._derive is not None:
            figures |= self._derive(reports, throughput_bps)
        return Outcome(
            received_bytes=received,
            throughput_bps=throughput_bps,
            figures=figures,
            details={"stream_rates_bps": rates_bps},
        )

    def close(self) -> None:
        """Stop all programs."""
        for process in (*self._senders, *self._receivers):
            processes.end(process)

    def _rates_bps(self, flow: Flow, report: Report) -> list[float]:
        """Each stream's rate in the measured part of the load."""
        if not report and self._may_fail:
            return [0.0] * flow.streams
        if self._is_whole:
            return stream_rates_bps(report, flow.streams, 0.0, flow.duration_s)
        from_s, to_s = (at_s - flow.begin_s for at_s in self.measured_s)
        return stream_rates_bps(report, flow.streams, from_s, to_s)

    def _report(self, number: int, end_s: float) -> Report:
        """The report of a flow; empty if the flow failed and may fail."""
        receiver = self._receivers[number]
        try:
            receiver.wait(max(0.0, end_s - time.monotonic()) + END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            if not self._may_fail:
                raise RuntimeError(f"{self._name(number)} did not end in time") from None
            processes.end(receiver)
        text = self._log("receiver", number).read_text(errors="replace")
        try:
            report: Report = json.loads(text)
        except ValueError:
            report = {"error": f"no report: {text[-200:]!r}"}
        if "error" not in report:
            return report
        if self._may_fail:
            return {}
        sender = self._log("sender", number).read_text(errors="replace")[-500:]
        raise RuntimeError(f"{self._name(number)} failed: {report['error']}; sender: {sender}")

    def _name(self, number: int) -> str:
        flow = self._flows[number]
        return f"iperf3 from {flow.sender} to {flow.receiver}"

    def _log(self, side: str, number: int) -> Path:
        return self._stage.directory / f"{side}{number}.json"

    def _await_listening(self, receiver: str, port: int) -> None:
        net = Path(f"/proc/{self._stage.host_pids[receiver]}/net")
        deadline_s = time.monotonic() + LISTEN_TIMEOUT_S
        while not any(_listens(net / table, port) for table in ("tcp", "tcp6")):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"iperf3 on {receiver} does not listen on port {port}")
            time.sleep(0.02)


def _listens(table: Path, port: int) -> bool:
    """Whether a socket in the kernel's TCP table listens on the port."""
    rows = (line.split() for line in table.read_text().splitlines()[1:])
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)
