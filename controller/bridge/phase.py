"""The phases of a bridge, such as SERVING or LEAVING, and the transitions between them."""

from __future__ import annotations

from enum import Enum, auto, unique


class Phase(Enum):
    """The phase of a bridge.

    The phase determines how two sets of bindings change (`placing`): `planned`, which policies see, and
    `on_switch`.

    | phase      | planned                              | on_switch                                      |
    |------------|--------------------------------------|------------------------------------------------|
    | INSPECTING | not changed                          | not changed; the pipeline is kept              |
    | SERVING    | depends on policies, rules and links | as planned; plain uplinks in observe mode: the |
    |            |                                      | bindings in use, which depend only on links    |
    | GATHERING  | depends on policies, rules and links | every unit on one member                       |
    | ON_NORMAL  | depends on policies, rules and links | as planned, but NORMAL forwards; before our    |
    |            |                                      | flows are removed: the bindings in these flows |
    | LEAVING    | not changed                          | not changed, until the pipeline is removed     |
    """

    # A request to attach or detach the bridge reads the switch, and does not change it.
    INSPECTING = auto()
    # Our pipeline forwards.
    SERVING = auto()
    # Our pipeline still forwards, while all units move to the bond member that NORMAL will use.
    GATHERING = auto()
    # The bond is only observed: NORMAL forwards, and our flows are removed from the switch.
    ON_NORMAL = auto()
    # The bridge is being detached: all our flows, groups and flags are removed from the switch.
    LEAVING = auto()

    @property
    def changes_nothing(self) -> bool:
        return self is Phase.INSPECTING

    @property
    def is_attached(self) -> bool:
        """Whether the service makes decisions for the bridge: no request is attaching or detaching it."""
        return self in (Phase.SERVING, Phase.GATHERING, Phase.ON_NORMAL)


@unique
class Turn(Enum):
    """An event that may change the phase of a bridge.

    The value: the phases that this event changes, and the next phase. None as the next phase stands
    for `ON_NORMAL` if the bridge has a bond and is in observe mode, and for `SERVING` otherwise.
    """

    # A request to attach or detach begins.
    INSPECT = tuple(Phase), Phase.INSPECTING
    # An attach has found no obstacle, or a detach has failed.
    TAKE_OVER = tuple(Phase), None
    # The configuration has changed: with the same mode, or with a different mode.
    CONFIGURE = (Phase.SERVING, Phase.ON_NORMAL), None
    CHANGE_MODE = (Phase.SERVING, Phase.GATHERING, Phase.ON_NORMAL), None
    # Units begin to gather on one member; units have gathered, and NORMAL takes over.
    GATHER = (Phase.INSPECTING, Phase.SERVING, Phase.ON_NORMAL), Phase.GATHERING
    GATHERED = (Phase.GATHERING,), None
    # A detach, or a failed attach, removes our flows.
    GIVE_BACK = tuple(Phase), Phase.LEAVING


def after(phase: Phase, turn: Turn, observes_bond: bool) -> Phase:
    """Return the phase after event `turn`. `observes_bond`: the bridge has a bond and is in observe mode."""
    changed, follows = turn.value
    if phase not in changed:
        return phase
    return follows or (Phase.ON_NORMAL if observes_bond else Phase.SERVING)
