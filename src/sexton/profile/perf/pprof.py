r"""pprof: ``perftools.profiles.Profile``, a protocol buffer, usually gzipped.

https://github.com/google/pprof/blob/main/proto/profile.proto. Strings, functions, locations (an
address, or several functions inlined into each other) and mappings are tables; a sample is a list
of locations, innermost first, one value per sample type, and labels.

Quirks: a profile has several sample types (``samples/count`` and ``cpu/nanoseconds``; a heap
profile has four). Sexton uses ``samples`` if there is one, else the profile's default, else the
last, as pprof does; a problem line names the ignored ones. There are no timestamps. Threads are in
labels, whose names vary by writer: ``comm``, ``thread``, ``thread_comm`` and so on, ``pid``,
``tid``, ``cpu``, as text or number; without a name, the program (the first mapping) is the task.

>>> from io import BytesIO
>>> from sexton.profile.perf.protobuf import number, text
>>> data = b"".join(text(6, word) for word in (b"", b"samples", b"count", b"main"))
>>> data += text(1, number(1, 1) + number(2, 2)) + text(5, number(1, 1) + number(2, 3))
>>> data += text(4, number(1, 9) + text(4, number(1, 1))) + text(2, text(1, b"\x09") + number(2, 4))
>>> named = read(BytesIO(data), "cpu.pb")
>>> named.events, named.tasks, named.frames.names, named.weight.tolist()
((Event(name='samples', hertz=None, period=None),), ('[unknown]',), ('main',), [4])
"""

from __future__ import annotations

from array import array
from typing import BinaryIO, NamedTuple

import numpy as np

from sexton.errors import SourceMalformed
from sexton.model.profile import UNKNOWN, Event, Facts, Kind, Thread
from sexton.model.text import count, printable
from sexton.profile.perf.named_samples import (
    MOST_FRAMES,
    MOST_WEIGHT,
    FrameTable,
    NamedSamples,
    StackTable,
    kind_of,
    text_of,
)
from sexton.profile.perf.protobuf import fields, numbers, signed, varint
from sexton.profile.perf.stream import Bounds, whole

#: It cannot be read in pieces, because strings come last.
BOUNDS = Bounds(unpacked=256 << 20)
_COMM = ("comm", "thread_comm", "thread_name", "thread name", "thread", "process_name", "task")
_PID = ("pid", "process_id", "process.pid")
_TID = ("tid", "thread_id", "thread.id")
_CPU = ("cpu", "cpu_id", "cpu.logical_number")
#: Field numbers of a Profile, and which of them are messages or texts.
_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 1, 2, 3, 4, 5, 6
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD, _DEFAULT_TYPE = 9, 10, 11, 12, 14
_AS_BYTES = frozenset({1, 2, 3, 4, 5, 6, 11})
_AS_NUMBER = frozenset({7, 8, 9, 10, 12, 14, 15})
_EITHER = frozenset({13})


def read(stream: BinaryIO, path: str, bounds: Bounds = BOUNDS) -> NamedSamples:
    """Every sample, with its value of the chosen sample type."""
    facts = Facts(path=path, format="pprof")
    return _Reader(_tables(whole(stream, facts, bounds), facts), facts).named()


def looks_like(head: bytes) -> bool:
    """Does it start with fields of a profile, of the right types? `head` is unpacked."""
    seen = 0
    try:
        for field, value in fields(head, ""):
            expected = _AS_NUMBER if isinstance(value, int) else _AS_BYTES
            if field not in expected and field not in _EITHER:
                return False
            seen += 1
    except SourceMalformed as error:
        # The head may end within a field; the fields before it count.
        return seen > 0 and "past the end" in error.detail
    return seen > 0


class _Tables(NamedTuple):
    types: list[bytes]
    samples: list[bytes]
    mappings: list[bytes]
    locations: list[bytes]
    functions: list[bytes]
    strings: list[str]
    period_type: bytes | None
    numbers: dict[int, int]


