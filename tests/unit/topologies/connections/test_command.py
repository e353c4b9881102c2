"""The contenders of the bench of many connections."""

from __future__ import annotations

import pytest

from topologies.connections import command, contenders
from topologies.connections.contenders import Unread


@pytest.mark.parametrize("name", ["dynamic+md5", "dynamic+", "balance-tcp+dp_hash"])
def test_only_ours_have_a_hash_to_choose(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"expected POLICY\+multipath, POLICY\+dp_hash, POLICY\+auto"
    ):
        contenders.contender(name)


def test_every_contender_is_known_and_only_adaptive_is_split() -> None:
    made = {name: contenders.contender(name) for name in command.CONTENDERS}
    split = [name for name, one in made.items() if isinstance(one, Unread) and one.splits]
    assert split == ["adaptive", "adaptive+multipath"]
    assert [made[name].name for name in split] == ["adaptive, split", "adaptive+multipath, split"]
    assert made["dynamic/lacp+multipath"].name == "dynamic/lacp+multipath"
    ours = [name for name, one in made.items() if isinstance(one, Unread)]
    assert ours == ["load-based", "dynamic", "dynamic/lacp", "dynamic/lacp+multipath", *split]
