"""Changes with --rollback-after: kept if they are confirmed in time, otherwise the bridge is as before."""

from __future__ import annotations

import json

import pytest

from controller.api.engine_commands import SendFrame, Write
from controller.dataplane import frames
from controller.operations.unconfirmed import UNCONFIRMED
from controller.text.wording import UNREACHED
from tests.unit.controller.story import Story
from tests.unit.fake_switch import done, world
from tests.unit.rows import host, with_ids, without_us

MAC = "02:00:00:00:00:0a"


class ConfirmationStory(Story):
    def do_clock(self, now_s: str) -> None:
        """The time after the host has started again, on which the service starts."""
        self.now_s = self.switch.now_s = float(now_s)
        self.restart_service()

    def do_busy_database(self, seconds: str) -> None:
        """It refuses what is written to it for so long."""
        for _ in range(int(seconds)):
            self.refuse_writes = "ovsdb-server is unreachable"
            self.run_for(1)
        self.refuse_writes = None

    def do_switch_again(self) -> None:
        self.switches["br0"] = self.gone
        while self.engine.jobs.in_hand:
            self.run_for(1)

    def do_to_itself(self, name: str, mac: str) -> None:
        """The last learning packet is one by which only our own switch learns."""
        sent = SendFrame("br0", self.named(name), frames.rarp(mac, to_itself=True))
        assert self.commands(SendFrame)[-1] == sent


FOR_A_MINUTE = "bond unattached | note-row | do attach br0 --rollback-after 60"
UNTIL = "run 59 | column attached True | run 3 | row-as-noted | empty"
STORIES = {
    "an attach that fails waits for nothing": f"""bond unattached | note-row | no-switch
        | ask attach br0 --rollback-after 60 | unanswered | run 10
        | refused bridge br0: …10 s, because {UNREACHED}… | row-as-noted | unconfirmed | let-go""",
    "NORMAL learns where silent VMs are for whoever attaches again": f"""bond | unlearn
        | learn vnet0 {MAC} 0 | run 20 | watch | do detach br0 --rollback-after 60
        | sent Apply/SendFrame Apply Apply SendFrame | to-itself vnet0 {MAC} | watch
        | do confirm br0 | packets 0""",
    "a service that starts meanwhile": f"""{FOR_A_MINUTE} | clock 30 | run 29
        | column attached True | run 3 | row-as-noted | empty""",
    "a service that starts after the time": f"""{FOR_A_MINUTE} | clock 200 | run 3
        | row-as-noted | empty""",
    "a database that refuses": f"""{FOR_A_MINUTE} | run 59 | watch | busy-database 8
        | column attached True | unchanged
        | warned bridge br0: attach…not been rolled back…ovsdb-server is unreachable… | run 4 | row-as-noted""",
    "a switch that does not answer": """bond | do detach br0 --rollback-after 60 | note-row | no-switch
        | run 80 | column attached False | unconfirmed detach | reported warning …not been rolled back…
        | switch-again | ask confirm br0 | told br0: detach confirmed | run 100 | keys br0""",
}


@pytest.mark.parametrize("story", STORIES)
def test_confirmation(story: str) -> None:
    ConfirmationStory(STORIES[story]).tell()


@pytest.mark.parametrize("step_s", [3600.0, -10.0], ids=["forward", "back"])
def test_the_time_to_confirm_stays_the_same_when_the_clock_is_set(step_s: float) -> None:
    here = world(without_us(host())).start()
    done(here.ask("attach", "br0", "--rollback-after", "60"))
    here.run_for(20)
    (before,) = json.loads(done(here.ask("show", "--json")))["unconfirmed"]
    (stored,) = here.engine.set_clock(step_s)
    assert isinstance(stored, Write)
    here.write(with_ids(here.rows["br0"], unconfirmed=str(stored.settings[0].value)))
    (after,) = json.loads(done(here.ask("show", "--json")))["unconfirmed"]
    assert after["left_s"] == before["left_s"] == pytest.approx(40, abs=2)
    assert after["until"] == pytest.approx(before["until"] + step_s)
    here.run_for(30)
    assert here.rows["br0"].attached
    here.run_for(15)
    assert not here.rows["br0"].attached


def test_a_clock_that_went_back_prolongs_the_time_by_no_more_than_itself() -> None:
    here = ConfirmationStory(FOR_A_MINUTE)
    here.now_s = here.switch.now_s = 1e9
    here.tell()
    for step in f"clock 0 | {UNTIL}".split(" | "):
        here.carry_out(step)


@pytest.mark.parametrize(
    "text",
    [
        '{"what":"attach","until":1,"seconds":60,"back":[["Bridge","br0","others","1"]]}',
        '{"what":"attach","until":1,"seconds":60,"back":[["QoS","br0","ovs-lbt-policy","1"]]}',
        '{"what":"attach","until":1,"seconds":60,"back":[["Bridge","br0","ovs-lbt-policy",1]]}',
        '{"what":"attach","until":1,"seconds":1e9,"back":[]}',
        '{"what":"reboot","until":1,"seconds":60,"back":[]}',
        "[]",
        "[" * 5000,
        '{"what":"attach","until":"nan","seconds":60,"back":[]}',
        '{"what":"attach","until":1%s,"seconds":60,"back":[]}' % ("0" * 400),
        '{"what":"attach","until":1e300,"seconds":60,"back":[]}',
    ],
)
def test_nothing_but_our_keys_is_ever_restored(text: str) -> None:
    here = world(with_ids(host(), unconfirmed=text)).start().run_for(100)
    assert here.rows["br0"].external_ids[UNCONFIRMED] == text and here.rows["br0"].attached
