"""The list of Open vSwitch's columns names all that the installed Open vSwitch has."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from controller.config.columns import DIFFERENT, REFUSED, Name, reported
from controller.config.rows import PortRow
from tests.documents import ROOT
from tests.reference import columns
from tests.unit.rows import bond, bridge, interface

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
PAGE = Path("/usr/share/man/man5/ovs-vswitchd.conf.db.5.gz")
TABLES = ("Bridge", "Port", "Interface")
MAP = "other_config"
OF_PAGE = re.compile(r'^\.SH "(\w+) TABLE"|^\.IP "\\fBother_config : ([\w\\-]+)\\fR', re.M)


def listed(keys: bool) -> set[str]:
    """All columns, or all keys of `other_config`, each behind its table."""
    table_of = {"Bond": "Port"}
    return {
        f"{table_of.get(row.table, row.table)} {name.name}"
        for row in columns.ALL
        for name in row.names
        if name.is_key == keys
    }


@pytest.mark.system
def test_each_column_of_the_installed_schema_has_a_row() -> None:
    tables = json.loads(SCHEMA.read_text())["tables"]
    there = {f"{t} {c}" for t in TABLES for c in tables[t]["columns"] if c != MAP}
    unknown = sorted(there - listed(keys=False))
    assert not unknown, f"add rows to tests/reference/columns.py for {', '.join(unknown)}"


@pytest.mark.skipif(not PAGE.exists(), reason="the manual page of the database is not installed")
def test_each_documented_key_has_a_row() -> None:
    there, table = set(), ""
    for found in OF_PAGE.finditer(gzip.decompress(PAGE.read_bytes()).decode()):
        table = found[1] or table
        if found[2] and table in TABLES:
            there.add(f"{table} {found[2]}".replace("\\", ""))
    assert len(there) > 50
    unknown = sorted(there - listed(keys=True))
    assert not unknown, f"add rows to tests/reference/columns.py for {', '.join(unknown)}"


def test_each_row_names_a_test_that_exists() -> None:
    named = {columns.test_of(row) for row in columns.ALL} - {"", columns.NOT_TESTED}
    for file, name in (test.split("::") for test in named):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


@pytest.mark.parametrize(
    ("name", "other_config", "is_reported"),
    [
        (Name(True, "a", "=", "true"), {"a": "true"}, True),
        (Name(True, "a", "=", "true"), {"a": "TRUE"}, True),
        (Name(True, "a", "=", "true"), {"a": "false"}, False),
        (Name(True, "a", "!=", "300"), {"a": "10"}, True),
        (Name(True, "a", "!=", "300"), {"a": "300"}, False),
        (Name(True, "a", "!=", "300"), {}, False),
        (Name(True, "a"), {"a": "true"}, False),
    ],
)
def test_a_setting_is_reported_if_it_differs(
    name: Name, other_config: dict[str, str], is_reported: bool
) -> None:
    assert name.is_reported(PortRow("p", (), other_config=other_config)) == is_reported


def test_settings_are_reported_with_their_record() -> None:
    single = PortRow("vnet0", (interface("vnet0", 10),), bond_updelay=5, vlan_mode="dot1q-tunnel")
    several = replace(bond(interface("eth1", 1), interface("eth2", 2)), bond_updelay=5)
    row = replace(bridge(single, several), flood_vlans=(7,))
    found = [text.partition(": ")[0] for text in reported(row, DIFFERENT)]
    assert found == ["Bridge br0 flood_vlans", "Port bond0 bond_updelay"]
    (text,) = reported(row, REFUSED)
    assert text.endswith("ovs-vsctl set port vnet0 vlan_mode=access")
