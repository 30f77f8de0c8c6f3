"""The compiled `walk.c`, where there is one: `_walk.so` beside it, made when Sexton was installed.

It is taken only when it was compiled from the very `walk.c` that lies here (its CRC is compiled in)
and for this machine; otherwise numpy does the work. ``SEXTON_ENGINE=numpy`` leaves it out.
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

HERE = Path(__file__).parent
#: What the functions answer instead of a count.
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
    """A walk's beginning; what follows is its own."""

    _fields_ = [("plan", Plan), ("out", Column * 11), ("set", Set * 4)]


class Stream(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("size", c_uint64),
        ("at", c_uint64),
        ("bad", c_uint64),
    ]


class Stacks(ctypes.Structure):
    _fields_ = [("root", c_void_p), ("start", c_void_p), ("frame", c_void_p), ("n", c_uint64)]


class Library:
    """The functions of walk.c, with their types told to ctypes."""

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
        # Not at exit: an array may outlive every other thing there.
        weakref.finalize(memory, self.free, at).atexit = False
        return np.frombuffer(memory, dtype)


def _typed(function: Any, returns: Any, *takes: Any) -> Any:
    function.restype, function.argtypes = returns, takes
    return function


@cache
def loaded(folder: Path) -> Library | None:
    """What lies compiled in `folder`, if it can be used."""
    try:
        crc = zlib.crc32((folder / "walk.c").read_bytes())
        library = Library(folder / "_walk.so")
    except (OSError, AttributeError):  # not compiled, for another machine, or of another time
        return None
    fits = library.crc() == crc and library.size() >= ctypes.sizeof(Walk)
    return library if fits else None


def library() -> Library | None:
    """The compiled loops; `None`: numpy is to be used."""
    return None if os.environ.get("SEXTON_ENGINE") == "numpy" else loaded(HERE)


def engine() -> str:
    """Which loops are used: "c" or "numpy"."""
    return "numpy" if library() is None else "c"


def address(array: npt.NDArray[Any]) -> int:
    """Where an array's first element lies; it must be kept alive by the caller."""
    return array.ctypes.data if array.size else 0
