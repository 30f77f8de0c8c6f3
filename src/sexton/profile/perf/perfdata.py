"""perf.data: what ``perf record`` writes, in binary.

``perf record -F 97 -e cpu-clock -a -g --all-cgroups --buildid-mmap -k CLOCK_MONOTONIC`` on kernel
6.18 begins ``50 45 52 46 49 4c 45 32 68 00 …`` ("PERFILE2", 104 bytes of head) and then holds
records, most of which are samples of about 124 bytes. The parts are `header` (events and metadata),
`records` (tasks, maps, losses), `walk` (the samples), `compressed` (``-z``) and `spaces` (names and
maps at the time of a sample).

The file is read twice in pieces of 8 MB: it holds the buffers of different cores one after another,
so the name of a task may come after its samples. A truncated or damaged file is read as far as
possible, and `Facts.problems` says so; a file without anything readable is `SourceMalformed`.

>>> is_perf_data(b"PERFILE2h")
True
"""

from __future__ import annotations

import os
import struct

import numpy as np

from sexton.errors import SourceMalformed
from sexton.host.reader import failure
from sexton.model.profile import I32, Event, Facts
from sexton.model.text import count
from sexton.profile.perf.compressed import unpack
from sexton.profile.perf.header import MOST_BYTES, READ, Attr, Features, is_perf_data
from sexton.profile.perf.pieces import PIECE, Capture, Part, pieces, read_piece
from sexton.profile.perf.raw import LATEST_NS, KernelFacts, MappedFile, Raw
from sexton.profile.perf.records import CompressedFound, Rows, SideRecords
from sexton.profile.perf.spaces import Mapper, Timelines, mapped_file, timelines, unknown_comm
from sexton.profile.perf.walk import Columns, walker

__all__ = ["is_perf_data", "read_features", "read_raw"]

FORMAT = "perf.data"
_KERNEL_NAMES = ("[kernel.kallsyms]", "[kernel]", "[guest.kernel.kallsyms]")
_MOST_MODULES = 10_000
_PER_SAMPLE = ("time_ns", "cpu", "pid", "tid", "comm", "cgroup", "event", "stack")
_NO_DWARF = (
    "recorded with --call-graph dwarf: user stacks are not unwound, kernel stacks are complete; "
    "record with --call-graph fp"
)
_NO_BRANCHES = (
    "recorded with --call-graph lbr: user stacks are missing, kernel stacks are complete; "
    "record with --call-graph fp"
)


def read_raw(path: str | os.PathLike[str]) -> Raw:
    """Read a capture: a file, or a directory of perf."""
    try:
        return _read(os.fspath(path))
    except OSError as error:
        raise failure(os.fspath(path), error) from None


def _read(path: str) -> Raw:
    with Capture(path) as capture:
        features = read_features(capture)
        side, whole = _read_side(capture, features)
        if not side.attrs:
            raise SourceMalformed(capture.path, 0, "no event description: truncated too early")
        if capture.problems and not any(part.end > part.start for part in whole):
            raise SourceMalformed(capture.path, 0, capture.problems[-1])
        maps = side.maps()
        lines = timelines(side.tasks(), maps, side.comms)
        columns = _read_samples(capture.path, whole, side.attrs, lines)
        return _assemble(_Read(capture, side, maps, lines), columns)


