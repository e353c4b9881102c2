"""A support bundle keeps values of known keys, columns and logs, and nothing else."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from controller.config import shareable
from controller.config.shareable import OF_SERVICE, OF_SWITCH, REMOVED

SECRET, MAC = "hunter2", "02:00:00:00:00:01"
# Keys and columns in which Open vSwitch, OVN and others keep secrets, or the paths of secrets.
SECRET_KEYS = (
    *("psk", "private_key", "certificate", "ca_cert", "remote_cert", "bootstrap_ca_cert"),
    *("ipsec_psk", "ipsec_skb_mark", "auth_key", "key", "in_key", "out_key", "dpdk-extra"),
    *("dp-desc", "ovn-remote-auth", "ovn-nb-password", "wpa_key", "enckey", "agent-password"),
    *("api-token", "p", "url", "transport_url", "authorization", "note", "ifalias"),
    *("ovs-lbt-psk", "vm-id ", "VM-ID", "OVS_LBT_PRIVATE_KEY", "OVS_LBT_PASSWORD"),
    "ssl_private_key",
)
# Forms in which somebody may write a secret.
SECRETS = (
    SECRET,
    f"--password {SECRET}",
    f"-p {SECRET}",
    f'{{"psk":"{SECRET}"}}',
    f"https://user:hun/{SECRET}@host",
    f"Authorization: Token {SECRET}",
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
)


def listed(row: dict[str, Any]) -> str:
    """A row as `ovs-vsctl --format=json list` prints it."""
    table = {"headings": [*row], "data": [[*row.values()]]}
    return json.dumps(table)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("key", SECRET_KEYS)
def test_values_of_other_keys_and_columns_are_replaced(key: str, secret: str) -> None:
    columns = ("options", "other_config", "external_ids", "lldp")
    row = {column: ["map", [[key, secret], ["iface-id", "web-1"]]] for column in columns}
    found = shareable.as_json(listed({key: secret, **row, "name": "eth0"}))
    assert SECRET not in found
    (kept,) = json.loads(found)
    assert kept["name"] == "eth0" and kept[key] == REMOVED
    assert all(kept[column] == {key: REMOVED, "iface-id": "web-1"} for column in columns)
    assert SECRET not in shareable.as_json(json.dumps([{"ifname": "eth0", key: [secret]}]))
    assert SECRET not in shareable.variables(f"{key}={secret}\n")


@pytest.mark.parametrize("key", ["target", "ovn-remote", "OVS_LBT_OVSDB"])
def test_addresses_are_kept_only_as_addresses(key: str) -> None:
    for address in ("ssl:192.0.2.1:6640", "ptcp:6640:[2001:db8::1]", "unix:/run/ovs/db.sock"):
        assert shareable.value(address, key) == address
    for other in (*SECRETS, f"ssl:user:{SECRET}@192.0.2.1:6640", f"tcp:192.0.2.1:1 {SECRET}"):
        assert shareable.value(other, key) == REMOVED


def test_what_helps_is_kept() -> None:
    row = {
        "_uuid": ["uuid", "11111111-2222-3333-4444-555555555555"],
        "ports": ["set", [["uuid", "1"], ["uuid", "2"]]],
        "tag": 7,
        "ofport": ["set", []],
        "external_ids": ["map", [["attached-mac", MAC], ["ovs-lbt-vm-web-1-pin", "eth0"]]],
        "statistics": ["map", [["rx_packets", 3]]],
        "status": ["map", [["driver_name", "veth"]]],
    }
    (kept,) = json.loads(shareable.as_json(listed(row)))
    assert kept == {
        "_uuid": row["_uuid"],
        "ports": [["uuid", "1"], ["uuid", "2"]],
        "tag": 7,
        "ofport": [],
        "external_ids": {"attached-mac": MAC, "ovs-lbt-vm-web-1-pin": "eth0"},
        "statistics": {"rx_packets": 3},
        "status": {"driver_name": "veth"},
    }
    options = f"# psk={SECRET}\nOVS_LBT_METRICS=127.0.0.1:9476\nEXTRA='{SECRET}'\n{SECRET}\n"
    assert shareable.variables(options) == f"OVS_LBT_METRICS=127.0.0.1:9476\nEXTRA={REMOVED}\n"


@pytest.mark.parametrize(
    ("known", "kept", "dropped"),
    [
        (
            OF_SWITCH,
            "2026-11-28T17:00:00.123Z|00012|bridge|INFO|bridge br0: added interface eth0 on port 1\n"
            "2026-11-28T17:00:00.123Z|00002|dpif_netdev(pmd-c01/id:9)|WARN|flow limit\n",
            "2026-11-28T17:00:00.123Z|00003|dpdk|INFO|EAL ARGS: --psk hunter2\n"
            "2026-11-28T17:00:00.123Z|00003|vsctl|INFO|Called as ovs-vsctl set i eth0 options:psk=hunter2\n"
            "2026-11-28T17:00:00.123Z|00004|bridge|DBG|options:psk=hunter2\nhunter2\n",
        ),
        (
            OF_SERVICE,
            "2026-11-28T17:00:00+0000 host systemd[1]: Started ovs-lbt.service.\n"
            "2026-11-28T17:00:00+0000 host ovs-lbt[7]: 2026-11-28 17:00:00,123 INFO controller.engine: br0\n"
            "2026-11-28T17:00:00+0000 host ovs-lbt[7]: Traceback (most recent call last):\n"
            '2026-11-28T17:00:00+0000 host ovs-lbt[7]:   File "x.py", line 1, in f\n'
            "2026-11-28T17:00:00+0000 host ovs-lbt[7]: ValueError: 3\n",
            "2026-11-28T17:00:00+0000 host ovs-lbt[7]: 2026-11-28 17:00:00,123 INFO ovsdbapp.x: psk=hunter2\n"
            "2026-11-28T17:00:00+0000 host ovs-lbt[7]: Authorization: Token hunter2\n",
        ),
    ],
)
def test_of_logs_known_lines_are_kept(known: re.Pattern[str], kept: str, dropped: str) -> None:
    assert shareable.lines(kept + dropped + kept, known) == kept + kept


def test_a_login_is_replaced_in_any_text() -> None:
    text = f'{{"why": "controller: https://user:hun/{SECRET}@host, and host:6640"}}'
    expected = f'{{"why": "controller: {REMOVED} and host:6640"}}'
    assert shareable.without_logins(text) == expected


@pytest.mark.parametrize("letters", ["a", "-", "=", '"', "\\", ":@", "psk=", '[["'])
def test_the_time_is_linear(letters: str) -> None:
    """A minute would not do if the time were quadratic."""
    long = letters * (1_000_000 // len(letters))
    begun_s = time.process_time()
    shareable.as_json(listed({"external_ids": ["map", [["ovs-lbt-vm-" + long, long]]]}))
    shareable.without_logins(long)
    shareable.variables(long)
    for known in (OF_SWITCH, OF_SERVICE):
        shareable.lines(long, known)
    assert time.process_time() - begun_s < 3.0
