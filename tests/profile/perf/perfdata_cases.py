"""Helpers of the perf.data tests: reading results, and shared records."""

from __future__ import annotations

import struct

import numpy as np

from tests.support.perf_bytes import USER_MARK, raw_record


def comms(raw) -> list[str]:
    return [raw.comms[number] for number in raw.columns.comm.tolist()]


def frames(raw, index: int) -> list[tuple[int, int]]:
    """Space and address of a sample's frames, leaf first."""
    columns = raw.columns
    stack = columns.stack[index]
    chosen = columns.stack_frame[columns.stack_start[stack] : columns.stack_start[stack + 1]]
    return list(zip(columns.space[chosen].tolist(), columns.address[chosen].tolist(), strict=True))


def row_of(maps, address: int) -> int:
    """The row of an address, -1 if it is not mapped."""
    row = int(np.searchsorted(maps.start, np.uint64(address), side="right")) - 1
    return row if row >= 0 and address < maps.end[row] else -1


def placed(raw, index: int) -> list[str]:
    """The files a sample's user frames lie in."""
    found = []
    for space, address in frames(raw, index):
        maps = raw.spaces[space].maps
        row = row_of(maps, address)
        found.append("" if row < 0 else raw.files[maps.file[row]].path)
    return found


def user(*addresses: int) -> list[int]:
    return [USER_MARK, *addresses]


def build_id(path: bytes, number: bytes, misc: int) -> bytes:
    body = struct.pack("<i20sB3x", -1, number, len(number)) + path + bytes(64 - len(path))
    return raw_record(0, body, misc | 1 << 15)
