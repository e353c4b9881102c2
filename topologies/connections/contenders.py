"""The bench's contenders, while no program reads metrics; `adaptive` with a split VM port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from topologies.compare.contenders import Contender, Observation, Ours, by_name
from topologies.loads.pace import REAL_TIME_POLL_INTERVAL_MS

SPLIT_POLICY = "adaptive"
# The load of the VM, relative to an uplink's capacity: too much for one uplink, but not for two.
LOAD_RATIO = 1.4
# Separates a policy and the connection hash that it should use.
WITH_HASH = "+"
HASHES = ("multipath", "dp_hash", "auto")


class Unread(Ours):
    """An ovs-lbt policy, whose metrics are not read while it is measured, as with peers.

    Recovered links are used again immediately, as with a bond without `bond_updelay`.
    `connection_hash`: the value of that key, if it differs from the one that attach writes.
    `adaptive` has configured capacities that are too low for the VM, so that it splits the VM's port.
    """

    def __init__(self, policy: str, teaming: str, connection_hash: str = "") -> None:
        settings: dict[str, object] = {"failback-delay-s": 0}
        if connection_hash:
            settings["connection-hash"] = connection_hash
        self.splits = policy == SPLIT_POLICY
        if self.splits:
            settings["poll-interval-ms"] = REAL_TIME_POLL_INTERVAL_MS
        super().__init__(policy, teaming, settings=settings)
        self.name += (
            f"{WITH_HASH}{connection_hash}" * bool(connection_hash) + ", split" * self.splits
        )

    def observe(self) -> Observation:
        return Observation({})

    def pids(self) -> dict[str, int]:
        """Nothing whose CPU time counts from the start to the end, as the service is restarted."""
        return {}

    def begin(self, load_bps: float) -> None:
        """Prepare the team for the measurement; the VM's load has begun."""
        if self.splits:
            self.set_capacities(
                dict.fromkeys(self.uplinks, max(1, round(load_bps / LOAD_RATIO / 1e6)))
            )

    def is_ready(self) -> bool:
        """Whether the team is as `begin` has prepared it."""
        return not self.splits or any(
            metric.name == "ovslbt_moves_applied_total"
            and metric.labels.get("reason") == "split"
            and metric.value > 0
            for metric in self.service.metrics()
        )

    @contextlib.contextmanager
    def dead(self) -> Iterator[None]:
        """Kill the service during the context, and start it again."""
        with self.service.dead(sorted(self.bridges)):
            yield

    def are_uplinks_up(self) -> bool:
        """Whether the service may use all uplinks; while it runs."""
        up = [
            metric.value for metric in self.service.metrics() if metric.name == "ovslbt_uplink_up"
        ]
        return len(up) == len(self.uplinks) and all(up)


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
    return Unread(found.policy, found.teaming, connection_hash)
