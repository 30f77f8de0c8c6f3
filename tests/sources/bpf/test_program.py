"""The two programs, run path by path on a simulator in Python, and the assembler.

The expected encodings were worked out by hand from the kernel's document.
"""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.sources.bpf import program
from sexton.sources.bpf.program import (
    BUCKETS,
    FP,
    R0,
    R1,
    R2,
    R6,
    R7,
    VALUE_BYTES,
    VECTOR_BYTES,
    WORD,
    Assembly,
    Operand,
    Tally,
    entry_program,
    raise_program,
    read_tally,
    without_raises,
)
from tests.sources.bpf.machine import Machine

WAITS, TURN = 7, 8
NET_TX, NET_RX = 2, 3
RAISE, ENTRY = raise_program(WAITS), entry_program(WAITS, TURN)
SECOND = 1_000_000_000


class Core:
    """One core with its maps, at some time after boot."""

    def __init__(self) -> None:
        self.waits, self.turn = bytearray(VALUE_BYTES), bytearray(struct.pack("<Q", 1))
        self.machine = Machine({WAITS: self.waits, TURN: self.turn})
        self.machine.now_ns = 5 * SECOND

    def raised(self, vector: int = NET_RX) -> int:
        return self.machine.run(RAISE, vector)

    def entered(self, after_ns: int, vector: int = NET_RX) -> int:
        self.machine.now_ns += after_ns
        return self.machine.run(ENTRY, vector)

    def tally(self, vector: int = NET_RX) -> Tally | None:
        return read_tally(bytes(self.waits), 0, vector - NET_TX)


