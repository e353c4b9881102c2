"""The bench's contenders, and ours with one thing at a time left out."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable

from topologies.compare.contenders import Contender, Observation, Ours, Teams, by_name
from topologies.network.private_ovs import PrivateOvs

SCRAPED, UNOBSERVED = "scraped", "unobserved"
STOPPED, UNLEARNING = "service stopped", "without learning"
VARIANTS = (SCRAPED, UNOBSERVED, STOPPED, UNLEARNING)
# Tables of the pipeline, by docs/architecture.md: what is learned is in the last two.
LEARN_TABLE, LOCATION_TABLE, LOCAL_SOURCE_TABLE = 1, 20, 21
_TABLE = re.compile(r"\btable=(\d+),")
# What `dump-flows` prints of a flow beside its match and its actions.
_STATE = re.compile(
    r"\b(cookie|duration|table|n_packets|n_bytes|idle_timeout|hard_timeout|idle_age|hard_age)=[\w.]+,? ?"
)
_LEARN = re.compile(r"learn\([^()]*\),?")
SETTLE_S = 0.5


class Varied(Ours):
    """One of our policies, with some things left out.

    `scraped`: with every sample, somebody reads metrics. `unobserved`: nobody reads metrics while the load runs. `service stopped`: nor does the service
    run, and what it installed forwards. `without learning`: nor does the switch learn.
    """

    def __init__(self, policy: str, without: str) -> None:
        super().__init__(policy)
        self.name = f"{policy}, {without}"
        self._without = without
        self._ended = False

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        super().take_over(teams, resources)
        self._teams = teams

    def begin(self) -> None:
        """Leave out what is left out; when end systems have reached each other."""
        if self._without in (SCRAPED, UNOBSERVED):
            return
        self._service.close()
        self._ended = True
        if self._without == UNLEARNING:
            for bridge in sorted(self._bridges):
                _stop_learning(self._teams.ovs, bridge)

    def observe(self) -> Observation:
        """Nothing, at no cost, unless metrics are read."""
        return self._scrape() if self._without == SCRAPED else Observation({})

    def pids(self) -> dict[str, int]:
        return {} if self._ended else super().pids()


def contender(name: str) -> Contender:
    """The contender with this name: one of a bench, or `POLICY, VARIANT`.

    Raises:
        ValueError: there is no such contender.
    """
    policy, comma, without = name.partition(", ")
    if not comma:
        return by_name(name)
    if without not in VARIANTS:
        raise ValueError(f"left out: {without} -> {' | '.join(VARIANTS)}")
    return Varied(policy, without)


def begin(one: Contender) -> None:
    """Leave out what this contender leaves out."""
    if isinstance(one, Varied):
        one.begin()
        time.sleep(SETTLE_S)


def without_learning(dumped: Iterable[str]) -> list[str]:
    """What to add so that nothing is learned any more, and what was learned stays.

    `dumped`: the lines that `ovs-ofctl dump-flows` prints. What was learned gets another cookie,
    because the switch deletes it by its cookie when no flow teaches it any longer.
    """
    lasting, forwarding = [], []
    for line in dumped:
        found = _TABLE.search(line)
        if found is None:
            continue
        table = int(found[1])
        match, _, actions = _STATE.sub("", line).strip().partition("actions=")
        match = match.strip(" ,")
        if table in (LOCATION_TABLE, LOCAL_SOURCE_TABLE):
            lasting.append(f"table={table},{match},actions={actions}")
        elif table == LEARN_TABLE and "learn(" in actions:
            forwarding.append(f"table={table},{match},actions={_LEARN.sub('', actions)}")
    return [*lasting, *forwarding]


def _stop_learning(ovs: PrivateOvs, bridge: str) -> None:
    dumped = ovs.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "--no-names", bridge)
    path = ovs.rundir / f"{bridge}.without-learning"
    path.write_text("\n".join(without_learning(dumped.splitlines())) + "\n")
    ovs.run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", bridge, str(path))
    left = ovs.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, f"table={LEARN_TABLE}")
    if "learn(" in left:
        raise RuntimeError(f"{bridge}: still learns -> learns nothing")
