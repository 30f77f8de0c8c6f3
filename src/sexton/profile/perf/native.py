"""The compiled `walk.c`: `_walk.so` beside it, built when Sexton was installed.

It is used only if it was compiled from this `walk.c` (its CRC is compiled in) and for this machine;
otherwise numpy does the same work. ``SEXTON_ENGINE=numpy`` disables it. Memory belongs to C while
it grows, and to numpy after `NativeWalker.finish`, without a copy.
"""

from __future__ import annotations

import ctypes
import os
import weakref
import zlib
from ctypes import POINTER, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I64
from sexton.profile.perf import walk

HERE = Path(__file__).parent
#: Return values instead of a count.
BAD_RECORD, NO_MEMORY = -1, -2


class Column(ctypes.Structure):
    """An array that grows."""

    _fields_ = [("at", c_void_p), ("used", c_uint64), ("room", c_uint64), ("width", c_uint64)]


class Set(ctypes.Structure):
    """Pairs, numbered."""

    _fields_ = [("keys", Column), ("slot", c_void_p), ("slots", c_uint64)]


class Since(ctypes.Structure):
    _fields_ = [("key", c_void_p), ("since", c_void_p), ("value", c_void_p), ("n", c_uint64)]


class Layout(ctypes.Structure):
    _fields_ = [("numbers", c_uint64 * 7), ("steps", c_uint64 * 4 * 10)]


class Plan(ctypes.Structure):
    _fields_ = [
        ("layouts", c_void_p),
        ("ids", c_void_p),
        ("id_event", c_void_p),
        ("n_ids", c_uint64),
        ("id_at", c_uint64),
        ("comms", Since),
        ("spaces", Since),
    ]


class Walk(ctypes.Structure):
    """The first fields of a walk; the rest is private to C."""

    _fields_ = [("plan", Plan), ("out", Column * 11), ("set", Set * 4)]


