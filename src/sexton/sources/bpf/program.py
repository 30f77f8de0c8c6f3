"""The two programs of the softirq probe, and how what they count is laid out.

Both run at every softirq of every kind, so they turn away what is not NET_TX or NET_RX with their
first three instructions. At ``softirq_raise`` the time is noted, but only where none is noted yet:
the oldest raise is the one whose packet has waited longest. At ``softirq_entry`` the wait is
counted and the note cleared.

A raise between the kernel's look at what is pending and the entry's tracepoint finds an older note
and leaves it; that is right, for the entry that follows serves its work too.

The longest wait is kept per *turn*. Before it reads, user space writes the next turn's number;
from then on the programs write to the other of two places, so the one that is read stands still
and no wait falls between two readings. (A maximum that user space sets back to zero would lose
what ends in between: an update of a per-CPU map writes all cores at once.)

Microseconds are made by multiplication (n / 8 / 125 as ``(n >> 3) * 274877907 >> 35``, exact for 32
bits), which is cheaper than a division. There are no loops, no atomic operations and no global
data, which a kernel of 4.18 would not have; tried on 5.10, 6.1, 6.18 and 7.2.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sexton.errors import SourceMalformed
from sexton.sources.bpf.assembly import (
    FP,
    KTIME,
    LOOKUP,
    R0,
    R1,
    R2,
    R3,
    R4,
    R6,
    R7,
    WORD,
    Assembly,
    Operand,
)

VECTORS = ("NET_TX", "NET_RX")
_FIRST_VECTOR = 2  # NET_TX_SOFTIRQ; NET_RX_SOFTIRQ follows
BUCKETS = 26
_RAISED, _RAISES, _WAITS, _TOTAL, _TURNS, _BUCKETS = 0, 8, 16, 24, 32, 64
_TURN_BYTES, _LONGEST = 16, 8  # of each of the two turns: its number, and the longest wait
VECTOR_BYTES = _BUCKETS + 8 * BUCKETS
VALUE_BYTES = VECTOR_BYTES * len(VECTORS)
TURN_BYTES = 8
_NUMBERS = struct.Struct(f"={VECTOR_BYTES // 8}Q")
_LAST_BUCKET_FROM = 0x7FFFFFFF  # eighths of a microsecond: 17.2 s
_PER_125, _PER_125_SHIFT = 274877907, 35


class Tally(NamedTuple):
    """One vector on one core, in nanoseconds; 0 for `raised_ns` means that nothing waits."""

    raised_ns: int
    raises: int
    waits: int
    total_ns: int
    turns: tuple[tuple[int, int], tuple[int, int]]
    buckets: tuple[int, ...]

    def longest_ns(self, turn: int) -> int | None:
        """The longest wait that ended in that turn."""
        number, longest = self.turns[turn & 1]
        return longest if number == turn else None


def raise_program(waits_map: int) -> bytes:
    """For ``softirq_raise``: note the time of the oldest raise."""
    code = _tally_of_the_vector(Assembly(), waits_map)
    code.load(R1, R6, _RAISES).add(R1, 1).store(R6, _RAISES, Operand(R1))
    code.load(R1, R6, _RAISED).if_unequal(R1, 0, "out")
    code.call(KTIME).store(R6, _RAISED, Operand(R0))
    return code.label("out").move(R0, 0).exit().encode()


def entry_program(waits_map: int, turn_map: int) -> bytes:
    """For ``softirq_entry``: count the wait."""
    code = _tally_of_the_vector(Assembly(), waits_map)
    code.load(R7, R6, _RAISED).if_equal(R7, 0, "out").store(R6, _RAISED, 0)
    code.call(KTIME).subtract(R0, Operand(R7)).move(R7, Operand(R0))
    code.if_not_negative(R7, "forward").move(R7, 0)  # this clock may step back a little
    code.label("forward")
    code.load(R1, R6, _WAITS).add(R1, 1).store(R6, _WAITS, Operand(R1))
    code.load(R1, R6, _TOTAL).add(R1, Operand(R7)).store(R6, _TOTAL, Operand(R1))
    _keep_the_longest(code, turn_map)
    _count_in_bucket(code)
    return code.label("out").move(R0, 0).exit().encode()


def _tally_of_the_vector(code: Assembly, waits_map: int) -> Assembly:
    """R6 = this core's tally of the vector, and out where it is none of ours."""
    code.load(R6, R1, 0).subtract(R6, _FIRST_VECTOR).if_above(R6, len(VECTORS) - 1, "out")
    code.multiply(R6, VECTOR_BYTES)
    _look_up(code, waits_map)
    return code.add(R0, Operand(R6)).move(R6, Operand(R0))


