"""The bench's contenders, while no program reads metrics; `adaptive` with a split VM port."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from topologies.compare.contenders import OURS, Contender, Observation, Ours, Teams, by_name
from topologies.loads.pace import REAL_TIME_POLL_INTERVAL_MS

SPLIT_POLICY = "adaptive"
# The load of the VM, relative to an uplink's capacity: too much for one uplink, but not for two.
LOAD_RATIO = 1.4
SPLIT_TIMEOUT_S = 60.0
# Separates a policy and the connection hash that it should use.
WITH_HASH = "+"
HASHES = ("multipath", "dp_hash", "auto")


class Unread(Ours):
    """An ovs-lbt policy, whose metrics are not read while it is measured, as with peers.

    Recovered links are used again immediately, as with a bond without `bond_updelay`.
    `connection_hash`: the value of that key, if it differs from the one that attach writes.
    """

    keys: ClassVar[Mapping[str, object]] = {"failback-delay-s": 0}

    def __init__(self, policy: str, teaming: str, connection_hash: str = "") -> None:
        wanted = {"connection-hash": connection_hash} if connection_hash else {}
        super().__init__(policy, teaming, settings={**self.keys, **wanted})
        self.name += f"{WITH_HASH}{connection_hash}" if connection_hash else ""

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        super().take_over(teams, resources)
        self._uplinks = sorted(teams.capacities_bps)

    def observe(self) -> Observation:
        return Observation({})

    def pids(self) -> dict[str, int]:
        """Nothing whose CPU time counts from the start to the end, as the service is restarted."""
        return {}

    def begin(self, load_bps: float, pause: Callable[[float], None]) -> None:
        """Wait until the team is ready for the measurement; the VM's load has begun.

        `pause` sleeps, and raises an error if the measurement has ended.
        """

    @contextlib.contextmanager
    def dead(self) -> Iterator[None]:
        """Kill the service during the context, and start it again."""
        with self._service.dead(sorted(self._bridges)):
            yield

    def are_uplinks_up(self) -> bool:
        """Whether the service may use all uplinks; while it runs."""
        up = [
            metric.value for metric in self._service.metrics() if metric.name == "ovslbt_uplink_up"
        ]
        return len(up) == len(self._uplinks) and all(up)


class WithSplitVm(Unread):
    """`adaptive` with configured capacities that are too low for the VM, so that it splits the VM's port."""

    keys: ClassVar[Mapping[str, object]] = {
        **Unread.keys,
        "poll-interval-ms": REAL_TIME_POLL_INTERVAL_MS,
    }

    def __init__(self, policy: str, teaming: str, connection_hash: str = "") -> None:
        super().__init__(policy, teaming, connection_hash)
        self.name = f"{self.name}, split"

    def begin(self, load_bps: float, pause: Callable[[float], None]) -> None:
        capacity_mbps = max(1, round(load_bps / LOAD_RATIO / 1e6))
        for uplink in self._uplinks:
            setting = f"external_ids:ovs-lbt-capacity-mbps={capacity_mbps}"
            self._ovs.vsctl("set", "interface", uplink, setting)
        deadline_s = time.monotonic() + SPLIT_TIMEOUT_S
        while not self._has_split():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.name} did not split the port in {SPLIT_TIMEOUT_S:g} s")
            pause(0.2)

    def _has_split(self) -> bool:
        return any(
            metric.name == "ovslbt_moves_applied_total"
            and metric.labels.get("reason") == "split"
            and metric.value > 0
            for metric in self._service.metrics()
        )


def contender(name: str) -> Contender:
    """This bench's contender with a name of `compare.contenders`, or ovs-lbt's `POLICY+HASH`.

    Raises:
        ValueError: there is no such contender.
    """
    plain, plus, connection_hash = name.partition(WITH_HASH)
    found = by_name(plain)
    if plus and not (isinstance(found, Ours) and connection_hash in HASHES):
        expected = ", ".join(f"POLICY{WITH_HASH}{one}" for one in HASHES)
        raise ValueError(f"contender {name} does not exist; expected {expected}, or no {WITH_HASH}")
    if not isinstance(found, Ours):
        return found
    policy, _, teaming = plain.partition("/")
    kind = WithSplitVm if policy == SPLIT_POLICY else Unread
    return kind(policy, teaming or OURS[policy], connection_hash)
