"""What operators are told when something of ours has failed: not that the switch does not answer."""

from __future__ import annotations

import json
import re

import pytest

from controller.api.engine_commands import Command
from controller.api.events import Faulted, Leading, Request
from controller.engine import Engine
from controller.operations.attach import ATTACH_TIMEOUT_S
from controller.operations.detach import DETACH_TIMEOUT_S
from controller.text.wording import OUR_LOG, UNREACHED
from tests.goldens.adapter import EPOCH_S
from tests.unit.controller.story import Story
from tests.unit.fake_switch import done

TEXT = "line br0: KeyError: 'x'"


class FaultStory(Story):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._obstacle = ""

    def _carry_out(self, command: Command) -> None:
        if type(command).__name__ == self._obstacle:
            self._obstacle = ""
        else:
            super()._carry_out(command)

    def do_obstacle(self, kind: str) -> None:
        """The next command of a kind is never carried out."""
        self._obstacle = kind

    def do_fault(self, part: str, ago_s: str = "0", count: str = "1") -> None:
        self.say(Faulted(part, TEXT, EPOCH_S + self.now_s - float(ago_s), int(count)))

    def do_pass(self, seconds: str) -> None:
        """Time without a poll."""
        self.now_s += float(seconds)

    def do_faults(self, *parts: str) -> None:
        """What `show` has for programs, as `lines=4`."""
        faults = json.loads(done(self.ask("show", "--json"))).get("faults", [])
        assert [f"{f['part']}={f['count']}" for f in faults] == [*parts]
        assert all(f["found"] == TEXT and f["last_at"] >= EPOCH_S for f in faults)


ITSELF = f"because ovs-lbt itself failed: {TEXT}; {OUR_LOG}"
ATTACHING = "bond unattached | no-switch | ask attach br0 | unanswered"
NO_ANSWER = "…, because the switch did not answer…"
STORIES = {
    "an attach": f"""{ATTACHING} | run 3 | fault lines | run {ATTACH_TIMEOUT_S - 3}
        | refused bridge br0: …10 s…{ITSELF}""",
    # No switch is reached by the one, and the other is long ago.
    **{
        f"an attach, and an unrelated fault: {fault}": f"""{ATTACHING} | fault {fault}
        | run {ATTACH_TIMEOUT_S} | refused …within 10 s, because {UNREACHED}…"""
        for fault in ("history", "metrics", "lines 31")
    },
    "a detach": f"""bond | gone | ask detach br0 | unanswered | fault lines | run {DETACH_TIMEOUT_S}
        | refused bridge br0: …ovs-lbt itself failed…{TEXT}…{OUR_LOG}…""",
    "a drain": f"""bond | hold | ask drain eth1 | unanswered | fault lines | run 11
        | refused …{ITSELF}""",
    "a drain without a connection": f"""bond | hold | ask drain eth1 | unanswered | gone | fault lines
        | run 11 | refused …{ITSELF}""",
    **{
        f"an attach says who has not answered: {kind}": f"""bond unattached | obstacle {kind}
        | ask attach br0 | unanswered | run {ATTACH_TIMEOUT_S} | refused bridge br0: …10 s{why}"""
        for kind, why in (
            ("Write", "…database…; …ovsdb-server…"),
            ("ReadForwarding", "…ovs-vswitchd…fdb/show…"),
            ("ReadInstalled", NO_ANSWER),
            ("Apply", NO_ANSWER),
        )
    },
    "show, for a day, the last first": f"""bond | run 3 | fault metrics 2 | fault lines 1 4
        | faults lines=4 metrics=1 | ask show
        | told …ovs-lbt fault {TEXT} (in lines: 4 in total) …{OUR_LOG} | pass 86401 | faults""",
}


@pytest.mark.parametrize("story", STORIES)
def test_fault(story: str) -> None:
    FaultStory(STORIES[story]).tell()


@pytest.mark.parametrize("words", [("show",), ("show", "--json")])
def test_who_stands_by_tells_of_its_own_too(words: tuple[str, ...]) -> None:
    engine = Engine(leads=False)
    engine.handle(Leading(False), 0.0)
    engine.handle(Faulted("lines", TEXT, 3.0, 1), 3.0)
    (reply,) = engine.handle(Request(1, words), 4.0)
    assert re.search(TEXT, reply.text)  # type: ignore[attr-defined]