@given(wait_ns=st.integers(0, 40 * SECOND) | st.integers(0, 1 << 63))
@example(wait_ns=999)
@example(wait_ns=1000)
@example(wait_ns=1 << 34)
@example(wait_ns=(1 << 34) - 1)
@example(wait_ns=16_777_216_000 - 1)
@example(wait_ns=16_777_216_000)
def test_a_wait_is_counted_in_the_bucket_of_its_microseconds(wait_ns: int):
    core = Core()
    core.machine.now_ns = 1
    core.raised()
    core.entered(wait_ns)
    tally = core.tally()
    if wait_ns >= (1 << 63) - 1:  # longer than time: the clock stepped back
        wait_ns = tally.total_ns
    assert (tally.raised_ns, tally.raises, tally.waits, tally.total_ns) == (0, 1, 1, wait_ns)
    expected = [0] * BUCKETS
    expected[min((wait_ns // 1000).bit_length(), BUCKETS - 1)] = 1
    assert list(tally.buckets) == expected


@pytest.mark.parametrize("power", range(25))
def test_every_bucket_begins_where_it_says(power: int):
    for wait_us, where in (((1 << power) - 1, power), (1 << power, power + 1)):
        core = Core()
        core.raised()
        core.entered(wait_us * 1000)
        assert core.tally().buckets[where] == 1


def test_the_oldest_of_several_raises_is_measured():
    core = Core()
    core.raised()
    core.machine.now_ns += 3000
    core.raised()
    core.entered(2000)
    assert core.tally()[:4] == (0, 2, 1, 5000)


def test_an_entry_without_a_raise_counts_nothing():
    core = Core()
    core.entered(SECOND)
    assert bytes(core.waits) == bytes(VALUE_BYTES)


def test_the_two_vectors_are_kept_apart():
    core = Core()
    core.raised(NET_TX)
    core.entered(1000, NET_RX)
    assert core.tally(NET_RX) is None
    assert core.tally(NET_TX).raised_ns == 5 * SECOND


@pytest.mark.parametrize("vector", [0, 1, 4, 5, 6, 7, 8, 9, 1 << 40])
def test_every_other_vector_is_turned_away_with_the_first_instructions(vector: int):
    core = Core()
    assert core.raised(vector) == core.entered(5, vector) == 5
    assert bytes(core.waits) == bytes(VALUE_BYTES)


def test_a_clock_that_steps_back_is_a_wait_of_nothing():
    core = Core()
    core.raised()
    core.entered(-50)
    assert core.tally()[:4] == (0, 1, 1, 0)
    assert core.tally().buckets[0] == 1


def test_the_longest_wait_is_of_its_turn_and_the_turn_before_stands_still():
    core = Core()
    for wait in (3000, 9000, 4000):
        core.raised()
        core.entered(wait)
    assert core.tally().longest_ns(1) == 9000
    core.turn[:] = struct.pack("<Q", 2)
    assert core.tally().longest_ns(2) is None
    core.raised()
    core.entered(50)
    assert (core.tally().longest_ns(1), core.tally().longest_ns(2)) == (9000, 50)
    core.turn[:] = struct.pack("<Q", 3)
    core.raised()
    core.entered(70)
    assert core.tally().longest_ns(3) == 70
    assert core.tally().longest_ns(1) is None


def test_forgetting_the_notes_forgets_nothing_else():
    core = Core()
    core.raised()
    core.entered(900)
    counted = core.tally()
    core.raised()
    after = read_tally(without_raises(bytes(core.waits)), 0, 1)
    assert after == counted._replace(raises=2)


@given(content=st.binary(max_size=3 * VECTOR_BYTES), place=st.integers(0, 3))
def test_junk_out_of_the_map_is_a_tally_or_malformed(content: bytes, place: int):
    with contextlib.suppress(SourceMalformed):
        tally = read_tally(content, place, 0)
        assert tally is None or len(tally.buckets) == BUCKETS


def test_the_magic_division_is_exact_wherever_it_is_used():
    for eighths in (*range(100_000), *range(0x7FFFFFFF - 100_000, 0x7FFFFFFF + 1)):
        assert eighths * program._PER_125 >> program._PER_125_SHIFT == eighths // 125


def code(assembly: Assembly) -> str:
    return assembly.encode().hex(" ", 8)


@pytest.mark.parametrize(
    ("assembly", "expected"),
    [
        (Assembly("little").move(R0, 0), "b700000000000000"),
        (Assembly("little").move(R6, Operand(R1)), "bf16000000000000"),
        (Assembly("little").add(R2, -4), "07020000fcffffff"),
        (Assembly("little").add(R6, Operand(R2)), "0f26000000000000"),
        (Assembly("little").subtract(R6, 2), "1706000002000000"),
        (Assembly("little").multiply(R6, 272), "2706000010010000"),
        (Assembly("little").mask(R2, 1), "5702000001000000"),
        (Assembly("little").left(R2, 3), "6702000003000000"),
        (Assembly("little").right(R1, 35), "7701000023000000"),
        (Assembly("little").load(R6, R1, 0), "7916000000000000"),
        (Assembly("little").load(R1, R6, 64), "7961400000000000"),
        (Assembly("little").store(FP, -4, 0, WORD), "620afcff00000000"),
        (Assembly("little").store(R6, 8, 0), "7a06080000000000"),
        (Assembly("little").store(R6, 16, Operand(R1)), "7b16100000000000"),
        (Assembly("little").load_map(R1, 5), "1811000005000000 0000000000000000"),
        (Assembly("little").call(5), "8500000005000000"),
        (Assembly("little").exit(), "9500000000000000"),
    ],
)
def test_an_instruction_is_encoded_as_the_kernel_defines_it(assembly: Assembly, expected: str):
    assert code(assembly) == expected


def test_a_big_endian_machine_has_the_registers_and_the_bytes_the_other_way_round():
    assert code(Assembly("big").move(R6, Operand(R1))) == "bf61000000000000"
    assert code(Assembly("big").add(R2, -4)) == "0720" + "0000" + "fffffffc"


@pytest.mark.parametrize(
    ("jump", "opcode"),
    [
        (lambda code: code.jump("end"), "05000200 00000000"),
        (lambda code: code.if_equal(R7, 0, "end"), "15070200 00000000"),
        (lambda code: code.if_above(R7, 1, "end"), "25070200 01000000"),
        (lambda code: code.if_not_below(R7, Operand(R1), "end"), "3d170200 00000000"),
        (lambda code: code.if_unequal(R7, 0, "end"), "55070200 00000000"),
        (lambda code: code.if_not_negative(R7, "end"), "75070200 00000000"),
    ],
)
def test_a_jump_counts_from_the_instruction_behind_it(jump, opcode):
    assembly = jump(Assembly("little")).call(5).call(5).label("end").exit()
    assert code(assembly).startswith(opcode.replace(" ", ""))


def test_a_jump_over_a_map_counts_its_two_places():
    assembly = Assembly("little").jump("end").load_map(R1, 3).label("end").exit()
    assert code(assembly).startswith("0500020000000000")


def test_what_the_kernel_could_not_take_is_refused_here():
    with pytest.raises(ValueError, match="does not fit a 32-bit immediate"):
        Assembly().add(R0, 1 << 31)
    with pytest.raises(ValueError, match="duplicate label"):
        Assembly().label("out").label("out")
    with pytest.raises(KeyError):
        Assembly().jump("nowhere").encode()
