"""The requests that take several events, and the steps of each: what it has sent, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from controller.api.events import ForwardByOne, Reply, Setting
from controller.config.values import BridgeConfig
from controller.operations.unconfirmed import Unconfirmed
from controller.text.check_view import JsonObject

# Instead of an attach: tell whether one would succeed, by the answer of `check`. Nothing is written.
Trial = Callable[[JsonObject], Reply]
# If the switch has not confirmed the pipeline within this time, the attach is undone.
ATTACH_TIMEOUT_S = 10.0
# More for each VM port of a large bridge: each has some twenty flows and groups.
TIMEOUT_PER_PORT_S, LARGE_PORTS = 0.03, 300
# A switch that has not answered within this time counts as unreachable.
DETACH_TIMEOUT_S = 5.0


class Step(Enum):
    """A step of a request. An attach goes from READ to INSTALL, a detach from GATHER to FORGET."""

    # The switch is read. Waits until all is known on which an attach depends. Nothing is changed so far.
    READ = auto()
    # The settings are sent to the database. Waits for its answer.
    WRITE = auto()
    # The database has the settings. Waits until it reports them; then our pipeline is sent.
    TAKE_OVER = auto()
    # The new fail mode is sent to the database. Waits until the switch has flushed all flows for it.
    FLUSH = auto()
    # Waits until the switch has the whole pipeline; then the request is answered.
    INSTALL = auto()

    # Units move to the member by which NORMAL takes over. Waits until frames come by it.
    GATHER = auto()
    # What is ours is removed from the switch. Waits until nothing of it is left.
    REMOVE = auto()
    # The settings are removed from the database. Waits for its answer.
    FORGET = auto()


@dataclass(slots=True)
class Attach:
    """An attach in progress: read the bridge, write the configuration, wait for the pipeline.

    `waits`: the change that waits to be confirmed from then on, if it does. `trial`: it ends when the
    bridge has been read.
    """

    request_id: int
    began_s: float
    deadline_s: float
    settings: tuple[Setting, ...]
    undo: tuple[Setting, ...]
    step: Step = Step.READ
    waits: Unconfirmed | None = None
    trial: Trial | None = None

    @property
    def fail_mode(self) -> tuple[Setting, ...]:
        """The new fail mode. The switch flushes all flows when it applies it.

        To lose few frames, our flows must follow at once. So they are installed as soon as the
        default flow is seen to be gone, and checked again when the database reports that everything
        is applied.
        """
        return tuple(setting for setting in self.settings if setting.column == "fail_mode")


@dataclass(slots=True)
class Detach:
    """A detach in progress: gather VM ports, remove our flows, then the configuration.

    `purge`: also remove what operators set. `lost`: what could not be done, in words. `stays`: the
    settings that stay in the database, in words. `waits`: the change that waits to be confirmed from
    then on, if it does. `reverts`: the change that this detach reverts, if it does. `one_uplink`:
    it is reverted, but forwards by one uplink only, because the others would form a loop.
    """

    request_id: int
    began_s: float
    deadline_s: float
    purge: bool = False
    step: Step = Step.GATHER
    lost: str | None = None
    stays: str = ""
    waits: Unconfirmed | None = None
    reverts: Unconfirmed | None = None
    one_uplink: ForwardByOne | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(slots=True)
class Leaving:
    """A bridge that is detached, but may still have flows of ours.

    If the switch did not answer in time, it may still receive what was sent before. That is removed
    when it answers. `reply`: the answer to give once the configuration is restored.
    """

    reply: Reply | None


def longer_s(config: BridgeConfig) -> float:
    """How much more time the pipeline of a large bridge may take."""
    return TIMEOUT_PER_PORT_S * max(0, len(config.vm_ports) - LARGE_PORTS)
