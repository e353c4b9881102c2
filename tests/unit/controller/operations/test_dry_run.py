"""Requests with --dry-run: what they say, that they change nothing, and that it then happens."""

from __future__ import annotations

import pytest

from controller.api.commands import COMMANDS, REQUESTS
from tests.unit.controller.story import tell

SERVED = "bond threshold=60 | run 10"
TEAM = "team=bond0/eth1,eth2/"
NO_FLOWS = "would remove all ovs-lbt flows and groups from bridge br0"
ROLLED_BACK = "would roll this back after 60 s, unless confirmed: ovs-lbt confirm br0"
DETACHED = f"""would remove policy, team, threshold from bridge br0
    would remove binding from interfaces vnet0, vnet1, vnet2, 1 more {NO_FLOWS}"""
DRAINED = "would move vnet0: eth1 -> eth2 (drain) would move vnet2: eth1 -> eth2 (drain)"
# By request: the answer to its dry run, and what is seen once it has been carried out.
SAID = {
    "move vnet0 eth2": ("would move vnet0: eth1 -> eth2 (manual)", "bound 2212"),
    "move vnet0 eth1": ("nothing would change", "bound 1212"),
    "pin vnet0 eth2": (
        "would set pin=eth2 on interface vnet0 would move vnet0: eth1 -> eth2 (pin)",
        "keys vnet0 pin=eth2 binding=eth2 | bound 2212",
    ),
    "pin vnet0 eth1": (
        "would set pin=eth1 on interface vnet0",
        "keys vnet0 pin=eth1 binding=eth1 | bound 1212",
    ),
    "unpin vnet0": ("nothing would change", "bound 1212"),
    "drain eth1": (
        f"would set role=drained on interface eth1 {DRAINED}",
        "keys eth1 role=drained | bound 2222",
    ),
    "set bridge br0 policy=adaptive window-s=10": (
        "would set policy=adaptive, window-s=10 on bridge br0",
        f"keys br0 policy=adaptive window-s=10 threshold=60 {TEAM} | bound 1212",
    ),
    "set bridge br0 policy=explicit": (
        """would set policy=explicit on bridge br0 would move vnet1: eth2 -> eth1 (rebalance)
        would move vnet3: eth2 -> eth1 (rebalance)""",
        f"keys br0 policy=explicit threshold=60 {TEAM} | bound 1111",
    ),
    "set bridge br0 mode=observe": (
        "would set mode=observe on bridge br0",
        f"keys br0 policy=load-based mode=observe threshold=60 {TEAM} | would 1212",
    ),
    "set interface eth1 role=standby": (
        f"would set role=standby on interface eth1 {DRAINED}",
        "keys eth1 role=standby | bound 2222",
    ),
    "set bridge br0 window-s=7 --rollback-after 60": (
        f"would set window-s=7 on bridge br0 {ROLLED_BACK}",
        "ask get bridge br0 window-s | told 7 | bound 1212",
    ),
    "unset bridge br0 threshold": (
        "would remove threshold from bridge br0",
        f"keys br0 policy=load-based {TEAM} | bound 1212",
    ),
    "detach br0": (DETACHED, "keys br0 | keys vnet0 | released"),
    "detach br0 --rollback-after 60": (f"{DETACHED} {ROLLED_BACK}", "keys vnet0 | empty"),
}
BACK = "would remove window-s from bridge br0 bridge br0: would roll back the change by set"
UNATTACHED = "plain unattached vms=1 :fail_mode=standalone"
REFUSED = "refused no uplink of br0 is named nope; to list the names: ovs-lbt show br0"
STORIES = {
    **{
        request: f"""{SERVED} | dry {request} | told {said} | ask {request} | run 5 | told …
        | {seen}"""
        for request, (said, seen) in SAID.items()
    },
    "an uplink that is used again gets its VM ports back": f"""{SERVED} | ask drain eth1 | run 5
        | dry drain eth1 | told nothing would change | dry undrain eth1
        | told would remove role from interface eth1 would move vnet0: eth2 -> eth1 (failback)
        would move vnet2: eth2 -> eth1 (failback)""",
    "a change that waits": f"""{SERVED} | do set bridge br0 window-s=7 --rollback-after 60
        | dry confirm br0 | told bridge br0: would confirm the change by set | dry rollback br0
        | told {BACK} | dry revert br0 | told {BACK} | do rollback br0""",
    "attach of a bond": f"""bond unattached | dry attach br0 --rollback-after 60
        | told would set policy=load-based, connection-hash=auto on bridge br0 {ROLLED_BACK}
        note: br0: can be attached: load-based over eth1, eth2, 4 VM ports
        | do attach br0 --rollback-after 60""",
    "attach of plain uplinks": f"""{UNATTACHED} | dry attach br0 uplinks=eth1,eth2 policy=explicit
        | told would set policy=explicit, uplinks=eth1,eth2, connection-hash=auto, before={{"fail_mode":
        "standalone"}}, fail_mode=secure on bridge br0 would set protected=true on ports
        eth1, eth2 note: br0: can be attached: explicit over eth1, eth2, 1 VM ports note: br0: fail
        mode is standalone; attach sets it to secure, and detach restores it
        | do attach br0 uplinks=eth1,eth2 policy=explicit""",
    "a detach restores the fail mode and names what stays": f"""{UNATTACHED} vnet0.shares=70
        | do attach br0 uplinks=eth1,eth2 policy=explicit | dry detach br0
        | told …would set fail_mode=standalone on bridge br0 …
        br0: settings kept for the next attach: vnet0 shares; …""",
    "VM ports gather before a bond is given back": """backup vms=2 | run 10 | bound 12
        | dry detach br0 | told …would first move vnet0 to eth2…""",
    # It is managed with the last ones, also during a dry run.
    "a bridge whose keys have disappeared": f"""bond | add br0 65534 | run 10 | lose-keys | dry attach br0
        | told would set policy=load-based… | dry detach br0 | told …{NO_FLOWS}… | run 60 | let-go
        | dry detach br0 | told …{NO_FLOWS}… | column external_ids {{}}""",
    "a dry run that is refused is not recorded": f"""{SERVED} | watch
        | ask move vnet0 nope --dry-run | {REFUSED} | recorded | ask move vnet0 nope | {REFUSED}
        | recorded refused""",
    "many moves are counted": """plain vms=60 policy=explicit | dry drain eth1
        | told would set role=drained on interface eth1 would move … would make 40 more moves""",
}


def test_every_command_that_changes_something_has_a_dry_run() -> None:
    with_it = {row.name for row in COMMANDS if any(a.name == "--dry-run" for a in row.arguments)}
    assert with_it == {
        *("attach", "detach", "confirm", "rollback", "set", "unset", "move", "pin", "unpin"),
        *("drain", "undrain", "apply", "rescue"),
    }
    assert all(REQUESTS[name].reads for name in REQUESTS.keys() - with_it - {"revert"})


@pytest.mark.parametrize("story", STORIES)
def test_scenario(story: str) -> None:
    tell(STORIES[story])
