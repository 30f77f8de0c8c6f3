"""The softirq probe's two BPF programs, the layout of their map, and the assembler behind them.

Both programs run at every softirq of every kind, so their first three instructions return for
anything but NET_TX and NET_RX. At ``softirq_raise`` the time is stored, unless one is stored
already: the oldest raise belongs to the packet that has waited longest. At ``softirq_entry`` the
wait is counted and the stored time cleared. A raise between the kernel's look at the pending mask
and the entry's tracepoint finds an older time and keeps it, correctly: the entry that follows
serves its work too.

The longest wait is kept per *turn*. Before it reads, user space writes the next turn's number; from
then on the programs write to the other of two slots, so the slot being read does not change and no
wait falls between two readings. (A maximum that user space resets to zero would lose waits that end
in between: an update of a per-CPU map writes all cores at once.)

Microseconds are computed by multiplication (n / 8 / 125 as ``(n >> 3) * 274877907 >> 35``, exact
for 32 bits), which is cheaper than a division. There are no loops, atomic operations or global
data, which 4.18 lacks; tested on 5.10, 6.1, 6.18 and 7.2.

The assembler knows only what these programs need. An instruction is eight bytes
(Documentation/bpf/standardization/instruction-set.rst): opcode, two registers in one byte, a 16-bit
offset and a 32-bit immediate, in the machine's byte order. The registers share their byte as C bit
fields do: the destination is the low half on little-endian machines and the high half on big-endian
ones. A jump counts instructions from the next one; here it names a label instead.

>>> program = Assembly("little").move(R0, 0).exit()
>>> program.encode().hex(" ", 8)
'b700000000000000 9500000000000000'
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from functools import partialmethod
from typing import NamedTuple

from sexton.errors import SourceMalformed

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP = range(11)

#: Sizes of loads and stores: 32 and 64 bits.
WORD, DOUBLE = 0x00, 0x18
LOOKUP, KTIME = 1, 5  # bpf_map_lookup_elem, bpf_ktime_get_ns

_ALU64, _JUMP, _LOAD, _STORE_IMM, _STORE = 0x07, 0x05, 0x61, 0x62, 0x63
_REGISTER = 0x08  # the operand is a register and not the immediate
_ADD, _SUB, _MUL, _AND, _LSH, _RSH, _MOV = 0x00, 0x10, 0x20, 0x50, 0x60, 0x70, 0xB0
_ALWAYS, _EQUAL, _ABOVE, _NOT_BELOW, _UNEQUAL, _SIGNED_NOT_BELOW = 0, 0x10, 0x20, 0x30, 0x50, 0x70
_CALL, _EXIT, _WIDE = 0x85, 0x95, 0x18
_PSEUDO_MAP = 1  # BPF_PSEUDO_MAP_FD: the immediate is a map's descriptor
_IMMEDIATE = range(-(1 << 31), 1 << 31)


class Operand(NamedTuple):
    """A register where a plain number would be an immediate."""

    register: int


class _Instruction(NamedTuple):
    opcode: int
    target: int = 0
    origin: int = 0
    offset: int | str = 0
    immediate: int = 0


@dataclass(slots=True)
class Assembly:
    """Instructions in order; every method appends one and returns the assembly.

    A second operand is an immediate where it is a number, a register where it is an `Operand`.
    Arithmetic has 64 bits, and is unsigned.
    """

    byte_order: str = sys.byteorder
    _code: list[_Instruction] = field(default_factory=list)
    _labels: dict[str, int] = field(default_factory=dict)

    def load(self, target: int, base: int, offset: int, size: int = DOUBLE) -> Assembly:
        """``target = *(base + offset)``"""
        return self._put(_Instruction(_LOAD | size, target, base, offset))

    def store(self, base: int, offset: int, value: int | Operand, size: int = DOUBLE) -> Assembly:
        """``*(base + offset) = value``"""
        if isinstance(value, Operand):
            return self._put(_Instruction(_STORE | size, base, value.register, offset))
        return self._put(_Instruction(_STORE_IMM | size, base, 0, offset, value))

    def load_map(self, target: int, descriptor: int) -> Assembly:
        """A map's address; the one instruction that takes two slots."""
        self._put(_Instruction(_WIDE, target, _PSEUDO_MAP, 0, descriptor))
        return self._put(_Instruction(0))

    def call(self, helper: int) -> Assembly:
        """A kernel helper: arguments in R1 to R5, result in R0; clobbers R1 to R5."""
        return self._put(_Instruction(_CALL, immediate=helper))

    def exit(self) -> Assembly:
        return self._put(_Instruction(_EXIT))

    def jump(self, label: str) -> Assembly:
        return self._put(_Instruction(_JUMP | _ALWAYS, offset=label))

    def label(self, name: str) -> Assembly:
        """Jumps to `name` land on the next instruction."""
        if name in self._labels:
            raise ValueError(f"duplicate label {name!r}")
        self._labels[name] = len(self._code)
        return self

    def encode(self) -> bytes:
        """The program as the kernel takes it."""
        return b"".join(
            self._bytes(place, instruction) for place, instruction in enumerate(self._code)
        )

    def _bytes(self, place: int, instruction: _Instruction) -> bytes:
        offset = instruction.offset
        if isinstance(offset, str):
            offset = self._labels[offset] - place - 1
        little = self.byte_order == "little"
        registers = (
            instruction.origin << 4 | instruction.target
            if little
            else instruction.target << 4 | instruction.origin
        )
        order = "<" if little else ">"
        return struct.pack(
            f"{order}BBhi", instruction.opcode, registers, offset, instruction.immediate
        )

    def _operate(self, opcode: int, target: int, by: int | Operand, offset: int | str) -> Assembly:
        if isinstance(by, Operand):
            return self._put(_Instruction(opcode | _REGISTER, target, by.register, offset))
        if by not in _IMMEDIATE:
            raise ValueError(f"{by} does not fit a 32-bit immediate")
        return self._put(_Instruction(opcode, target, 0, offset, by))

    def _put(self, instruction: _Instruction) -> Assembly:
        self._code.append(instruction)
        return self

    def _alu(self, operation: int, target: int, by: int | Operand) -> Assembly:
        return self._operate(_ALU64 | operation, target, by, 0)

    move = partialmethod(_alu, _MOV)
    add = partialmethod(_alu, _ADD)
    subtract = partialmethod(_alu, _SUB)
    multiply = partialmethod(_alu, _MUL)
    mask = partialmethod(_alu, _AND)
    left = partialmethod(_alu, _LSH)
    right = partialmethod(_alu, _RSH)

    def _branch(self, test: int, left: int, right: int | Operand, label: str) -> Assembly:
        return self._operate(_JUMP | test, left, right, label)

    if_equal = partialmethod(_branch, _EQUAL)
    if_unequal = partialmethod(_branch, _UNEQUAL)
    if_above = partialmethod(_branch, _ABOVE)
    if_not_below = partialmethod(_branch, _NOT_BELOW)

    def if_not_negative(self, left: int, label: str) -> Assembly:
        """The only signed comparison."""
        return self._branch(_SIGNED_NOT_BELOW, left, 0, label)


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
    """One vector on one core, in nanoseconds; `raised_ns` is 0 where nothing waits."""

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
    """For ``softirq_raise``: store the time of the oldest raise."""
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
    """R6 = this core's tally of the vector; jumps out for vectors that are not ours."""
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
    """The bucket is the bit length of the microseconds, found by halving."""
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
    code.if_above(R2, BUCKETS - 1, "out")  # cannot happen; the verifier needs the check
    code.label("bucket").left(R2, 3).add(R6, Operand(R2))
    code.load(R1, R6, _BUCKETS).add(R1, 1).store(R6, _BUCKETS, Operand(R1))


def read_tally(content: bytes, place: int, vector: int) -> Tally | None:
    """One vector of the `place`-th possible core; `None` where it was never raised there."""
    at = place * VALUE_BYTES + vector * VECTOR_BYTES
    if not 0 <= at <= len(content) - VECTOR_BYTES:
        raise SourceMalformed("bpf(2)", 0, f"{len(content)} bytes: too short for core {place}")
    if content[at + _RAISES : at + _WAITS] == bytes(8):
        return None
    raised, raises, waits, total, even, even_longest, odd, odd_longest, *buckets = (
        _NUMBERS.unpack_from(content, at)
    )
    turns = ((even, even_longest), (odd, odd_longest))
    return Tally(raised, raises, waits, total, turns, tuple(buckets))


def without_raises(content: bytes) -> bytes:
    """The map's content with every raise cleared: its entry was missed while the probe was off."""
    cleared = bytearray(content)
    for at in range(0, len(cleared), VECTOR_BYTES):
        cleared[at : at + 8] = bytes(8)
    return bytes(cleared)
