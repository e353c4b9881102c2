"""Measures the rates of frames flooded to all VM ports in a VLAN, and of repeated broadcasts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controller.api.events import UNSUPPORTED, PortCounters
from controller.config.values import VmPortConfig

# More than broadcasts of a large network, and less than any loop carries.
LOOPS_PPS = 1000.0
# The number of polls that must show a high rate, because a single one may be a burst.
POLLS = 3
# Flooded frames reach all ports at about the same rate. Two VMs rarely receive at the same rate.
ALIKE_RATIO = 0.9
# Enough to distinguish frames that arrive on all uplinks from frames that a LAG's hash divides.
ENOUGH_TO_COMPARE, SAME_RATIO = 100, 0.01


@dataclass(slots=True)
class Flooded:
    """The rates, in the last polls, of frames that reach every VM port in a VLAN.

    In a loop, the rate is thousands of frames per second.
    """

    _counted: dict[int, PortCounters] = field(default_factory=dict)
    _rates_pps: deque[float] = field(default_factory=lambda: deque(maxlen=POLLS))

    @property
    def pps(self) -> float:
        """The lowest rate (frames/s) in the last `POLLS` polls; 0 if there have been fewer polls."""
        return min(self._rates_pps) if len(self._rates_pps) == POLLS else 0.0

    def take_counters(
        self, counters: Iterable[PortCounters], ports: Collection[VmPortConfig]
    ) -> None:
        """Store the counters of a poll."""
        before = self._counted
        self._counted = {c.ofport: c for c in counters if c.tx_packets != UNSUPPORTED}
        # The rates of sent and received frames, and whether the port is a patch port, by VLANs.
        rates = defaultdict[object, list[tuple[float, float, bool]]](list)
        for port in ports:
            old, new = before.get(port.ofport), self._counted.get(port.ofport)
            if old is not None and new is not None and new.clock_s > old.clock_s:
                for_s = new.clock_s - old.clock_s
                sent_pps = (new.rx_packets - old.rx_packets) / for_s
                received_pps = (new.tx_packets - old.tx_packets) / for_s
                rates[port.vlans.carried].append((sent_pps, received_pps, port.is_patch))
        # The counters of patch ports are late, so in a loop, they often differ from those of other ports.
        groups = list(rates.values())
        groups += [
            [one for one in of if not one[-1]] for of in groups if any(one[-1] for one in of)
        ]
        # The port through which frames circulate sends most, and need not receive any.
        others = (sorted(of)[:-1] if len(of) > 2 else of for of in groups)
        alike = (sorted(received for _, received, _ in of)[:2] for of in others if len(of) > 1)
        found = (least for least, next_ in alike if least >= ALIKE_RATIO * next_)
        self._rates_pps.append(max(found, default=0.0))


def same_by_all(came: Mapping[str, int] | Mapping[int, int]) -> bool:
    """Whether each frame arrives on all uplinks. `came`: numbers of received frames, by uplink."""
    least, most = min(came.values(), default=0), max(came.values(), default=0)
    return len(came) > 1 and least >= ENOUGH_TO_COMPARE and most - least <= SAME_RATIO * most


@dataclass(slots=True)
class Repeated:
    """Broadcasts that arrive on all members of one bridge's LAG, so that VMs receive them once per member.

    `pps`: the rate of these broadcasts in the last measured interval.
    """

    pps: float = 0.0
    _began: dict[int, int] = field(default_factory=dict)
    _began_s: float = 0.0

    def take_flooded(self, flooded: Mapping[int, int], now_s: float) -> None:
        """Store the number of flooded frames from each LAG member that is up, by ofport."""
        came = {ofport: count - self._began.get(ofport, 0) for ofport, count in flooded.items()}
        if came.keys() != self._began.keys() or min(came.values(), default=0) < 0:
            self.pps = 0.0
        elif max(came.values(), default=0) < ENOUGH_TO_COMPARE:
            return
        else:
            self.pps = min(came.values()) / (now_s - self._began_s) if same_by_all(came) else 0.0
        self._began, self._began_s = dict(flooded), now_s