def read_features(capture: Capture) -> Features:
    """The sections after the data; those of a pipe are records."""
    features = Features()
    head = capture.head
    if head.data_size is None:
        return features
    at = head.data_offset + head.data_size
    table = capture.read_at(at, 16 * len(head.sections))
    if len(table) < 16 * len(head.sections):
        features.problems.append("metadata after the samples (host, clock, …) is truncated")
    for number, (offset, size) in zip(
        head.sections, struct.iter_unpack("<QQ", table[: len(table) // 16 * 16]), strict=False
    ):
        if number in READ:
            whole = size <= MOST_BYTES and offset + size <= capture.size
            features.take(number, capture.read_at(offset, size) if whole else b"")
    return features


class _Read:
    """The result of the first pass."""

    def __init__(self, capture: Capture, side: SideRecords, maps: Rows, lines: Timelines) -> None:
        self.capture = capture
        self.side = side
        self.maps = maps
        self.lines = lines
        self._build_ids = any(attr.has_build_ids for attr in side.attrs)

    def mapped(self, part: int, at: int, size: int) -> MappedFile:
        """The file that the record at this offset maps."""
        return mapped_file(self.capture.bytes_at(part, at, size), self._build_ids)


def _read_side(capture: Capture, features: Features) -> tuple[SideRecords, list[Part]]:
    """The first pass: everything except samples, and the ranges of whole records."""
    try:
        return _scan(capture, features)
    except CompressedFound:
        capture.parts = [unpack(capture)]
        # Records of a pipe were partly processed already, and come again.
        again = Features() if capture.head.pipe else features
    try:
        return _scan(capture, again)
    except CompressedFound:
        raise SourceMalformed(capture.path, 0, "compressed twice: not supported") from None


def _scan(capture: Capture, features: Features) -> tuple[SideRecords, list[Part]]:
    side = SideRecords(capture.head.attrs, features)
    whole: list[Part] = []
    for number, part in enumerate(capture.parts):
        whole.append(part._replace(end=part.start))
        for piece in pieces(part, capture.problems):
            side.take(piece, number)
            end = piece.at + len(piece.view)
            if piece.at == whole[-1].end:
                whole[-1] = whole[-1]._replace(end=end)
            else:
                whole.append(part._replace(start=piece.at, end=end))
    return side, whole


def _read_samples(path: str, whole: list[Part], attrs: list[Attr], lines: Timelines) -> Columns:
    """The second pass."""
    layouts = [attr.layout() for attr in attrs]
    try:
        walk = walker(layouts, lines.comms, lines.spaces)
    except ValueError as error:
        raise SourceMalformed(path, 0, str(error)) from None
    buffer = memoryview(bytearray(min(PIECE, max(part.end - part.start for part in whole))))
    try:
        for part in whole:
            at = part.start
            while at < part.end:
                used = walk.samples(read_piece(part, at, buffer))
                if not used:
                    break
                at += used
        return walk.finish()
    except MemoryError:
        raise SourceMalformed(path, 0, "too many distinct stacks for memory") from None


def _assemble(read: _Read, columns: Columns) -> Raw:
    side, features, capture = read.side, read.side.features, read.capture
    timed = any(attr.timed for attr in side.attrs)
    columns = _by_time(_possible(columns))
    columns, comms = _named(columns, read.lines)
    columns, events = _events(columns, side.attrs, features)
    mapper = Mapper(read.maps, read.lines, read.mapped)
    used, space = np.unique(columns.space, return_inverse=True)
    # -1 stays, 0 is the kernel whether sampled or not, the others are renumbered.
    numbers = [0, *(number for number in used.tolist() if number > 0)]
    spaces = [mapper.space(number) for number in numbers]
    moved = {number: index for index, number in enumerate(numbers)} | {-1: -1}
    columns = columns._replace(
        space=np.array([moved[n] for n in used.tolist()], np.int32)[space.reshape(-1)]
    )
    clocks = {attr.clock for attr in side.attrs if not attr.is_dummy}
    facts = Facts(
        path=capture.path,
        format=FORMAT,
        host=features.host,
        release=features.release,
        command=features.command,
        cores=features.cores,
        clock=features.clock(clocks.pop() if len(clocks) == 1 else None),
        lost=_lost(side, features),
        throttled=side.throttled,
        problems=[*capture.problems, *features.problems, *mapper.problems],
    )
    _add_problems(facts, side, columns, timed)
    paths = (side.cgroups.get(number & (1 << 64) - 1) for number in columns.cgroup_id.tolist())
    return Raw(
        columns=columns,
        comms=comms,
        cgroups=[
            path or f"cgroup:{number & (1 << 64) - 1}"
            for path, number in zip(paths, columns.cgroup_id.tolist(), strict=True)
        ],
        spaces=spaces,
        files=_with_build_ids(mapper, features),
        kernel=_kernel(read),
        events=events,
        facts=facts,
        timed=timed,
    )


def _lost(side: SideRecords, features: Features) -> int:
    """Samples dropped by the kernel, whether reported at the time or at the end."""
    # In rotated files the sum in the last one covers all of them, which is counted already.
    one_of_many = features.command is not None and "--switch-output" in features.command
    return side.lost_in_hardware + max(side.lost, 0 if one_of_many else side.lost_in_all)


def _add_problems(facts: Facts, side: SideRecords, columns: Columns, timed: bool) -> None:
    if any(attr.needs_unwinding for attr in side.attrs):
        facts.problems.append(_NO_DWARF)
    if any(attr.in_branches for attr in side.attrs):
        facts.problems.append(_NO_BRANCHES)
    if columns.bad:
        facts.problems.append(f"{count(columns.bad, 'malformed sample')} skipped")
    if side.bad:
        facts.problems.append(f"{count(side.bad, 'malformed task or map record')} skipped")
    if not timed:
        facts.problems.append("samples have no timestamps (recorded with --no-timestamp?)")


def _possible(columns: Columns) -> Columns:
    """Without samples of an impossible time: one of them would stretch the capture over a
    century."""
    wrong = (columns.time_ns < 0) | (columns.time_ns > LATEST_NS)
    number = int(np.count_nonzero(wrong))
    if not number:
        return columns
    kept = {name: getattr(columns, name)[~wrong] for name in _PER_SAMPLE}
    return columns._replace(**kept, bad=columns.bad + number)


def _by_time(columns: Columns) -> Columns:
    time_ns = columns.time_ns
    if len(time_ns) < 2 or bool(np.all(time_ns[1:] >= time_ns[:-1])):
        return columns
    order = np.argsort(time_ns, kind="stable")
    for name in _PER_SAMPLE:  # in place, one by one: copies of all would take 70 MB more
        column = getattr(columns, name)
        column[:] = column[order]
    return columns


def _named(columns: Columns, lines: Timelines) -> tuple[Columns, list[str]]:
    """Give unnamed threads perf's name for them, so that every comm is an index."""
    names = {name: number for number, name in enumerate(lines.names)}
    unnamed = np.unique(columns.stack_comm[columns.stack_comm < 0])
    numbers = np.zeros(len(unnamed), np.int32)
    for index, number in enumerate(unnamed.tolist()):
        numbers[index] = names.setdefault(unknown_comm(-2 - number), len(names))

    def renumbered(comm: I32) -> I32:
        if not len(unnamed):
            return comm
        place = np.minimum(np.searchsorted(unnamed, comm), len(unnamed) - 1)
        return np.where(comm < 0, numbers[place], comm).astype(np.int32)

    shown = [name.decode("utf-8", "surrogateescape") for name in names]
    named = columns._replace(
        comm=renumbered(columns.comm), stack_comm=renumbered(columns.stack_comm)
    )
    return named, shown


def _events(
    columns: Columns, attrs: list[Attr], features: Features
) -> tuple[Columns, tuple[Event, ...]]:
    """Events that were requested or sampled, without the dummy that perf adds."""
    sampled = set(np.unique(columns.event).tolist())
    kept = [n for n, attr in enumerate(attrs) if n in sampled or not attr.is_dummy]
    names = features.names_of([attr.ids for attr in attrs])
    events = tuple(attrs[n].event(names[n]) for n in kept)
    if len(kept) == len(attrs):
        return columns, events
    moved = np.full(len(attrs), -1, np.int16)
    moved[kept] = np.arange(len(kept))
    return columns._replace(event=moved[columns.event]), events


def _with_build_ids(mapper: Mapper, features: Features) -> list[MappedFile]:
    known = {
        build_id.path: build_id.build_id for build_id in features.build_ids if not build_id.kernel
    }
    return [
        file if file.build_id else file._replace(build_id=known.get(file.path))
        for file in mapper.files
    ]


def _kernel(read: _Read) -> KernelFacts:
    """The kernel's text, from the map perf wrote for it, and symbols loaded meanwhile."""
    build_ids = {
        entry.path: entry.build_id for entry in read.side.features.build_ids if entry.kernel
    }
    facts = KernelFacts(ksymbols=sorted(read.side.ksymbols.values()))
    # The other kernel maps are modules.
    for row in read.maps[read.maps["kernel"]][:_MOST_MODULES].tolist():
        _, _, start, length, pgoff, at, part, size, _ = row
        file = read.mapped(part, at, size)
        kernel = next((name for name in _KERNEL_NAMES if file.path.startswith(name)), None)
        if kernel is not None:
            facts.text_symbol = file.path.removeprefix(kernel) or None
            facts.text_address = pgoff
            facts.end = start + length
            facts.build_id = file.build_id or build_ids.get(file.path) or build_ids.get(kernel)
    facts.build_id = facts.build_id or next(
        (build_ids[name] for name in _KERNEL_NAMES if name in build_ids), None
    )
    return facts
