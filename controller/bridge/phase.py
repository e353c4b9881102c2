"""The life of an attached bridge: in which phase it is, and what leads from one to the next."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """What the service does with a bridge now.

    Two sets of bindings (`placing`): those that are `planned`, which policies see, and those `on_switch`.

    | phase      | planned                              | on_switch                                      |
    |------------|--------------------------------------|------------------------------------------------|
    | INSPECTING | stays                                | stays, and so does the pipeline                |
    | SERVING    | follows policies, rules and links    | as planned; plain uplinks in observe mode: the |
    |            |                                      | bindings in use, which follow links only       |
    | GATHERING  | follows policies, rules and links    | every unit on one member                       |
    | ON_NORMAL  | follows policies, rules and links    | as planned, but NORMAL forwards; until our     |
    |            |                                      | flows are removed, the bindings that they use  |
    | LEAVING    | stays                                | stays, until the pipeline is removed           |
    """

    # A request to attach or detach it reads the switch, and nothing is changed.
    INSPECTING = auto()
    # It forwards by our pipeline.
    SERVING = auto()
    # It still forwards by our pipeline, while all units move to the one member of its bond by
    # which NORMAL will take over.
    GATHERING = auto()
    # Its bond is only observed: NORMAL forwards, and nothing of ours stays on the switch.
    ON_NORMAL = auto()
    # It is being given back: everything of ours is removed from the switch.
    LEAVING = auto()

    @property
    def changes_nothing(self) -> bool:
        return self is Phase.INSPECTING

    @property
    def is_attached(self) -> bool:
        """Whether the service decides about the bridge, rather than a request that changes it."""
        return self in (Phase.SERVING, Phase.GATHERING, Phase.ON_NORMAL)


class Turn(Enum):
    """What may lead to another phase."""

    # A request to attach or detach begins.
    INSPECT = auto()
    # An attach has seen that nothing is in the way, or a detach has failed.
    TAKE_OVER = auto()
    # There is a new configuration, with the same mode; or with another one.
    CONFIGURE = auto()
    CHANGE_MODE = auto()
    # Units begin to gather on one member; or they have gathered, and NORMAL takes over.
    GATHER = auto()
    GATHERED = auto()
    # A detach, or an attach that failed, takes everything back.
    GIVE_BACK = auto()


def after(phase: Phase, turn: Turn, observes_bond: bool) -> Phase:
    """The next phase. `observes_bond`: the configuration leaves a bond to NORMAL.

    In this table, "attached" is `ON_NORMAL` if the bridge observes a bond, otherwise `SERVING`.
    A dash means that the phase stays.

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
