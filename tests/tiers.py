"""What `make test` leaves to `make test-all`, so that it comes to twelve minutes.

`make test` keeps each preset and teaming with one failover, each promise of delivery once, and what guards
against loops, duplicates and lost VMs. Left out are the same checks on further teams, figures with limits,
and tests that set up other software: OVN, libvirt, packages, the commands of the documents, benches.
"""

from __future__ import annotations

from collections.abc import Mapping

# The file below tests/, and parts of the names of its tests. An empty part stands for the whole file.
THOROUGH: Mapping[str, tuple[str, ...]] = {
    "unit/controller/decisions/test_scheduler.py": ("remembered_of_the_last_decision",),
    "unit/controller/engine/test_damping.py": ("no_period_makes",),
    "unit/controller/engine/test_jumps.py": ("would_lose[0.0]", "would_lose[0.2]"),
    "unit/controller/replay/test_host.py": ("changes_nothing[adaptive-8-40-5",),
    "unit/controller/replay/test_skipping.py": ("split_and_merged",),
    "unit/policies/test_reservations_oracle.py": tuple(
        f"rules_and_reservations[{shard}]" for shard in range(4, 16)
    ),
    "mininet/test_benches.py": ("",),
    "mininet/test_connections.py": ("",),
    "mininet/test_examples.py": ("",),
    "mininet/test_overlay.py": ("",),
    "mininet/test_steps.py": ("",),
    "mininet/test_vmware_lbt.py": ("told_to_end_leaves",),
    "switch/test_adoption.py": (
        "lose_nothing[active-backup",
        "lose_nothing[lacp",
        "controller_record_costs",
        "hung_switch_is_told",
        "by the service-active-backup",
        "service killed-active-backup",
        "service killed-lacp",
        "not_confirmed_is_undone",
    ),
    "switch/test_alertmanager.py": ("",),
    "switch/test_announcements.py": ("after_the_lock[plain",),
    "switch/test_attach.py": (
        "is_for_people[balance-slb",
        "ofport_modulo_uplinks[balance-slb",
        "keys_that_it_has_checked[balance-slb",
        "capacity_and_pin_by_vsctl[balance-slb",
        "keeps_the_last_good_one[balance-slb",
    ),
    "switch/test_boot.py": ("ready_when_bridges", "unit_s_rights"),
    "switch/test_cached_failover.py": ("",),
    "switch/test_chaos.py": ("",),
    "switch/test_check.py": ("that_are_a_lag_upstream",),
    "switch/test_command_line.py": ("bash_completes",),
    "switch/test_confirm.py": (
        "attach_is_undone_and_nothing_is_lost[balance",
        "attach_is_undone_and_nothing_is_lost[active",
        "detach_is_undone_and_nothing_is_lost[active",
        "detach_is_undone_and_nothing_is_lost[balance-tcp",
        "detach_is_undone_and_nothing_is_lost[plain",
        "tried_until_the_database",
        "service_that_hangs",
        "switch_that_hangs",
        "after_a_boot",
        "who_began_it_was_killed",
        "confirmed_stays[service killed",
        "confirms_too_late",
    ),
    "switch/test_connection_hash.py": ("[balance-slb",),
    "switch/test_connections_stay.py": (
        "of_that_uplink_and_no_other[address-hash",
        "restart_of_the_service_moves_nothing[dynamic",
    ),
    "switch/test_dashboards.py": ("",),
    "switch/test_delivery.py": (
        "comes_out_once[plain-3-untagged",
        "comes_out_once[active-backup",
        "without_the_service[plain-3-untagged",
        "comes_out_once_without_the_service[active-backup",
        "comes_out_once_without_the_service[balance-slb",
        "comes_out_once_without_the_service[static-lag",
    ),
    "switch/test_departed.py": (
        "[balance-slb",
        "[static-lag",
        "[lacp-2-vlans-its link",
        "broadcasts_is_heard[plain-2-vlans-its link",
    ),
    "switch/test_documents.py": ("",),
    "switch/test_documents_dark.py": ("",),
    "switch/test_documents_systemd.py": ("",),
    "switch/test_documents_tls.py": ("",),
    "switch/test_dp_hash.py": ("[LOCAL",),
    "switch/test_endpoints.py": ("placed_on_the_endpoints",),
    "switch/test_faults.py": ("[handshake", "[sender", "[line"),
    "switch/test_fleet.py": ("",),
    "switch/test_hashing.py": (
        "with_an_uplink_down_its_connections_leave_by_others_and_those_stay[dp_hash",
    ),
    "switch/test_hot_vm.py": ("",),
    "switch/test_hypervisors.py": ("",),
    "switch/test_inbound_follows.py": ("never_follows",),
    "switch/test_interrupted_move.py": ("[balance-slb",),
    "switch/test_lacp.py": ("no_more_than_balance_tcp",),
    "switch/test_late_counters.py": ("",),
    "switch/test_late_policies.py": (
        "[load-based-source-mac",
        "[dynamic",
        "[adaptive-port",
    ),
    "switch/test_late_vm.py": (
        "[active-backup",
        "started_without_the_service[balance-slb",
        "new_port_without_the_service[lacp",
    ),
    "switch/test_libvirt.py": ("",),
    "switch/test_liveness.py": ("carries_nothing[plain",),
    "switch/test_load_based.py": ("[sends-plain", "flows_late", "too_big_for_any"),
    "switch/test_many_behind_a_port.py": ("[balance-slb", "restart_of_the_service"),
    "switch/test_move_tcp.py": ("",),
    "switch/test_notify_switches.py": ("[source-mac",),
    "switch/test_observe.py": ("[active-backup",),
    "switch/test_off_home.py": (
        "with_what_has_them[multipath",
        "tunnels_of_the_kernel",
    ),
    "switch/test_offload.py": ("",),
    "switch/test_ovn_overlays.py": ("",),
    "switch/test_ovn_plain_tunnels.py": ("",),
    "switch/test_ovn_provider.py": ("",),
    "switch/test_ovn_tunnels.py": ("",),
    "switch/test_ovs_upgrade.py": ("",),
    "switch/test_package.py": ("",),
    "switch/test_path_check.py": ("[to-the-bridge", "[from-the-bridge", "decides_as_soon"),
    "switch/test_path_figures.py": ("",),
    "switch/test_path_quiet.py": ("",),
    "switch/test_path_upstream.py": ("is_left[one-of-three", "is_left[two-of-three"),
    "switch/test_plan.py": ("observed_bridge",),
    "switch/test_port_groups.py": ("static_port_stays",),
    "switch/test_remote.py": ("may_dial_us[tcp",),
    "switch/test_rescue.py": ("chosen_anew", "needs_no_rescue"),
    "switch/test_restart.py": (
        "-dead]",
        "back_soon_and_new_vms_were_reached_meanwhile[balance-slb",
        "back_as_soon_as_the_switch[plain",
    ),
    "switch/test_reversal_timer.py": ("",),
    "switch/test_roles.py": ("the_return_lose_nothing[plain",),
    "switch/test_scale.py": ("",),
    "switch/test_several_addresses.py": ("",),
    "switch/test_shares.py": ("[tcp", "what_somebody_removed"),
    "switch/test_split.py": ("[multipath",),
    "switch/test_standby.py": ("take_turns", "database_was_away"),
    "switch/test_terminal.py": ("rates_are_those",),
}


def is_thorough(file: str, name: str) -> bool:
    """Whether `make test` leaves out the test of this name in a file, which is named from tests/ on."""
    return any(part in name for part in THOROUGH.get(file, ()))