def _look_up(code: Assembly, in_map: int) -> Assembly:
    """R0 = the one value of that map."""
    code.store(FP, -4, 0, WORD).move(R2, Operand(FP)).add(R2, -4)
    return code.load_map(R1, in_map).call(LOOKUP).if_equal(R0, 0, "out")


def _keep_the_longest(code: Assembly, turn_map: int) -> None:
    _look_up(code, turn_map)
    code.load(R1, R0, 0)  # the turn's number
    code.move(R2, Operand(R1)).mask(R2, 1).left(R2, _TURN_BYTES.bit_length() - 1)
    code.move(R3, Operand(R6)).add(R3, Operand(R2))
    code.load(R4, R3, _TURNS).if_equal(R4, Operand(R1), "same turn")
    code.store(R3, _TURNS, Operand(R1)).jump("longest")
    code.label("same turn")
    code.load(R4, R3, _TURNS + _LONGEST).if_not_below(R4, Operand(R7), "not longest")
    code.label("longest").store(R3, _TURNS + _LONGEST, Operand(R7))
    code.label("not longest")


def _count_in_bucket(code: Assembly) -> None:
    """Which is the number of binary digits of its microseconds, found by halving."""
    code.move(R2, BUCKETS - 1).move(R1, Operand(R7)).right(R1, 3)
    code.if_above(R1, _LAST_BUCKET_FROM, "bucket")
    code.multiply(R1, _PER_125).right(R1, _PER_125_SHIFT).move(R2, 0)
    for digits in (16, 8, 4, 2, 1):
        shorter = f"at most {digits}"
        code.move(R3, 1 << digits)
        code.if_above(R3, Operand(R1), shorter)
        code.right(R1, digits).add(R2, digits)
        code.label(shorter)
    code.add(R2, Operand(R1))
    code.if_above(R2, BUCKETS - 1, "out")  # it cannot be; the verifier wants to see it
    code.label("bucket").left(R2, 3).add(R6, Operand(R2))
    code.load(R1, R6, _BUCKETS).add(R1, 1).store(R6, _BUCKETS, Operand(R1))


def bucket(wait_us: int) -> int:
    """The same in Python: which bucket a wait falls into.

    >>> bucket(0), bucket(1), bucket(1_000_000), bucket(5_000_000), bucket(1 << 60)
    (0, 1, 20, 23, 25)
    """
    return min(wait_us.bit_length(), BUCKETS - 1)


def read_tally(content: bytes, place: int, vector: int) -> Tally | None:
    """One vector of the `place`-th possible core; `None` where it was never raised there."""
    at = place * VALUE_BYTES + vector * VECTOR_BYTES
    if not 0 <= at <= len(content) - VECTOR_BYTES:
        raise SourceMalformed("bpf(2)", 0, f"{len(content)} bytes, and no core {place} in them")
    if content[at + _RAISES : at + _WAITS] == bytes(8):
        return None
    raised, raises, waits, total, even, even_longest, odd, odd_longest, *buckets = (
        _NUMBERS.unpack_from(content, at)
    )
    turns = ((even, even_longest), (odd, odd_longest))
    return Tally(raised, raises, waits, total, turns, tuple(buckets))


def without_notes(content: bytes) -> bytes:
    """The map's content with every raise forgotten: its entry was missed while nobody watched."""
    forgotten = bytearray(content)
    for at in range(0, len(forgotten), VECTOR_BYTES):
        forgotten[at : at + 8] = bytes(8)
    return bytes(forgotten)
