"""A BPF machine in Python, so that a program's every path can be tried without a kernel.

It knows what our programs use and refuses the rest. Memory is one flat array: the context, the
stack and the maps' values at addresses of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

MASK = (1 << 64) - 1
CONTEXT, STACK, MAPS = 0x1000, 0x2000, 0x10000
_STEPS = 10_000


class Machine:
    """Runs encoded programs; `maps` gives each descriptor's value, which the programs change."""

    def __init__(self, maps: Mapping[int, bytearray]) -> None:
        self.now_ns = 0
        self.bases = {descriptor: MAPS * (place + 1) for place, descriptor in enumerate(maps)}
        self._memory = {CONTEXT: bytearray(8), STACK: bytearray(512)}
        self._memory |= {self.bases[descriptor]: value for descriptor, value in maps.items()}

    def run(self, code: bytes, vector: int) -> int:
        """Call it with that vector as its argument; gives how many instructions it took."""
        self._memory[CONTEXT][:] = struct.pack("<Q", vector)
        registers = [0] * 11
        registers[1], registers[10] = CONTEXT, STACK + 512
        program = list(struct.iter_unpack("<BBhi", code))
        at = 0
        for step in range(1, _STEPS):
            opcode, both, offset, immediate = program[at]
            target, origin = both & 15, both >> 4
            at += 1
            if opcode == 0x95:
                assert registers[0] == 0
                return step
            if opcode == 0x18:
                assert origin == 1, "only maps are loaded so"
                registers[target] = immediate
                at += 1
            elif opcode == 0x85:
                registers[0] = self._helper(immediate, registers)
                registers[1:6] = [0xDEAD] * 5  # a call loses them
            elif opcode & 7 == 7:
                operand = registers[origin] if opcode & 8 else immediate & MASK
                registers[target] = _calculate(opcode & 0xF0, registers[target], operand)
            elif opcode & 7 == 5:
                operand = registers[origin] if opcode & 8 else immediate & MASK
                if _holds(opcode & 0xF0, registers[target], operand):
                    at += offset
            elif opcode & 7 == 1:
                registers[target] = self._load(registers[origin] + offset)
            elif opcode & 7 == 2:
                self._store(registers[target] + offset, immediate, 4 if opcode == 0x62 else 8)
            elif opcode & 7 == 3:
                self._store(registers[target] + offset, registers[origin], 8)
            else:
                raise AssertionError(f"opcode {opcode:#x}")
        raise AssertionError("it does not end")

    def _helper(self, number: int, registers: list[int]) -> int:
        if number == 5:
            return self.now_ns
        assert number == 1
        assert self._place(registers[2], 4) == (STACK, 508), "the key is on the stack"
        return self.bases[registers[1]]

    def _place(self, address: int, size: int) -> tuple[int, int]:
        for base, content in self._memory.items():
            if base <= address <= base + len(content) - size:
                return base, address - base
        raise AssertionError(f"nothing at {address:#x}")

    def _load(self, address: int) -> int:
        base, at = self._place(address, 8)
        return int.from_bytes(self._memory[base][at : at + 8], "little")

    def _store(self, address: int, value: int, size: int) -> None:
        base, at = self._place(address, size)
        self._memory[base][at : at + size] = (value & MASK).to_bytes(8, "little")[:size]


def _calculate(operation: int, left: int, right: int) -> int:
    return {
        0x00: left + right,
        0x10: left - right,
        0x20: left * right,
        0x50: left & right,
        0x60: left << (right & 63),
        0x70: left >> (right & 63),
        0xB0: right,
    }[operation] & MASK


def _holds(operation: int, left: int, right: int) -> bool:
    return {
        0x00: True,
        0x10: left == right,
        0x20: left > right,
        0x30: left >= right,
        0x50: left != right,
        0x70: _signed(left) >= _signed(right),
    }[operation]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
