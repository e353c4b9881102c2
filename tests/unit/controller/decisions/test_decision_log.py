"""What the history says of decisions."""

from __future__ import annotations

from controller.decisions.decision_log import WHY
from policies.model import Reason


def test_every_reason_has_a_sentence() -> None:
    assert WHY.keys() == set(Reason)
