"""The phases of a bridge, such as SERVING or LEAVING, and the transitions between them."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """The phase of a bridge.

    The phase determines how two sets of bindings change (`placing`): `planned`, which policies see, and
    `on_switch`.

    | phase      | planned                              | on_switch                                      |
    |------------|--------------------------------------|------------------------------------------------|
    | INSPECTING | not changed                          | not changed; the pipeline is kept              |
    | SERVING    | depends on policies, rules and links | as planned; plain uplinks in observe mode: the |
    |            |                                      | bindings in use, which depend on links only    |
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


class Turn(Enum):
    """An event that may change the phase of a bridge."""

    # A request to attach or detach begins.
    INSPECT = auto()
    # An attach has found no obstacle, or a detach has failed.
    TAKE_OVER = auto()
    # The configuration has changed: with the same mode, or with a different mode.
    CONFIGURE = auto()
    CHANGE_MODE = auto()
    # Units begin to gather on one member; units have gathered, and NORMAL takes over.
    GATHER = auto()
    GATHERED = auto()
    # A detach, or a failed attach, removes our flows.
    GIVE_BACK = auto()


def after(phase: Phase, turn: Turn, observes_bond: bool) -> Phase:
    """Return the phase after a turn. `observes_bond`: the bridge has a bond and is in observe mode.

    In this table, "attached" is `ON_NORMAL` if the bridge observes a bond, otherwise `SERVING`.
    A dash means that the phase does not change.

    | turn        | INSPECTING | SERVING    | GATHERING  | ON_NORMAL  | LEAVING    |
    |-------------|------------|------------|------------|------------|------------|
    | INSPECT     | -          | INSPECTING | INSPECTING | INSPECTING | INSPECTING |
    | TAKE_OVER   | attached   | attached   | attached   | attached   | attached   |
    | CONFIGURE   | -          | attached   | -          | attached   | -          |
    | CHANGE_MODE | -          | attached   | attached   | attached   | -          |
    | GATHER      | GATHERING  | GATHERING  | -          | GATHERING  | -          |
    | GATHERED    | -          | -          | attached   | -          | -          |
    | GIVE_BACK   | LEAVING    | LEAVING    | LEAVING    | LEAVING    | -          |
    """
    attached = Phase.ON_NORMAL if observes_bond else Phase.SERVING
    match turn, phase:
        case Turn.INSPECT, _:
            return Phase.INSPECTING
        case Turn.GIVE_BACK, _:
            return Phase.LEAVING
        case Turn.TAKE_OVER, _:
            return attached
        case ((Turn.CONFIGURE | Turn.CHANGE_MODE), (Phase.SERVING | Phase.ON_NORMAL)):
            return attached
        case ((Turn.CHANGE_MODE | Turn.GATHERED), Phase.GATHERING):
            return attached
        case Turn.GATHER, (Phase.INSPECTING | Phase.SERVING | Phase.ON_NORMAL):
            return Phase.GATHERING
        case _:
            return phase
