"""A load of TCP flows between end systems, run by iperf3."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.streams import Flow, Report, received_bytes, stream_rates_bps

FIRST_PORT = 5201
LISTEN_TIMEOUT_S = 10.0
# Time to start all senders before the first flow begins.
READY_S = 0.5
END_TIMEOUT_S = 10.0
# Computes further figures from all reports and the throughput of the measured part.
Derive = Callable[[Sequence[Report], float], Mapping[str, float]]


class StreamLoad(Load):
    """Runs flows, each with its own sender and receiver process.

    `measured_s` is a part of the load in which every flow sends. Without it, the whole load is
    measured, and each stream's rate is the one while its flow sends.

    `derive` computes further figures. With `may_fail`, a flow that cannot connect or loses its
    connection counts as a flow without traffic, and its report is empty; otherwise it is an error.
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
        super().__init__(stage)
        self._flows = list(flows)
        self._derive = derive
        self._may_fail = may_fail
        self.load_s = max(flow.begin_s + flow.duration_s for flow in flows)
        self._is_whole = measured_s is None
        self.measured_s = self.steady_s = measured_s or (0.0, self.load_s)
        self._programs = self._programs_of("iperf3")

    def start(self) -> None:
        """Start all programs. Each sender waits until its flow begins."""
        pids = self._stage.host_pids
        for port, flow in enumerate(self._flows, start=FIRST_PORT):
            self._programs.start_in(pids[flow.receiver], f"to-{port}", flow.receiver_command(port))
        for port, flow in enumerate(self._flows, start=FIRST_PORT):
            self._await_listening(flow.receiver, port)
        self.start_s = time.monotonic() + READY_S
        for port, flow in enumerate(self._flows, start=FIRST_PORT):
            wait_s = max(0.0, self.start_s + flow.begin_s - time.monotonic())
            command = ["sh", "-c", f'sleep {wait_s:.3f}; exec "$@"', "sh"]
            command += flow.sender_command(port)
            self._programs.start_in(pids[flow.sender], f"from-{port}", command)

    def finish(self) -> Outcome:
        """Wait for all flows. `details` has each stream's rate in the measured part."""
        reports = [self._report(port) for port, _ in enumerate(self._flows, start=FIRST_PORT)]
        rates_bps = [
            self._rates_bps(flow, report) for flow, report in zip(self._flows, reports, strict=True)
        ]
        streams_bps = [rate_bps for flow in rates_bps for rate_bps in flow]
        received = sum(map(received_bytes, reports))
        throughput_bps = received * 8 / self.load_s if self._is_whole else sum(streams_bps)
        mean_bps = statistics.fmean(streams_bps)
        figures: dict[str, float] = {"stream_mean_bps": mean_bps}
        if len(streams_bps) > 1:
            stdev_bps = statistics.stdev(streams_bps)
            figures["stream_stdev_bps"] = stdev_bps
            figures["stream_cv"] = stdev_bps / mean_bps if mean_bps else 0.0
        if self._derive is not None:
            figures |= self._derive(reports, throughput_bps)
        details = {"stream_rates_bps": rates_bps}
        return Outcome(received, throughput_bps, figures, details)

    def _rates_bps(self, flow: Flow, report: Report) -> list[float]:
        """Each stream's rate in the measured part of the load."""
        if not report and self._may_fail:
            return [0.0] * flow.streams
        if self._is_whole:
            return stream_rates_bps(report, flow.streams, 0.0, flow.duration_s)
        from_s, to_s = (at_s - flow.begin_s for at_s in self.measured_s)
        return stream_rates_bps(report, flow.streams, from_s, to_s)

    def _report(self, port: int) -> Report:
        """The report of a flow; empty if the flow failed and may fail."""
        try:
            report: Report = self._programs.results(f"to-{port}", self._left_s() + END_TIMEOUT_S)
            if "error" in report:
                raise RuntimeError(report["error"])
        except (RuntimeError, ValueError) as failure:
            if self._may_fail:
                return {}
            flow = self._flows[port - FIRST_PORT]
            said = self._programs.said(f"from-{port}")
            text = f"iperf3 from {flow.sender} to {flow.receiver} failed: {failure}; sender: {said}"
            raise RuntimeError(text) from None
        return report

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
