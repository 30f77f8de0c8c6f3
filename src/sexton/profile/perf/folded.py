r"""Folded stacks, plain or gzipped, as ``stackcollapse-*.pl`` writes and ``flamegraph.pl`` reads.

One line per stack, the task first, outermost to innermost, and its count::

    ksoftirqd/12;ret_from_fork;kthread;run_ksoftirqd;net_rx_action 42
    java;start_thread;Interpreter_[j];vfs_read_[k] 7

Quirks: names contain spaces, so the count follows the last one. It may have decimals (some writers
give milliseconds); they are rounded. The annotations of ``stackcollapse-perf.pl --all`` are not
part of the name: ``_[k]`` is kernel, ``_[j]`` and ``_[i]`` (JIT, inlined) are user. There are no
timestamps, cores or threads. If a writer puts no task first, the outermost function is shown as the
task.

>>> from io import BytesIO
>>> named = read(BytesIO(b"java;start_thread;vfs_read_[k] 7\n"), "java.folded")
>>> named.tasks, named.frames.names, named.stacks.frame.tolist(), named.weight.tolist()
(('java',), ('start_thread', 'vfs_read'), [1, 0], [7])
"""

from __future__ import annotations

import re
from array import array
from typing import BinaryIO

import numpy as np

from sexton.errors import SourceMalformed
from sexton.model.profile import UNKNOWN, Event, Facts, Kind, Thread
from sexton.model.text import count
from sexton.profile.perf.named_samples import (
    MOST_FRAMES,
    MOST_WEIGHT,
    FrameTable,
    NamedSamples,
    StackTable,
    text_of,
)
from sexton.profile.perf.stream import BOUNDS, Bounds, lines

_COUNT = re.compile(rb"\d{1,18}(?:\.\d{0,9})?$")
_KINDS = {b"_[k]": Kind.KERNEL, b"_[j]": Kind.USER, b"_[i]": Kind.USER}


def read(stream: BinaryIO, path: str, bounds: Bounds = BOUNDS) -> NamedSamples:
    """Every stack with its count."""
    reader = _Reader(path)
    for some in lines(stream, reader.facts, bounds):
        for line in some:
            reader.line(line)
    return reader.finish()


def looks_like(head: bytes, whole: bool) -> bool:
    """Do the first lines end in a count, and do some contain stacks? `head` is unpacked.

    `whole`: the head is the whole file, so its last line is complete.
    """
    found = head.split(b"\n")
    if not whole and len(found) > 1:
        found.pop()
    data = [line for line in found if line.strip() and not line.startswith(b"#")][:20]
    counts = [line.rpartition(b" ") for line in data]
    return (
        bool(counts)
        and all(stack and _COUNT.match(number.rstrip(b"\r")) for stack, _, number in counts)
        and any(b";" in stack for stack, _, _ in counts)
    )


class _Reader:
    def __init__(self, path: str) -> None:
        self.facts = Facts(path=path, format="folded")
        self._frames = FrameTable()
        self._frame_ids: dict[bytes, int] = {}
        self._stacks = StackTable(path)
        self._tasks: dict[str, int] = {}
        self._task = array("i")
        self._stack = array("i")
        self._weight = array("q")
        self._number = 0
        self._total = 0
        self._skipped = 0
        self._decimals = 0

    def line(self, line: bytes) -> None:
        self._number += 1
        # Some profilers (gProfiler) start with comments.
        if not line or line.isspace() or (line.startswith(b"#") and not self._task):
            return
        stack, _, count = line.rstrip(b"\r").rpartition(b" ")
        if not stack or _COUNT.match(count) is None:
            self._skipped += 1
            if not self._task and self._skipped > 100:
                raise SourceMalformed(self.facts.path, self._number, "no folded stacks found")
            return
        weight = int(count) if count.isdigit() else self._rounded(count)
        self._total += weight
        if self._total > MOST_WEIGHT:
            raise SourceMalformed(self.facts.path, self._number, "counts too large to add up")
        task, *frames = stack.split(b";", MOST_FRAMES + 1)
        if len(frames) > MOST_FRAMES:
            # As in all formats, the innermost frames are kept.
            frames = stack.rsplit(b";", MOST_FRAMES)[1:]
            self._stacks.cut += 1
        ids = list(map(self._frame_ids.get, frames))
        if None in ids:
            ids = [self._frame_id(frame) for frame in frames]
        self._stack.append(self._stacks.id(array("i", reversed(ids))))  # type: ignore[arg-type]
        self._task.append(self._tasks.setdefault(text_of(task) or UNKNOWN, len(self._tasks)))
        self._weight.append(weight)

    def _rounded(self, count: bytes) -> int:
        self._decimals += 1
        return int(float(count) + 0.5)

    def _frame_id(self, frame: bytes) -> int:
        found = self._frame_ids.get(frame)
        if found is None:
            kind = _KINDS.get(frame[-4:], Kind.UNTOLD)
            name = frame if kind == Kind.UNTOLD else frame[:-4]
            found = self._frames.id(text_of(name) or UNKNOWN, "", kind)
            self._frame_ids[frame] = found
        return found

    def finish(self) -> NamedSamples:
        facts = self.facts
        if not self._task:
            raise SourceMalformed(facts.path, 0, "no folded stacks found")
        facts.problems.extend(self._stacks.problems())
        if self._skipped:
            facts.problems.append(f"{count(self._skipped, 'line')} without a folded stack: skipped")
        if self._decimals:
            facts.problems.append(f"{count(self._decimals, 'count')} with decimals: rounded")
        task = np.frombuffer(self._task, np.int32)
        stack, stacks = self._stacks.by_task(task, np.frombuffer(self._stack, np.int32))
        return NamedSamples(
            time_ns=np.zeros(len(task), np.int64),
            cpu=np.full(len(task), -1, np.int32),
            thread=task,
            cgroup=np.full(len(task), -1, np.int32),
            event=np.zeros(len(task), np.int16),
            stack=stack,
            weight=np.frombuffer(self._weight, np.int64),
            threads=tuple(Thread(-1, -1, name) for name in self._tasks),
            cgroups=(),
            events=(Event("samples"),),
            tasks=tuple(self._tasks),
            stacks=stacks,
            frames=self._frames.frames(),
            facts=facts,
            timed=False,
        )
