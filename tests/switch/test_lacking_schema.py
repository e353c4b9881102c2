"""A database that lacks what the service reads: each command says what, and a running service carries on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from controller.ovsdb import records
from tests.switch.bed import BALANCE_SLB, Bed, BedSpec, Upstream
from tests.switch.service import Service
from tests.switch.waiting import wait_until

SPEC = BedSpec(BALANCE_SLB, 2, (None, None))
COLUMNS = {"Bridge": "mirrors", "Interface": "mtu"}
LACKING = f"the database lacks column Bridge.mirrors (uuid), column Interface.mtu (integer); {records.UPGRADE}"


@pytest.fixture(scope="module")
def bed(own: Service, tor: Upstream) -> Iterator[Bed]:
    own.start()
    with Bed(own.ovs, tor, SPEC) as made:
        own.attach(made, "--policy", "originating-port")
        yield made


def reduced(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without these columns."""
    tables = {name: dict(table) for name, table in schema["tables"].items()}
    for table, gone in COLUMNS.items():
        columns = tables[table]["columns"].items()
        tables[table]["columns"] = {name: of for name, of in columns if name != gone}
    return {"name": schema["name"], "version": schema["version"], "tables": tables}


def schema_of(bed: Bed) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(bed.ovs.run("ovsdb-client", "get-schema", database(bed)))
    return schema


def database(bed: Bed) -> str:
    return f"unix:{bed.ovs.rundir}/db.sock"


def convert(bed: Bed, schema: Mapping[str, Any]) -> None:
    path = bed.ovs.rundir / "schema"
    path.write_text(json.dumps(schema))
    bed.ovs.run("ovsdb-client", "convert", database(bed), str(path))


def findings(service: Service, check: str = "schema") -> list[str]:
    told = json.loads(service.command("check", "--json").stdout)["findings"]
    return [finding["text"] for finding in told if finding["check"] == check]


def may_set(service: Service, bed: Bed, threshold: int) -> bool:
    return service.command("set", "bridge", bed.bridge, f"threshold={threshold}").returncode == 0


def test_a_conversion_leaves_the_service_with_a_current_database(bed: Bed, own: Service) -> None:
    """Its connection stays, but the server sends no more rows on it."""
    convert(bed, schema_of(bed))
    bed.ovs.vsctl("set", "bridge", bed.bridge, "external_ids:ovs-lbt-threshold=9")
    wait_until(lambda: findings(own, "bad-value"), "the service reads the setting")
    bed.ovs.vsctl("remove", "bridge", bed.bridge, "external_ids", "ovs-lbt-threshold")
    wait_until(lambda: not findings(own, "bad-value"), "it reads the next one")
    assert not findings(own)


@pytest.mark.parametrize("restarted", [False, True], ids=["converted", "restarted"])
def test_a_running_service_keeps_its_last_state_and_says_what_is_missing(
    bed: Bed, own: Service, restarted: bool
) -> None:
    whole, before, pid = schema_of(bed), own.bindings(bed), own.pid
    convert(bed, reduced(whole))
    try:
        if restarted:
            bed.ovs.stop("ovsdb-server")
            bed.ovs.start_database()
        wait_until(lambda: findings(own) == [LACKING], "check says what is missing")
        refused = own.command("set", "bridge", bed.bridge, "threshold=62")
        assert (refused.returncode, refused.stderr) == (1, f"ovs-lbt: database: {LACKING}\n")
        assert own.bindings(bed) == before
    finally:
        convert(bed, whole)
    wait_until(lambda: not findings(own), "the service follows the database again")
    wait_until(lambda: may_set(own, bed, 63), "the service writes to the database again")
    assert own.bindings(bed) == before
    assert own.alive and own.pid == pid
    log = own.log.read_text()
    assert f"{LACKING}; the last valid state stays in force" in log
    assert "Traceback" not in log and "a bug in ovs-lbt" not in log


def test_every_command_without_the_service_says_what_is_missing(bed: Bed, own: Service) -> None:
    whole = schema_of(bed)
    with own.dead():
        convert(bed, reduced(whole))
        try:
            for words in (
                ("run",),
                ("detach", bed.bridge),
                ("rescue", bed.bridge),
                ("plan", "--endpoints"),
            ):
                refused = own.command(*words)
                told = f"ovs-lbt: {database(bed)}: {LACKING}\n"
                assert (words, refused.returncode, refused.stderr) == (words, 1, told)
        finally:
            convert(bed, whole)
