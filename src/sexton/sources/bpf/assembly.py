"""A BPF assembler, as much of one as our programs need.

An instruction is eight bytes (Documentation/bpf/standardization/instruction-set.rst): opcode,
two registers in one byte, a 16-bit offset and a 32-bit immediate, in the machine's byte order.
The registers share their byte as C bit fields do: the destination is the low half on little-endian
machines and the high half on big-endian ones. A jump counts instructions from the one behind it;
here it names a label instead. Every one of these instructions is known to Linux 4.18.

>>> program = Assembly("little").move(R0, 0).exit()
>>> program.encode().hex(" ", 8)
'b700000000000000 9500000000000000'
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from typing import NamedTuple

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP = range(11)

#: Sizes of loads and stores: 32 and 64 bits.
WORD, DOUBLE = 0x00, 0x18
LOOKUP, KTIME = 1, 5  # bpf_map_lookup_elem, bpf_ktime_get_ns

_ALU64, _JUMP, _LOAD, _STORE_IMM, _STORE = 0x07, 0x05, 0x61, 0x62, 0x63
_REGISTER = 0x08  # the operand is a register and not the immediate
_ADD, _SUB, _MUL, _AND, _LSH, _RSH, _MOV = 0x00, 0x10, 0x20, 0x50, 0x60, 0x70, 0xB0
_ALWAYS, _EQUAL, _ABOVE, _NOT_BELOW, _UNEQUAL, _SIGNED_NOT_BELOW = 0, 0x10, 0x20, 0x30, 0x50, 0x70
_CALL, _EXIT, _WIDE = 0x85, 0x95, 0x18
_A_MAP = 1  # BPF_PSEUDO_MAP_FD: the immediate is a map's descriptor
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
    """Instructions in order; every method adds one and gives the assembly back.

    A second operand is an immediate where it is a number, a register where it is an `Operand`.
    """

    byte_order: str = sys.byteorder
    _code: list[_Instruction] = field(default_factory=list)
    _labels: dict[str, int] = field(default_factory=dict)

    def move(self, target: int, by: int | Operand) -> Assembly:
        return self._alu(_MOV, target, by)

    def add(self, target: int, by: int | Operand) -> Assembly:
        return self._alu(_ADD, target, by)

    def subtract(self, target: int, by: int | Operand) -> Assembly:
        return self._alu(_SUB, target, by)

    def multiply(self, target: int, by: int | Operand) -> Assembly:
        return self._alu(_MUL, target, by)

    def mask(self, target: int, by: int | Operand) -> Assembly:
        return self._alu(_AND, target, by)

    def left(self, target: int, by: int) -> Assembly:
        return self._alu(_LSH, target, by)

    def right(self, target: int, by: int) -> Assembly:
        """Shift right, unsigned."""
        return self._alu(_RSH, target, by)

    def load(self, target: int, base: int, offset: int, size: int = DOUBLE) -> Assembly:
        """``target = *(base + offset)``"""
        return self._put(_Instruction(_LOAD | size, target, base, offset))

    def store(self, base: int, offset: int, value: int | Operand, size: int = DOUBLE) -> Assembly:
        """``*(base + offset) = value``"""
        if isinstance(value, Operand):
            return self._put(_Instruction(_STORE | size, base, value.register, offset))
        return self._put(_Instruction(_STORE_IMM | size, base, 0, offset, value))

    def load_map(self, target: int, descriptor: int) -> Assembly:
        """A map's address; the one instruction that takes two places."""
        self._put(_Instruction(_WIDE, target, _A_MAP, 0, descriptor))
        return self._put(_Instruction(0))

    def call(self, helper: int) -> Assembly:
        """A kernel helper: arguments in R1 to R5, answer in R0; R1 to R5 are lost."""
        return self._put(_Instruction(_CALL, immediate=helper))

    def exit(self) -> Assembly:
        return self._put(_Instruction(_EXIT))

    def jump(self, label: str) -> Assembly:
        return self._put(_Instruction(_JUMP | _ALWAYS, offset=label))

    def if_equal(self, left: int, right: int | Operand, label: str) -> Assembly:
        return self._jump(_EQUAL, left, right, label)

    def if_unequal(self, left: int, right: int | Operand, label: str) -> Assembly:
        return self._jump(_UNEQUAL, left, right, label)

    def if_above(self, left: int, right: int | Operand, label: str) -> Assembly:
        """Unsigned, as all comparisons but the one that says so."""
        return self._jump(_ABOVE, left, right, label)

    def if_not_below(self, left: int, right: int | Operand, label: str) -> Assembly:
        return self._jump(_NOT_BELOW, left, right, label)

    def if_not_negative(self, left: int, label: str) -> Assembly:
        return self._jump(_SIGNED_NOT_BELOW, left, 0, label)

    def label(self, name: str) -> Assembly:
        """What follows is where jumps to `name` go."""
        if name in self._labels:
            raise ValueError(f"label {name!r} is there twice")
        self._labels[name] = len(self._code)
        return self

    def raw(self, opcode: int, registers: tuple[int, int], offset: int, value: int) -> Assembly:
        """An instruction that has no name here: opcode, (target, origin), offset, immediate."""
        return self._put(_Instruction(opcode, *registers, offset, value))

    def encode(self) -> bytes:
        """The program as the kernel takes it."""
        return b"".join(self._bytes(place, each) for place, each in enumerate(self._code))

    def _bytes(self, place: int, each: _Instruction) -> bytes:
        offset = each.offset
        if isinstance(offset, str):
            offset = self._labels[offset] - place - 1
        little = self.byte_order == "little"
        registers = each.origin << 4 | each.target if little else each.target << 4 | each.origin
        order = "<" if little else ">"
        return struct.pack(f"{order}BBhi", each.opcode, registers, offset, each.immediate)

    def _alu(self, operation: int, target: int, by: int | Operand) -> Assembly:
        return self._operate(_ALU64 | operation, target, by, 0)

    def _jump(self, operation: int, left: int, right: int | Operand, label: str) -> Assembly:
        return self._operate(_JUMP | operation, left, right, label)

    def _operate(self, opcode: int, target: int, by: int | Operand, offset: int | str) -> Assembly:
        if isinstance(by, Operand):
            return self._put(_Instruction(opcode | _REGISTER, target, by.register, offset))
        if by not in _IMMEDIATE:
            raise ValueError(f"{by} is no 32-bit immediate")
        return self._put(_Instruction(opcode, target, 0, offset, by))

    def _put(self, instruction: _Instruction) -> Assembly:
        self._code.append(instruction)
        return self
