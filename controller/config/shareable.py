"""Removes secrets from database records, links and logs before they are added to a support bundle.

Only values that are known not to be secret are kept, because secrets have too many forms to be detected.
"""

from __future__ import annotations

import json
import re
from typing import Any

from controller.config.keys import KEYS
from controller.config.rows import PREFIX

REMOVED = "[removed]"
# Maps that Open vSwitch writes, not operators.
_WRITTEN = ("statistics", "status", "bfd_status", "rstp_status", "rstp_statistics")
# Text columns, keys in other columns, fields of `ip -json link`, and variables of the service whose values
# are kept. Keys of tunnels, arguments of DPDK and paths of key files are not in this list.
_NAMES = """
    name type error fail_mode protocols datapath_type datapath_version datapath_id ovs_version db_version
    system_type system_version dpdk_version vlan_mode bond_mode lacp mac bond_active_slave mac_in_use
    admin_state link_state duplex connection_mode role cfm_fault_status
    ifname link flags master qdisc operstate link_type address broadcast info_kind info_slave_kind parentbus
    parentdev mode state mii_status perm_hwaddr xmit_hash_policy
    iface-id iface-status attached-mac vm-id vm-uuid xs-vif-uuid xs-network-uuid xs-vm-uuid bridge-id
    system-id hostname ovn-installed ovn-bridge ovn-bridge-mappings ovn-chassis-mac-mappings ovn-encap-ip
    ovn-encap-ip-default ovn-encap-type ovn-encap-csum ovn-monitor-all remote_ip local_ip peer dst_port
    csum ttl tos df_default n_rxq enable min_rx min_tx mult bond-detect-mode bond-miimon-interval
    bond-primary bond-rebalance-interval all-members-active lb-output-action lacp-fallback-ab
    lacp-aggregation-key lacp-port-id lacp-port-priority lacp-system-id lacp-system-priority lacp-time
    priority-tags datapath-id disable-in-band forward-bpdu hwaddr mac-aging-time mac-table-size
    mcast-snooping-disable-flood-unregistered mcast-snooping-flood mcast-snooping-flood-reports
    mcast-snooping-table-size vlan-limit rstp-enable rstp-path-cost stp-enable stp-path-cost flow-limit
    flow-restore-wait hw-offload tc-policy max-idle max-revalidator n-handler-threads
    n-revalidator-threads dpdk-init pmd-cpu-mask userspace-tso-enable max-rate min-rate burst priority
    OVS_LBT_METRICS OVS_LBT_HISTORY OVS_LBT_NAME OVS_LBT_LISTEN
"""
_KNOWN = {*_NAMES.split(), *(PREFIX + key.name for key in KEYS)}
# Matches ovs-lbt-vm-NAME-KEY.
_OF_VM = re.compile(f"{PREFIX}vm-.*-({'|'.join(key.name for key in KEYS)})")
_ADDRESS = re.compile(r"p?(tcp|ssl|unix):[\w.:/%,\[\]-]*", re.ASCII)
# Matches lines of known modules of Open vSwitch in its logs.
OF_SWITCH = re.compile(
    r"[\dT:.-]+Z\|\d+\|(bfd|bond|bridge|cfm|connmgr|coverage|dpif\w*|fail_open|lacp|memory|netdev\w*|ofproto\w*"
    r"|ovs_rcu|ovsdb\w*|poll_loop|rconn|reconnect|rstp|stp|stream\w*|timeval|tunnel|vconn)[^|]*\|(ERR|WARN|INFO)\|"
)
# Matches lines and traces of the service, and lines of systemd, in the journal.
OF_SERVICE = re.compile(
    r"\S+ \S+ (systemd|\S+\[\d+\]: ([\d-]+ [\d:,]+ [A-Z]+ controller\.|Traceback|  |\w+Error:))"
)


def value(found: Any, key: str) -> Any:
    """Return the non-secret parts of a value: numbers, and texts of a known key, column or field (`key`)."""
    match found:
        case ["uuid", _] | int() | float() | None:
            return found
        case ["map", pairs]:
            return {k: v if key in _WRITTEN else value(v, k) for k, v in pairs}
        case ["set", some] | list(some):
            return [value(one, key) for one in some]
        case dict():
            return {k: value(one, k) for k, one in found.items()}
        case _ if key in ("target", "ovn-remote", "OVS_LBT_OVSDB"):
            return found if _ADDRESS.fullmatch(found) else REMOVED
    return found if key in _KNOWN or _OF_VM.fullmatch(key) else REMOVED


def as_json(printed: str) -> str:
    """Return the non-secret parts of JSON from `ip` or `ovs-vsctl list`; rows become objects."""
    found = json.loads(printed)
    if isinstance(found, dict):
        found = [dict(zip(found["headings"], row, strict=True)) for row in found["data"]]
    return json.dumps(value(found, ""), indent=1)


def variables(text: str) -> str:
    """Return the non-secret parts of a file that has NAME=VALUE on each line."""
    pairs = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    return "".join(f"{name}={value(text, name)}\n" for name, equals, text in pairs if equals)


def lines(text: str, known: re.Pattern[str]) -> str:
    """Return the log lines that begin with a match of `known`."""
    return "".join(line for line in text.splitlines(keepends=True) if known.match(line))


def without_logins(text: str) -> str:
    """Return the text without words such as scheme://user:password@host, which may contain passwords."""
    return re.sub(r'[^\s"\\]+', lambda w: REMOVED if ":" in w[0] and "@" in w[0] else w[0], text)
