"""Every command that a message or a runbook proposes has a state in which a test runs it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.advice import Advice, collected
from tests.documents import ROOT
from tests.switch.test_advice import LOOKS, STATES

# Words that propose nothing, or are not run, and why.
IFUPDOWN = "a line of a file for ifupdown, which runs it"
NETWORK_MANAGER = (
    "the same bond as a configuration for NetworkManager, which would take over the devices of a machine"
    " that tests run on; `nmcli --offline` 1.42 accepts each line"
)
NOT_PROPOSED = {
    "cli/bonds.configuration: ip address add {address} dev {bridge}": IFUPDOWN,
    "cli/bonds.configuration: ip route add default via {gateway6} dev {bridge}": IFUPDOWN,
    "cli/bonds.configuration: nmcli connection add type": NETWORK_MANAGER,
    "cli/bonds: nmcli connection delete {old}": NETWORK_MANAGER,
    "replay/command._parser: ovs-lbt replay": "the name of a program, for its help",
    "support_bundle._contents: ovs-lbt support-bundle, {strftime}": "a heading",
}
# Commands that other tests run in the state in which they are proposed.
ELSEWHERE = {
    "cli/bonds.from_bond: ovs-lbt detach {bridge} --to-bond {bond} --yes": (
        "kernel/test_linux_bond.py",
        "test_there_and_back_under_traffic",
    ),
    "config/controllers.not_done: ovs-vsctl set-fail-mode {} {SECURE}": (
        "switch/test_check_configurations.py",
        "test_the_fault_is_found_first_and_the_proposed_command_ends_it",
    ),
    "from_linux_bond.survey: ovs-lbt detach {}": (
        "kernel/test_linux_bond.py",
        "test_there_and_back_under_traffic",
    ),
    **dict.fromkeys(
        (
            "config/columns: ovs-vsctl clear bridge NAME flow_tables",
            "config/columns: ovs-vsctl set port NAME vlan_mode=access",
        ),
        (
            "switch/test_columns.py",
            "test_settings_with_which_frames_would_be_lost_are_refused",
        ),
    ),
    **dict.fromkeys(
        (
            "config/membership._absent: ovs-vsctl --if-exists del-port {port} -- add-port {bridge} {port}",
            "config/membership._absent: ovs-vsctl {_naming}",
            "config/membership._plain: ovs-vsctl {_naming}",
            "config/reader: ovs-vsctl --no-wait remove Open_vSwitch . other_config flow-restore-wait",
            "config/reader.multiplied: ovs-vsctl --id=@m get mirror {} -- remove bridge {} mirrors @m",
            "config/settings.report_unread: ovs-vsctl remove {lower} {} {column} {}",
            "operations/check._configuration: ovs-lbt set interface {} {rule}=",
            "operations/check._ports: ovs-vsctl {join}",
            "operations/check._set: ovs-ofctl -O {spoken} mod-port {} {} {flag}",
            "operations/check._state: ovs-ofctl -O {SPOKEN} --strict del-flows {} {}",
            "operations/check._uplinks: ovs-lbt set interface {name} role=active",
            "operations/check._uplinks: ovs-lbt undrain {}",
            "operations/check._uplinks: ovs-vsctl {join}",
        ),
        (
            "switch/test_check_configurations.py",
            "test_the_fault_is_found_first_and_the_proposed_command_ends_it",
        ),
    ),
    **dict.fromkeys(
        (
            "config/controllers.hidden_flows: ovs-vsctl del-controller {bridge}",
            "config/controllers.hidden_flows: ovs-vsctl set bridge {bridge} other_config:disable-in-band=true",
        ),
        (
            "switch/test_reports.py",
            "test_flows_for_a_controller_that_bypass_ours_are_refused_and_found",
        ),
    ),
    "operations/check._uplinks: ovs-vsctl set bridge {} rstp_enable=false stp_enable=false": (
        "switch/test_returning_uplink.py",
        "test_an_uplink_that_spanning_tree_blocks_carries_nothing",
    ),
    "operations/endpoint_plan._command: ovs-vsctl set interface {} external_ids:{ENCAP_IP}={}": (
        "switch/test_ovn_tunnels.py",
        "test_vms_follow_the_plan",
    ),
    **dict.fromkeys(
        (
            "operations/explain._outlook: ovs-lbt apply {bridge}",
            "operations/explain._outlook: ovs-lbt plan {bridge}",
            "operations/explain._outlook: ovs-lbt set bridge {bridge} mode=enforce",
            "operations/plans._headline: ovs-lbt apply {} --plan {plan_id}",
            "operations/plans.apply: ovs-lbt plan {}",
        ),
        (
            "unit/controller/operations/test_planning.py",
            "apply makes what was shown in one bundle",
        ),
    ),
    "operations/explain._outlook: ovs-lbt move {} UPLINK": (
        "unit/controller/engine/test_damping.py",
        "test_operators_moves_count_and_are_never_refused",
    ),
    # A screen has no room for more, and each of these commands only looks.
    **dict.fromkeys(
        (
            "cli/top/__init__.main: ovs-lbt top --once",
            "cli/top/view._note: ovs-lbt show",
            "cli/top/view._watching: ovs-lbt show",
        ),
        ("unit/controller/cli/top/test_view.py", "test_uplinks_that_do_not_fit_are_counted"),
    ),
    "OvsLbtFault: ovs-lbt detach BRIDGE": (
        "unit/controller/engine/test_failures.py",
        "test_a_detach_needs_nothing_of_what_it_removes",
    ),
}
# What only looks does so in any state.
LOOKED_AT = {one.partition(": ")[2] for one in LOOKS}


def states() -> Counter[str]:
    """How many cases each command has."""
    found = Counter(one for state in STATES.values() for one in state.proposed)
    return found + Counter([*NOT_PROPOSED, *ELSEWHERE])


def test_every_proposed_command_has_a_state_in_which_it_is_run() -> None:
    written = Counter(
        str(one) for one in collected() if not (one.in_runbook and one.command in LOOKED_AT)
    )
    assert written - states() == Counter(), "a state for each in tests/switch/test_advice.py"


def test_no_state_is_there_for_what_is_proposed_no_more() -> None:
    assert states().keys() - {str(one) for one in collected()} == set()


def test_tests_that_run_commands_instead_exist() -> None:
    for file, name in ELSEWHERE.values():
        # A story is named by its key.
        named = (f'"{name}":', f"def {name}(")
        assert any(one in (ROOT / "tests" / file).read_text() for one in named)


@pytest.mark.parametrize(
    ("command", "text", "found"),
    [
        ("ovs-lbt show {}", "x; to list: ovs-lbt show br0", "ovs-lbt show br0"),
        ("ovs-lbt show {}", "ovs-lbt show 'a b'; or not", "ovs-lbt show 'a b'"),
        ("ovs-vsctl {_into}", "it: ovs-vsctl a -- b c; or d", "ovs-vsctl a -- b c"),
        ("ovs-lbt plan {bridge}", "ovs-lbt plan br0, then ovs-lbt apply", "ovs-lbt plan br0"),
        ("ovs-lbt attach {}{uplinks}", "ovs-lbt attach br0 --x", "ovs-lbt attach br0 --x"),
        ("ovs-lbt apply {}", "ovs-lbt plan br0", None),
    ],
)
def test_a_command_is_found_in_a_message(command: str, text: str, found: str | None) -> None:
    assert Advice("a/place", command).found_in(text) == found
