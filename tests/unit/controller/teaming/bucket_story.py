"""Stories about the buckets of a hash: where they are on the switch, and what becomes of them."""

from __future__ import annotations

from collections import Counter

from controller.api.engine_commands import Apply
from controller.teaming import buckets
from tests.unit.controller.engine.told import steady
from tests.unit.controller.story import Story
from tests.unit.fake_switch import moves


class BucketStory(Story):
    """`homes` are the uplinks of the buckets of the bridge's policy."""

    def homes(self, policy: str = "") -> dict[int, int]:
        number = buckets.number_of(policy or self.status.config.policy)
        homes = {b: self.switch.uplink_of_bucket(number, b) for b in range(256)}
        return {bucket: uplink for bucket, uplink in homes.items() if uplink is not None}

    def do_shares(self, policy: str, *counts: str) -> None:
        """How many buckets of a policy are on uplinks, as `eth1=128`."""
        found = Counter(self.homes(policy).values())
        assert {f"eth{uplink}={n}" for uplink, n in found.items()} == {*counts}, found

    def do_note_homes(self) -> None:
        self._homes, self._moves = self.homes(), moves(self)

    def do_homes_as_noted(self) -> None:
        assert self.homes() == self._homes

    def do_moves_as_noted(self) -> None:
        assert moves(self) == self._moves

    def do_did(self, *counts: str) -> None:
        """How many moves were made for some reasons."""
        found = moves(self)
        wanted = dict(one.split("=") for one in counts)
        assert {reason: str(found.get(reason, 0)) for reason in wanted} == wanted, found

    def do_restarts(self, seconds: str) -> None:
        """The service starts anew, which moves nothing."""
        installed = self.switch.installed
        self.restart_service().connect().run_for(float(seconds))
        assert self.switch.installed == installed
        assert moves(self) == {} and not self.commands(Apply)

    def do_fail(self, name: str) -> None:
        """Most interfaces have no speed while their link is down: that changes no share."""
        self.set_link(self.named(name), up=False, speed_bps=0)

    def do_busy(self, bps: str) -> None:
        """Eight buckets, all on eth1, send that much each, and nothing else is sent."""
        self.switch.offered_bps = {}
        number = buckets.number_of(self.status.config.policy)
        there = [bucket for bucket, uplink in self.homes().items() if uplink == 1][:8]
        self.switch.hashed_bps = {(number, bucket): steady(float(bps)) for bucket in there}
