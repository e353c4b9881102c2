"""How uplinks queue: the classes of VM ports, the program that finds them, and what `tc` is told."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import htb
from controller.dataplane.htb import (
    DEFAULT_CLASS,
    HANDLE,
    ROOT_CLASS,
    Found,
    Host,
    Instruction,
    Leaf,
    Shaper,
)

HOST = Host()
DEVICE = "eth1"
MACS = [f"52:54:00:00:00:{n:02x}" for n in range(4)]


def shaper(*ports: int, **more: object) -> Shaper:
    """100 Mbit/s with a class for each of these ports, and their addresses."""
    leaves = [Leaf(port, 50, 8000, 100_000_000) for port in (*ports, DEFAULT_CLASS)]
    sources = tuple((MACS[i], port) for i, port in enumerate(ports))
    made = Shaper(100_000_000, False, tuple(leaves), sources, queues=8)
    return replace(made, **more)  # type: ignore[arg-type]


def installed(wanted: Shaper, host: Host = HOST) -> Found:
    minors = frozenset(leaf.minor for leaf in wanted.leaves)
    filters = max(1, -(-len(wanted.sources) // htb.ADDRESSES_A_FILTER))
    marks = (htb.mark(wanted, host),) * filters
    return Found("htb", HANDLE, marks, minors | {ROOT_CLASS}, minors)


def executed(code: Sequence[Instruction], frame: bytes) -> int:
    """What a program of classic BPF returns, by the kernel's rules."""
    accumulator, at = 0, 0
    while True:
        op, if_true, if_false, k = code[at]
        at += 1
        match op:
            case 0x00:
                accumulator = k
            case 0x20:
                accumulator = int.from_bytes(frame[k : k + 4], "big")
            case 0x28:
                accumulator = int.from_bytes(frame[k : k + 2], "big")
            case 0x05:
                at += k
            case 0x15:
                at += if_true if accumulator == k else if_false
            case 0x35:
                at += if_true if accumulator >= k else if_false
            case 0x06:
                return k
            case _:
                raise AssertionError(f"an instruction that is not allowed: {op:#x}")


def frame(source: str, destination: str = "ff:ff:ff:ff:ff:ff") -> bytes:
    return bytes.fromhex((destination + source).replace(":", "")) + bytes(50)


# Vendors' prefixes are shared by many addresses, and some share all but the last bytes.
addresses = st.builds(
    lambda head, tail: ":".join(f"{byte:02x}" for byte in (*head, *tail)),
    st.sampled_from([(0x52, 0x54, 0), (2, 0, 0), (0xFE, 0xFF, 0xFF)]),
    st.tuples(*[st.integers(0, 255)] * 3),
)


@given(st.dictionaries(addresses, st.integers(1, 0xFEFF), max_size=300), addresses)
def test_every_address_is_found_and_no_other(known: Mapping[str, int], other: str) -> None:
    code = htb.program(known.items(), mark=7)
    for mac, minor in known.items():
        assert executed(code, frame(mac)) == HANDLE << 16 | minor
    expected = HANDLE << 16 | known[other] if other in known else 0
    assert executed(code, frame(other)) == expected
    assert htb.read_mark(code) == 7
    # What the kernel checks: jumps stay inside, and the last one returns.
    assert all(max(if_true, if_false) < 256 for _, if_true, if_false, _ in code)
    assert code[-1][0] == 0x06


def test_addresses_are_found_where_half_a_filter_is_farther_than_a_conditional_jump_goes() -> None:
    known = {f"52:54:00:00:{n >> 8:02x}:{n & 0xFF:02x}": n + 1 for n in range(299)}
    code = htb.program(known.items(), mark=7)
    assert {mac: executed(code, frame(mac)) & 0xFFFF for mac in known} == known


def test_a_full_filter_fits_a_message_of_tc() -> None:
    """16 KiB; an instruction is 8 bytes."""
    scattered = [(f"02:{n & 0xFF:02x}:{n >> 8:02x}:00:{n & 0xFF:02x}:01", 5) for n in range(300)]
    assert len(scattered) == htb.ADDRESSES_A_FILTER
    assert len(htb.program(scattered, 0)) * 8 < 15_000


def test_lacp_goes_out_before_all_else_and_is_not_held_back() -> None:
    code = htb.program([(MACS[0], 10)], mark=1)
    assert executed(code, frame(MACS[0], "01:80:c2:00:00:02")) == HANDLE << 16
    assert executed(code, frame(MACS[0], "01:80:c2:00:00:10")) == HANDLE << 16 | 10
    assert executed(code, frame(MACS[0], "01:80:c3:00:00:02")) == HANDLE << 16 | 10


def test_a_device_of_its_own_gets_everything() -> None:
    lines = htb.commands(DEVICE, Found(), shaper(10, 11), HOST)
    assert lines[0] == "qdisc replace dev eth1 root handle 6c62: htb default fff1"
    kinds = [" ".join(line.split()[:2]) for line in lines[1:]]
    assert kinds == ["class replace"] * 4 + ["qdisc replace"] * 3 + ["filter replace"]


