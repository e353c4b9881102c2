"""A service that stands by, and what it does when it leads and when it does not any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import Setting, Write
from controller.api.events import DatabaseRead, Tick
from controller.engine import Engine
from tests.unit.controller.story import Story
from tests.unit.fake_switch import refusal

WHO, OTHER = "ovs-lbt-b@here", "ovs-lbt@here"


class StandbyStory(Story):
    """With steps about who leads. Before `hear lead`, the service does not know whether it does."""

    leader = OTHER

    @staticmethod
    def new_engine() -> Engine:
        return Engine(leads=False, name=WHO)

    def read(self) -> DatabaseRead:
        return replace(super().read(), leader=self.leader)

    def do_leader(self, name: str) -> None:
        """The database names another service as the one that leads."""
        self.leader = name
        self.say(self.read())

    def do_tick(self) -> None:
        """A timer is due that was set before."""
        self.say(Tick())

    def do_names_itself(self) -> None:
        """It has written its name, once, and nothing else."""
        name = Write((Setting("Open_vSwitch", ".", "ovs-lbt-leader", WHO),))
        assert self.commands(Write) == [name]

    def do_all_refused(self, number: str) -> None:
        """So many commands, all in the same words."""
        assert (
            len(self.replies) == int(number) and len(set(map(refusal, self.replies.values()))) == 1
        )


LED = "bond | hear lead yes | run 3"
CHALLENGED = "watch | hear challenge | sent Answer/Write Answer"
STORIES = {
    "nothing is touched on standby": """bond | hear lead no
        | reported warning another service leads; this service is on standby | watch
        | set threshold=60 | hear challenge | tick | run 60 | nothing | let-go""",
    "show names the leader": f"""bond | hear lead no | ask show --json
        | told {{ "bridges": [], "standby": true, "leader": "{OTHER}" }} | ask show
        | told on standby: {OTHER} leads | leader x\x1b[2J | ask show | told …x\\x1b[2J leads""",
    **{
        f"operators are referred to the leader: {words}": f"""bond | hear lead no | ask {words}
        | refused this service is on standby; ask the service that leads: {OTHER}"""
        for words in ("move vnet0 eth1", "show br0", "plan", "attach br1", "drain eth1")
    },
    "the lead comes": """bond + bond | hear lead no | watch | hear lead yes
        | reported warning this service leads now | sent Connect Connect Connect | watch
        | hear lead yes | nothing""",
    "the lead is there from the start": """bond | hear lead yes | sent Connect Connect
        | reported warning""",
    "the leader writes its name until it is there": f"""bond unattached | hear lead yes
        | {CHALLENGED} Write | names-itself | {CHALLENGED} Write | names-itself | leader {WHO}
        | {CHALLENGED}""",
    # It is asked before it hears that it has lost the lead, and its name never gets there.
    "a service that was stopped": f"""bond unattached | hear lead yes | hear challenge | hear lead no
        | ask show --json | told …"leader": "{OTHER}"…""",
    # What the switch and the database had under way comes to nothing.
    "the lead is lost": f"""{LED} | hold | ask move vnet0 eth2 | watch | hear lead no
        | sent Disconnect/Write/Apply Disconnect | watch | answer | leader other | run 60 | nothing""",
    "who waits for a command is told": f"""{LED} | hold | ask move vnet0 eth2 | ask drain eth1
        | ask detach br0 | unanswered | hear lead no | all-refused 3""",
    "the lead comes back": f"""{LED} | bound 1212 | hear lead no | run 5 | watch | hear lead yes
        | run 5 | bound 1212 | unchanged""",
}


@pytest.mark.parametrize("story", STORIES)
def test_standby(story: str) -> None:
    StandbyStory(STORIES[story]).tell()