def _tables(data: bytes, facts: Facts) -> _Tables:
    found: dict[int, list[bytes]] = {field: [] for field in range(1, 7)}
    strings: list[str] = []
    period_type = None
    varints: dict[int, int] = {}
    for field, value in fields(data, facts.path):
        if isinstance(value, int):
            varints[field] = value
        elif field == _STRING:
            strings.append(text_of(value))
        elif field in found:
            found[field].append(value)
        elif field == _PERIOD_TYPE:
            period_type = value
    if not found[_TYPE] or not found[_SAMPLE]:
        raise SourceMalformed(facts.path, 0, "not a pprof profile, or one without samples")
    lists = (found[field] for field in (_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION))
    types, samples, mappings, locations, functions = lists
    return _Tables(types, samples, mappings, locations, functions, strings, period_type, varints)


class _Reader:
    def __init__(self, tables: _Tables, facts: Facts) -> None:
        self._tables = tables
        self._facts = facts
        self._path = facts.path
        self._frames = FrameTable()
        self._stacks = StackTable(facts.path)
        self._modules = self._mappings()
        self._functions = self._function_names()
        self._locations = self._location_frames()
        self._by_bytes: dict[bytes, int] = {}
        self._labels: dict[bytes, tuple[str, str | int]] = {}
        self._negative = 0

    def named(self) -> NamedSamples:
        chosen, event = self._choose()
        program = next(iter(self._modules.values()), "").rpartition("/")[2]
        default = UNKNOWN if not program or program.startswith("[") else program
        threads: dict[Thread, int] = {}
        tasks: dict[str, int] = {}
        thread, task, cpu = array("i"), array("i"), array("i")
        stack, weight = array("i"), array("q")
        total = 0
        for sample in self._tables.samples:
            frames, values, labels = self._sample(sample)
            value = signed(values[chosen]) if chosen < len(values) else 0
            if value <= 0:
                self._negative += value < 0
                continue
            total += value
            if total > MOST_WEIGHT:
                raise SourceMalformed(self._path, 0, "values too large to add up")
            comm = _name(labels) or default
            who = Thread(_ident(labels, _PID), _ident(labels, _TID), comm)
            thread.append(threads.setdefault(who, len(threads)))
            task.append(tasks.setdefault(comm, len(tasks)))
            cpu.append(_ident(labels, _CPU))
            stack.append(frames)
            weight.append(value)
        self._add_problems(len(stack))
        rows = len(stack)
        row, stacks = self._stacks.by_task(
            np.array(task, np.int32), np.array(stack, np.int32).reshape(-1)
        )
        return NamedSamples(
            time_ns=np.zeros(rows, np.int64),
            cpu=np.array(cpu, np.int32),
            thread=np.array(thread, np.int32),
            cgroup=np.full(rows, -1, np.int32),
            event=np.zeros(rows, np.int16),
            stack=row,
            weight=np.array(weight, np.int64),
            threads=tuple(threads),
            cgroups=(),
            events=(event,),
            tasks=tuple(tasks),
            stacks=stacks,
            frames=self._frames.frames(),
            facts=self._facts,
            timed=False,
        )

    def _add_problems(self, rows: int) -> None:
        if not rows:
            raise SourceMalformed(self._path, 0, "no sample has a value")
        self._facts.problems.extend(self._stacks.problems())
        if self._negative:
            self._facts.problems.append(
                f"{count(self._negative, 'negative value')} (a difference of profiles?): skipped"
            )

    def _choose(self) -> tuple[int, Event]:
        """The index of the sample type that is used, and its event."""
        types = [self._type(raw) for raw in self._tables.types]
        default = self._string(self._tables.numbers.get(_DEFAULT_TYPE, 0))
        names = [name for name, _ in types]
        if "samples" in names:
            chosen = names.index("samples")
        elif default in names:
            chosen = names.index(default)
        else:
            chosen = len(types) - 1
        others = [f"{n} ({u})" for at, (n, u) in enumerate(types) if at != chosen]
        name, unit = types[chosen]
        if others:
            left = printable(", ".join(others))
            self._facts.problems.append(
                f"sample type {printable(name)} ({unit}) used; ignored: {left}"
            )
        period = signed(self._tables.numbers.get(_PERIOD, 0))
        hertz = None
        kind = self._tables.period_type
        if period > 0 and kind is not None and self._type(kind) == ("cpu", "nanoseconds"):
            hertz = round(1e9 / period) or None
        return chosen, Event(name or "samples", hertz)

    def _type(self, raw: bytes) -> tuple[str, str]:
        varints = self._varints(raw)
        return self._string(varints.get(1, 0)), self._string(varints.get(2, 0))

    def _varints(self, raw: bytes) -> dict[int, int]:
        """The fields of a message that are numbers."""
        return {field: value for field, value in fields(raw, self._path) if isinstance(value, int)}

    def _string(self, at: int) -> str:
        if not at:
            return ""
        if at >= len(self._tables.strings):
            raise SourceMalformed(self._path, 0, f"refers to missing string {at:,}")
        return self._tables.strings[at]

    def _mappings(self) -> dict[int, str]:
        found = {}
        for raw in self._tables.mappings:
            varints = self._varints(raw)
            found[varints.get(1, 0)] = self._string(varints.get(5, 0))
        return found

    def _function_names(self) -> dict[int, str]:
        found = {}
        for raw in self._tables.functions:
            varints = self._varints(raw)
            name = self._string(varints.get(2, 0)) or self._string(varints.get(3, 0))
            found[varints.get(1, 0)] = name or UNKNOWN
        return found

    def _location_frames(self) -> dict[int, array[int]]:
        """The frames of each location, innermost first: several if functions are inlined."""
        found = {}
        for raw in self._tables.locations:
            ident = mapping = address = 0
            names: list[str] = []
            for field, value in fields(raw, self._path):
                if isinstance(value, bytes):
                    if field == 4 and len(names) < MOST_FRAMES:
                        names.append(self._line(value))
                elif field == 1:
                    ident = value
                elif field == 2:
                    mapping = value
                elif field == 3:
                    address = value
            module = self._modules.get(mapping, "")
            kind = kind_of(module, address or None) if module else Kind.UNTOLD
            ids = [self._frames.id(name, module, kind) for name in names or [UNKNOWN]]
            found[ident] = array("i", ids)
        return found

    def _line(self, raw: bytes) -> str:
        for field, value in fields(raw, self._path):
            if field == 1 and isinstance(value, int):
                return self._functions.get(value, UNKNOWN)
        return UNKNOWN

    def _sample(self, raw: bytes) -> tuple[int, list[int], dict[str, str | int]]:
        values: list[int] = []
        labels: dict[str, str | int] = {}
        locations = bytearray()
        for field, value in fields(raw, self._path):
            if field == 1:
                locations += varint(value) if isinstance(value, int) else value
            elif field == 2:
                values += numbers(value, self._path)
            elif field == 3 and isinstance(value, bytes):
                key, label = self._labels.get(value) or self._label(value)
                labels.setdefault(key, label)
        return self._stack(bytes(locations)), values, labels

    def _stack(self, packed: bytes) -> int:
        found = self._by_bytes.get(packed)
        if found is None:
            frames = array("i")
            for location in numbers(packed, self._path):
                known = self._locations.get(location)
                if known is None:
                    raise SourceMalformed(self._path, 0, f"refers to missing location {location:,}")
                if len(frames) <= MOST_FRAMES:
                    frames.extend(known)
            found = self._by_bytes[packed] = self._stacks.id(frames)
        return found

    def _label(self, raw: bytes) -> tuple[str, str | int]:
        varints = self._varints(raw)
        key = self._string(varints.get(1, 0)).lower()
        value = self._string(varints.get(2, 0)) or signed(varints.get(3, 0))
        self._labels[raw] = key, value
        return key, value


def _name(labels: dict[str, str | int]) -> str | None:
    found = (labels.get(key) for key in _COMM)
    return next((value for value in found if isinstance(value, str)), None)


def _ident(labels: dict[str, str | int], keys: tuple[str, ...]) -> int:
    """A number, written as text or number; -1 if there is none."""
    for key in keys:
        value = labels.get(key, "")
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 11:
            value = int(value)
        if isinstance(value, int) and 0 <= value < 1 << 31:
            return value
    return -1
