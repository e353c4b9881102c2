"""Traces as files: what is read, and what a bad line is told."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from controller.replay.host import Options
from controller.replay.run import replay
from controller.replay.switch import Mix, in_buckets
from controller.replay.trace import BadTrace, parse, read
from tests.unit.controller.replay import synthetic_trace

HEAD = "time_s,host,port,tx_bps,rx_bps,uplink_capacity_bps"


def test_a_sample_holds_until_the_next_and_the_last_as_long_as_the_one_before() -> None:
    (host,) = parse([HEAD, "0,h,a,1,2,100", "0,h,b,3,4,100", "60,h,a,5,6,100"])
    assert host.ports == ["a", "b"] and host.capacity_bps == 100
    assert host.intervals() == [
        (0, 60, {"a": (1, 2), "b": (3, 4)}),
        (60, 120, {"a": (5, 6)}),
    ]


def test_hosts_come_in_any_order_and_each_in_its_own_time() -> None:
    hosts = parse([HEAD, "0,h2,a,1,1,100", "60,h2,a,1,1,100", "0,h1,a,1,1,200"])
    assert [(host.name, host.capacity_bps) for host in hosts] == [("h1", 200), ("h2", 100)]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], f"line 1: nothing; expected the columns {HEAD}"),
        (["time,port"], f"line 1: time,port; expected the columns {HEAD}"),
        ([HEAD], "line 2: the end of the file; expected at least one sample"),
        ([HEAD, "0,h,a,1,2"], "line 2: 5 fields; expected 6 fields"),
        ([HEAD, "0,h,a,many,2,100"], "line 2: tx_bps many; expected a number from 0 to 1e+15"),
        ([HEAD, "0,h,a,1,-2,100"], "line 2: rx_bps -2; expected a number from 0 to 1e+15"),
        ([HEAD, "0,h,a,1,nan,100"], "line 2: rx_bps nan; expected a number from 0 to 1e+15"),
        ([HEAD, "inf,h,a,1,2,100"], "line 2: time_s inf; expected a number from 0 to 253402300799"),
        ([HEAD, "0,,a,1,2,100"], "line 2: no name; expected the names of a host and a port"),
        ([HEAD, "0,h,a,1,2,0"], "line 2: uplink_capacity_bps 0 of h; expected 1 or more"),
        (
            [HEAD, "0,h,a,1,2,100", "60,h,a,1,2,99"],
            "line 3: uplink_capacity_bps 99 of h; expected 100, as in earlier samples",
        ),
        (
            [HEAD, "60,h,a,1,2,100", "0,h,a,1,2,100"],
            "line 3: time_s 0; expected at least 60, the previous time of h",
        ),
        # As of the clock: all digits count.
        (
            [HEAD, "1700000060.5,h,a,1,2,1000000001", "1700000000,h,a,1,2,1000000001"],
            "line 3: time_s 1700000000; expected at least 1700000060.5, the previous time of h",
        ),
        (
            [HEAD, "0,h,a,1,2,2500000001", "60,h,a,1,2,2500000000"],
            "line 3: uplink_capacity_bps 2500000000 of h; expected 2500000001, as in earlier samples",
        ),
        (
            [HEAD, "0,h,a,1,2,100", "0,h,a,1,2,100"],
            "line 3: a second line for a on h at 0; expected one line",
        ),
        # What no link and no recorder has.
        (
            [HEAD, "1e300,h,a,1,2,100"],
            "line 2: time_s 1e300; expected a number from 0 to 253402300799",
        ),
        ([HEAD, "0,h,a,1e300,2,100"], "line 2: tx_bps 1e300; expected a number from 0 to 1e+15"),
        ([HEAD, "0,h,a,1,2,1e-300"], "line 2: uplink_capacity_bps 1e-300 of h; expected 1 or more"),
        (
            [HEAD, "0,h,a,1,2,100", "1e10,h,a,1,2,100"],
            "line 3: time_s 1e10; expected at most 2678400 s after 0",
        ),
        ([HEAD, '0,h,a,"1\n2",2,100'], r"line 3: tx_bps 1\n2; expected a number from 0 to 1e+15"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], told: str) -> None:
    with pytest.raises(BadTrace) as refused:
        parse("\n".join(lines).splitlines(keepends=True))
    assert str(refused.value).startswith(told)


PACKED = gzip.compress(b"x" * 1000, mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"no gzip", id="another format"),
        pytest.param(PACKED[:-20], id="the end is missing"),
        pytest.param(PACKED[:10] + b"\xff" + PACKED[11:], id="damaged inside"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(content)
    with pytest.raises(BadTrace, match=r"trace\.csv\.gz"):
        read(path)


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_file_as_excel_writes_it_is_read(tmp_path: Path, name: str) -> None:
    """With a byte order mark, and lines that end as in Windows."""
    content = f"{HEAD}\r\n0,h,a,1,2,100\r\n".encode("utf-8-sig")
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    assert [(host.name, host.ports) for host in read(path)] == [("h", ["a"])]


def test_the_example_is_what_its_generator_makes() -> None:
    path = Path(__file__).parents[4] / "docs/examples/replay-trace.csv.gz"
    assert gzip.decompress(path.read_bytes()).decode() == synthetic_trace.text()
    assert [len(host.ports) for host in read(path)] == [8, 8]


def test_connections_have_zipf_shares_and_stay_in_their_buckets() -> None:
    mix = Mix(flows=4)
    assert mix.shares() == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    shares = in_buckets(mix, "host", "vm", 256, False)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares == in_buckets(mix, "host", "vm", 256, False)
    assert shares != in_buckets(Mix(flows=4, seed=1), "host", "vm", 256, False)
    assert list(in_buckets(mix, "host", "vm", 256, True).values()) == [1.0]


def test_a_vm_port_may_be_called_as_uplinks_are() -> None:
    hosts = parse([HEAD, "0,h,uplink1,1e3,2,1e6", "60,h,uplink1,1e3,6,1e6"])
    figures = replay(hosts, ["originating-port"], Options(), processes=1)["originating-port"]
    assert figures.volume.total.tx_bps == pytest.approx(1e3 * 120 / 8)
