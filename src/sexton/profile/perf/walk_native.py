"""The walk by C: memory is C's while it grows, and numpy's after `finish`, without a copy."""

from __future__ import annotations

import ctypes

import numpy as np

from sexton.model.profile import I64
from sexton.profile.perf import native
from sexton.profile.perf.walk_plan import BadRecord, Columns, Plan, Since

#: As many offsets are asked for at once.
_OFFSETS = 1 << 16
_TYPES = ("i8", "i4", "i4", "i4", "i4", "i4", "i2", "i4", "i4", "i8", "i4")
_FRAMES, _CGROUPS, _STACKS, _IDS = range(4)


class NativeWalker:
    """See `Walker`."""

    def __init__(self, library: native.Library, plan: Plan) -> None:
        self._library = library
        self._plan = plan  # keeps alive what C points to
        self._layouts = (native.Layout * len(plan.shapes))(
            *(native.Layout(shape[:7], shape.steps) for shape in plan.shapes)
        )
        self._memory = ctypes.create_string_buffer(library.size())
        self._walk = native.Walk.from_buffer(self._memory)
        self._walk.plan = native.Plan(
            ctypes.addressof(self._layouts),
            native.address(plan.ids),
            native.address(plan.id_event),
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
        for told in plan.ids.tolist():
            self._checked(library.place(ids, told, 0, 1))
        self._side, self._samples = native.Stream(), native.Stream()

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
            raise ValueError("no event is described")
        held = np.frombuffer(data, np.uint8)
        stream = _fed(self._samples, held)
        got = self._library.samples(ctypes.byref(self._walk), ctypes.byref(stream))
        self._checked(got, stream)
        return int(stream.at)

    def finish(self) -> Columns:
        walk, taken = self._walk, self._library.taken
        # The tables that found stacks again are needed no more: gone before anything is copied.
        self._library.free(walk.set[_STACKS].slot)
        walk.set[_STACKS].slot = None
        taken(walk.set[_STACKS].keys, "u8")
        columns = [taken(column, kind) for column, kind in zip(walk.out, _TYPES, strict=True)]
        columns[9] = np.concatenate([np.zeros(1, np.int64), columns[9]])
        frames = taken(walk.set[_FRAMES].keys, "u8").reshape(-1, 2)
        cgroups = taken(walk.set[_CGROUPS].keys, "u8").reshape(-1, 2)
        address, space = frames[:, 0].copy(), frames[:, 1].astype(np.int64).astype(np.int32)
        cgroup_id = cgroups[:, 0].astype(np.int64)
        return Columns._make([*columns, address, space, cgroup_id, int(self._samples.bad)])

    def _checked(self, got: int, stream: native.Stream | None = None) -> int:
        if got == native.NO_MEMORY:
            raise MemoryError("no memory for more stacks")
        if got == native.BAD_RECORD and stream is not None:
            raise BadRecord(stream.at)
        return got


def _since(since: Since) -> native.Since:
    return native.Since(*(native.address(column) for column in since), len(since.key))


def _fed(stream: native.Stream, held: np.ndarray) -> native.Stream:
    stream.data, stream.size, stream.at = native.address(held), len(held), 0
    return stream