def test_an_address_that_is_learned_changes_one_filter_only() -> None:
    before = shaper(10, 11)
    after = replace(before, sources=(*before.sources, (MACS[3], 11)))
    (line,) = htb.commands(DEVICE, installed(before), after, HOST, known=before)
    assert line.startswith("filter replace dev eth1 parent 6c62: protocol all prio 1 handle 1 bpf")


def test_a_port_that_goes_takes_its_class_along_after_the_filter() -> None:
    before, after = shaper(10, 11), shaper(10)
    lines = htb.commands(DEVICE, installed(before), after, HOST, known=before)
    assert lines[-1] == "class del dev eth1 classid 6c62:b"
    assert "filter replace" in lines[-2]


def test_filters_that_are_too_many_go() -> None:
    macs = [f"02:00:00:00:{n >> 8:02x}:{n & 0xFF:02x}" for n in range(htb.ADDRESSES_A_FILTER + 1)]
    before, after = shaper(10, sources=tuple((mac, 10) for mac in macs)), shaper(10)
    assert len(installed(before).marks) == 2
    lines = htb.commands(DEVICE, installed(before), after, HOST, known=before)
    assert "filter del dev eth1 parent 6c62: protocol all prio 1 handle 2 bpf" in lines


def test_what_is_damaged_is_made_whole_and_what_is_whole_is_left_alone() -> None:
    wanted = shaper(10, 11)
    whole = installed(wanted)
    assert htb.commands(DEVICE, whole, wanted, HOST) == ()
    for damaged in (
        replace(whole, marks=()),
        replace(whole, minors=whole.minors - {10}),
        replace(whole, queued=whole.queued - {10}),
    ):
        assert htb.commands(DEVICE, damaged, wanted, HOST, known=wanted)


def test_only_ours_is_taken_away() -> None:
    assert htb.commands(DEVICE, installed(shaper(10)), None, HOST) == ("qdisc del dev eth1 root",)
    for kind, handle in (("noqueue", 0), ("mq", 0), ("tbf", 0x8001), ("htb", 1)):
        assert htb.commands(DEVICE, Found(kind, handle), None, HOST) == ()


def test_what_a_device_has_by_itself_is_nobodys() -> None:
    for kind in ("noqueue", "mq", "pfifo_fast", "fq_codel", "fq"):
        assert not Found(kind, 0).is_foreign
    assert Found("fq", 0x8001).is_foreign
    assert Found("htb", 1).is_foreign
    assert Found("tbf", HANDLE).is_foreign


def test_turns_are_never_less_than_a_frame_and_as_shares_are() -> None:
    leaves = tuple(Leaf(10 + n, shares, 8000, 10**9) for n, shares in enumerate((1, 50, 100)))
    for queues, frame_bytes in ((8, 9018), (None, htb.SUPERFRAME_BYTES)):
        made = Shaper(10**9, True, leaves, (), queues)
        lines = htb.commands(DEVICE, Found(), made, Host(mtu_bytes=9000))
        quanta = [int(q) for line in lines for q in re.findall(r"quantum (\d+)", line)]
        assert quanta == [frame_bytes, frame_bytes, 50 * frame_bytes, 100 * frame_bytes]


def test_queues_that_share_a_buffer_do_not_fill_it() -> None:
    wanted = shaper(10, 11, 12)
    lines = htb.commands(DEVICE, Found(), replace(wanted, queues=4), HOST)
    limits = [int(limit) for line in lines for limit in re.findall(r"bfifo limit (\d+)", line)]
    assert len(limits) == 4
    assert sum(limits) * htb.FOOTPRINT_RATIO <= HOST.send_buffer_bytes


def test_the_queues_of_many_vm_ports_take_no_long_time() -> None:
    leaves = tuple(Leaf(port, 50, 8000, 100_000_000) for port in range(1, 601))
    begun_s = time.process_time()
    lines = htb.commands(DEVICE, Found(), replace(shaper(10), leaves=leaves), HOST)
    assert time.process_time() - begun_s < 2.0
    assert sum("bfifo" in line for line in lines) == len(leaves)


def test_queues_of_the_kernels_own_datapath_are_fair_where_it_can_be() -> None:
    wanted = shaper(10, queues=None)
    for host, expected in ((Host(fq_codel=True), "fq_codel"), (Host(), "pfifo limit 1000")):
        lines = htb.commands(DEVICE, Found(), wanted, host)
        assert [line for line in lines if line.endswith(f"handle a: {expected}")]


def test_a_frame_on_the_wire_counts_whole_only_where_the_link_is_what_limits() -> None:
    for on_wire in (True, False):
        lines = htb.commands(DEVICE, Found(), shaper(10, on_wire=on_wire), HOST)
        assert any("overhead 24 mpu 84" in line for line in lines) is on_wire


def test_the_port_whose_number_is_the_qdiscs_has_another_class() -> None:
    assert htb.class_minor(HANDLE) != HANDLE
    assert htb.class_minor(10) == 10
    assert htb.class_minor(0xFFFE) == 0xFFFE