class Stream(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", c_uint64), ("at", c_uint64), ("bad", c_uint64)]


class Stacks(ctypes.Structure):
    _fields_ = [("root", c_void_p), ("start", c_void_p), ("frame", c_void_p), ("n", c_uint64)]


class Library:
    """The functions of walk.c, with their ctypes signatures."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.crc = _typed(library.sexton_crc, c_uint32)
        self.size = _typed(library.sexton_size, c_uint64)
        self.resize = _typed(library.sexton_resize, c_void_p, c_void_p, c_uint64)
        self.free = _typed(library.sexton_free, None, c_void_p)
        place = (c_void_p, c_uint64, c_uint64, c_int)
        self.place = _typed(library.sexton_place, c_int64, *place)
        self.side = _typed(library.sexton_side, c_int64, POINTER(Stream), c_void_p, c_int64)
        self.samples = _typed(library.sexton_samples, c_int64, c_void_p, POINTER(Stream))
        grow = (POINTER(Stacks), c_void_p, c_void_p, POINTER(Column), c_void_p)
        self.grow = _typed(library.sexton_grow, c_int64, *grow)

    def taken(self, column: Column, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The column as an array that owns its memory; the column is empty afterwards."""
        bytes_used = column.used * column.width
        if not bytes_used:
            return np.zeros(0, dtype)
        at = self.resize(column.at, bytes_used) or column.at
        column.at, column.used, column.room = None, 0, 0
        memory = (c_uint8 * bytes_used).from_address(at)
        # Not at exit: an array may outlive everything else.
        weakref.finalize(memory, self.free, at).atexit = False
        return np.frombuffer(memory, dtype)


def _typed(function: Any, returns: Any, *takes: Any) -> Any:
    function.restype, function.argtypes = returns, takes
    return function


@cache
def loaded(folder: Path) -> Library | None:
    """The compiled library in `folder`, if it can be used."""
    try:
        crc = zlib.crc32((folder / "walk.c").read_bytes())
        library = Library(folder / "_walk.so")
    except (OSError, AttributeError):  # not compiled, or for another machine or version
        return None
    fits = library.crc() == crc and library.size() >= ctypes.sizeof(Walk)
    return library if fits else None


def library() -> Library | None:
    """The compiled library; `None`: use numpy."""
    return None if os.environ.get("SEXTON_ENGINE") == "numpy" else loaded(HERE)


def engine() -> str:
    """The engine in use: "c" or "numpy"."""
    return "numpy" if library() is None else "c"


def address(array: npt.NDArray[Any]) -> int:
    """The address of an array's data; the caller must keep the array alive."""
    return array.ctypes.data if array.size else 0


#: How many offsets one call to C returns at most.
_OFFSETS = 1 << 16
_TYPES = ("i8", "i4", "i4", "i4", "i4", "i4", "i2", "i4", "i4", "i8", "i4")
_FRAMES, _CGROUPS, _STACKS, _IDS = range(4)


class NativeWalker:
    """See `Walker`."""

    def __init__(self, library: Library, plan: walk.Plan) -> None:
        self._library = library
        self._plan = plan  # keeps the memory alive that C points to
        self._layouts = (Layout * len(plan.shapes))(
            *(Layout(shape[:7], shape.steps) for shape in plan.shapes)
        )
        self._memory = ctypes.create_string_buffer(library.size())
        self._walk = Walk.from_buffer(self._memory)
        self._walk.plan = Plan(
            ctypes.addressof(self._layouts),
            address(plan.ids),
            address(plan.id_event),
            len(plan.ids),
            plan.id_at,
            _since(plan.comms),
            _since(plan.spaces),
        )
        for column, kind in zip(self._walk.out, _TYPES, strict=True):
            column.width = np.dtype(kind).itemsize
        for kept in self._walk.set:
            kept.keys.width = 16
        ids = ctypes.byref(self._walk.set[_IDS])
        for number in plan.ids.tolist():
            self._checked(library.place(ids, number, 0, 1))
        self._side, self._samples = Stream(), Stream()

    def __del__(self) -> None:
        for column in self._walk.out:
            self._library.free(column.at)
        for kept in self._walk.set:
            self._library.free(kept.keys.at)
            self._library.free(kept.slot)

    def side(self, data: memoryview) -> tuple[I64, int]:
        held = np.frombuffer(data, np.uint8)
        stream = _fed(self._side, held)
        room = np.empty(_OFFSETS, np.int64)
        found: list[I64] = []
        while not found or len(found[-1]) == _OFFSETS:
            got = self._library.side(ctypes.byref(stream), room.ctypes.data, _OFFSETS)
            found.append(room[: self._checked(got, stream)].copy())
        return np.concatenate(found), stream.at

    def samples(self, data: memoryview) -> int:
        if not self._plan.shapes:
            raise ValueError("no event description")
        held = np.frombuffer(data, np.uint8)
        stream = _fed(self._samples, held)
        got = self._library.samples(ctypes.byref(self._walk), ctypes.byref(stream))
        self._checked(got, stream)
        return int(stream.at)

    def finish(self) -> walk.Columns:
        state, taken = self._walk, self._library.taken
        # Free the hash table of stacks before anything is copied.
        self._library.free(state.set[_STACKS].slot)
        state.set[_STACKS].slot = None
        taken(state.set[_STACKS].keys, "u8")
        columns = [taken(column, kind) for column, kind in zip(state.out, _TYPES, strict=True)]
        columns[9] = np.concatenate([np.zeros(1, np.int64), columns[9]])
        frames = taken(state.set[_FRAMES].keys, "u8").reshape(-1, 2)
        cgroups = taken(state.set[_CGROUPS].keys, "u8").reshape(-1, 2)
        address, space = frames[:, 0].copy(), frames[:, 1].astype(np.int64).astype(np.int32)
        cgroup_id = cgroups[:, 0].astype(np.int64)
        return walk.Columns._make([*columns, address, space, cgroup_id, int(self._samples.bad)])

    def _checked(self, got: int, stream: Stream | None = None) -> int:
        if got == NO_MEMORY:
            raise MemoryError("out of memory for stacks")
        if got == BAD_RECORD and stream is not None:
            raise walk.BadRecord(stream.at)
        return got


def _since(history: walk.Since) -> Since:
    return Since(*(address(column) for column in history), len(history.key))


def _fed(stream: Stream, held: np.ndarray) -> Stream:
    stream.data, stream.size, stream.at = address(held), len(held), 0
    return stream
