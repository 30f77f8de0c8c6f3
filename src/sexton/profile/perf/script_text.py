r"""The text that ``perf script`` prints, plain or gzipped: every sample with its time and stack.

Read by the block: samples with call chains stand apart by an empty line, and what repeats in them
(the thread, the event, the chain) is looked up by its very bytes and understood once. Everything
else (samples of one line, other records between samples, names with newlines) goes line by line.

An excerpt, with ``--header``::

    # hostname : node-7
    # ========
    #
    perf 28412 [001] 16783.425353:   10309278 cpu-clock:
            ffffffff821e9fe6 do_syscall_64+0x46 ([kernel.kallsyms])
                       f8a1a __close+0x3a (/usr/lib/x86_64-linux-gnu/libc.so.6)

Quirks: see `script_lines`. The text is forgeable: a program that names its thread or its functions
after a whole sample has that sample counted; perf itself escapes nothing. perf.data is not.

>>> from io import BytesIO
>>> named = read(BytesIO(b'''perf 28412 [001] 16783.425353:   10309278 cpu-clock:
... \tffffffff821e9fe6 do_syscall_64+0x46 ([kernel.kallsyms])
... \t           f8a1a __close+0x3a (/usr/lib/libc.so.6)
...
... '''), "capture.txt")
>>> named.threads, named.events, named.names
((Thread(pid=-1, tid=28412, comm='perf'),), (Event(name='cpu-clock', hertz=97, period=None),), ('do_syscall_64', '__close'))
"""  # noqa: E501

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from sexton.errors import SourceMalformed
from sexton.model.profile import I32, UNKNOWN, Event, Facts, Thread
from sexton.model.text import size
from sexton.profile.perf.named import FrameTable, Named, StackTable, kind_of, text_of
from sexton.profile.perf.raw import LATEST_NS
from sexton.profile.perf.script_lines import (
    Header,
    Prologue,
    cgroup_of,
    frame_of,
    header_match,
    header_of,
    inline_frame_of,
    is_source_line,
    what_of,
    who_of,
)
from sexton.profile.perf.stream import BOUNDS, MOST_LINE, Bounds, pieces

#: What is remembered by its bytes, at most; forgotten all at once, and then learnt again.
_MOST_REMEMBERED = 64 << 20
_MOST_LINES = 1 << 20
_MOST_EVENTS = 1000
#: A block this long without an empty line is read by the line.
_MOST_BLOCK = 4 << 20
#: A comm's longest, and so the longest piece of one that a newline can tear off.
_TORN = 16
#: How far in the first sample must be.
_MOST_PROLOGUE = 64 << 20
_NOT_A_FRAME = -1
_NOT_A_CHAIN = -1
#: A record that is no sample (``--show-lost-events`` and its like).
_OTHER = -1
_LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)? +(?:lost +)?(\d{1,18})")


def read(stream: BinaryIO, path: str, bounds: Bounds = BOUNDS) -> Named:
    """Every sample of the text, in its order."""
    reader = _Reader(path)
    for piece in pieces(stream, reader.facts, bounds):
        reader.feed(piece)
    return reader.finish()


def looks_like(head: bytes) -> bool:
    """Is a sample among the first lines? `head` is unpacked."""
    return any(
        header_of(line) is not None for line in head.split(b"\n") if not line.startswith(b"#")
    )


class _Reader:
    def __init__(self, path: str) -> None:
        self.facts = Facts(path=path, format="perf script")
        self._prologue: Prologue | None = Prologue(self.facts)
        self._events = self._prologue.events if self._prologue else {}
        self._rest = b""
        self._seen = 0
        self._strange = 0
        self._torn = b""
        self._frames = FrameTable()
        self._stacks = StackTable(path)
        self._empty = self._stacks.id(array("i"))
        # By their bytes: lines of chains, whole chains, threads with their core, events.
        self._line_ids: dict[bytes, int] = {}
        self._chain_ids: dict[bytes, int] = {b"": self._empty}
        self._remembered = 0
        self._who_ids: dict[bytes, int] = {}
        self._what_ids: dict[bytes, tuple[int, int]] = {}
        # By their meaning.
        self._threads: dict[Thread, int] = {}
        self._tasks: dict[str, int] = {}
        self._whos: list[tuple[int, int, int]] = []  # thread, task, cpu
        self._whats: dict[tuple[str, str | None], int] = {}
        self._periods: dict[str, set[int]] = {}
        # One of each per sample.
        self._time = array("q")
        self._who = array("i")
        self._what = array("i")
        self._stack = array("i")
        # The sample that is being read by the line.
        self._open: Header | None = None
        self._chain: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        data = self._rest + piece if self._rest else piece
        cut = data.rfind(b"\n\n")
        while cut > 0 and data[cut - 1] == 10:
            cut -= 1  # of many newlines the first two part the blocks, wherever the pieces end
        if cut >= 0:
            self._blocks(data[:cut].split(b"\n\n"))
            self._rest = data[cut + 2 :]
            return
        self._rest = data
        if len(data) > _MOST_BLOCK:
            cut = data.rfind(b"\n")
            if len(data) - cut > MOST_LINE:
                raise SourceMalformed(
                    self.facts.path, 0, f"has a line longer than {size(MOST_LINE)}"
                )
            self._lines(data[:cut].split(b"\n"))
            self._rest = data[cut + 1 :]

    def finish(self) -> Named:
        if self._rest:
            if not self._rest.endswith(b"\n"):
                self.facts.problems.append("the text ends within a line: it may have been cut")
            self._blocks([self._rest.removesuffix(b"\n")])
        self._close()
        return self._named()

    def _blocks(self, blocks: Iterable[bytes]) -> None:
        """The fast way: a known chain under a known first line, many times over."""
        match, chain_ids, who_ids, what_ids = (
            header_match,
            self._chain_ids,
            self._who_ids,
            self._what_ids,
        )
        time, who, what, stack = self._time, self._who, self._what, self._stack
        for block in blocks:
            head, _, chain = block.partition(b"\n")
            found = match(head.lstrip(b" "))
            if found is None or self._prologue is not None or self._torn or self._open is not None:
                self._slow(block)
                continue
            known = chain_ids.get(chain)
            if known is None:
                known = self._learn_chain(chain)
                if known == _NOT_A_CHAIN:
                    self._slow(block)
                    continue
            whose, whole, part, which = found.groups()
            kind = what_ids.get(which) or self._learn_what(which)
            if kind[0] == _OTHER:
                continue
            person = who_ids.get(whose)
            who.append(self._learn_who(whose) if person is None else person)
            what.append(kind[0])
            stack.append(known or kind[1])
            try:  # `time_of`, without the cost of a call
                time.append(int(whole + part) * (1000 if len(part) == 6 else 1))
            except OverflowError:
                raise self._beyond_time() from None

    def _slow(self, block: bytes) -> None:
        self._lines(block.split(b"\n"))
        self._close()
        if self._torn:
            self._tear(self._torn + b"\n")  # an empty line within a name: "a\n\nb"

    def _lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if self._prologue is not None:
            self._seen += len(line) + 1
            if self._seen > _MOST_PROLOGUE:
                raise SourceMalformed(self.facts.path, 0, "no sample of perf script in it")
        header = header_of(line)
        if header is not None:
            self._close()
            whole = header_of(self._torn + line) if self._torn else None
            if whole is None:
                self._forget()
            self._open = whole or header
            self._torn = b""
            self._prologue = None
        elif self._prologue is not None and line.startswith(b"#"):
            self._prologue.comment(line)
        elif self._line_id(line) != _NOT_A_FRAME:
            if self._open is not None:
                self._chain.append(line)
            self._forget()
        elif is_source_line(line):
            self._forget()
        elif self._torn or line.strip():
            # Without call chains a comm is set to the right, by spaces before it.
            self._tear(self._torn + (line if self._torn else line.lstrip(b" ")) + b"\n")

    def _tear(self, text: bytes) -> None:
        """Keep what may be the beginning of a name with a newline in it."""
        self._torn = text
        if len(text) > _TORN:
            self._forget()

    def _forget(self) -> None:
        self._strange += bool(self._torn)
        self._torn = b""

    def _close(self) -> None:
        """Count the sample that was read by the line."""
        header, chain = self._open, self._chain
        if header is None:
            return
        self._open, self._chain = None, []
        stack = self._learn_chain(b"\n".join(chain)) if chain else self._empty
        kind = self._what_ids.get(header.what) or self._learn_what(header.what)
        if kind[0] == _OTHER:
            return
        person = self._who_ids.get(header.who)
        self._who.append(self._learn_who(header.who) if person is None else person)
        self._what.append(kind[0])
        self._stack.append(stack or kind[1])
        try:
            self._time.append(header.time_ns)
        except OverflowError:
            raise self._beyond_time() from None

    def _learn_chain(self, chain: bytes) -> int:
        """A chain's stack; `_NOT_A_CHAIN` where a line is another sample's first."""
        lines = chain.split(b"\n")
        ids = list(map(self._line_ids.get, lines))
        if None in ids:
            for at, line in enumerate(lines):
                if ids[at] is None:
                    frame = self._line_id(line)
                    if frame == _NOT_A_FRAME and line not in self._line_ids:
                        return _NOT_A_CHAIN
                    ids[at] = frame
        known = [frame for frame in ids if frame is not None and frame != _NOT_A_FRAME]
        stack = self._stacks.id(array("i", known))
        self._remembered += len(chain) + 100
        if self._remembered > _MOST_REMEMBERED:
            self._chain_ids.clear()
            self._chain_ids[b""] = self._empty
            self._remembered = 0
        self._chain_ids[chain] = stack
        return stack

    def _line_id(self, line: bytes) -> int:
        found = self._line_ids.get(line)
        if found is not None:
            return found
        if len(line) > MOST_LINE:
            raise SourceMalformed(self.facts.path, 0, f"has a line longer than {size(MOST_LINE)}")
        frame = None if header_match(line.lstrip(b" ")) else frame_of(line)
        if frame is None and (not is_source_line(line) or header_of(line) is not None):
            return _NOT_A_FRAME
        if len(self._line_ids) >= _MOST_LINES:
            self._line_ids.clear()
        number = _NOT_A_FRAME  # a source line, remembered as such
        if frame is not None:
            number = self._frame_id(frame.name, frame.module, frame.address)
        self._line_ids[line] = number
        return number

    def _frame_id(self, name: bytes, module: bytes, address: int) -> int:
        where = text_of(module)
        return self._frames.id(text_of(name) or UNKNOWN, where, kind_of(where, address))

    def _learn_who(self, text: bytes) -> int:
        comm, pid, tid, cpu = who_of(text)
        name = text_of(comm)
        thread = self._threads.setdefault(Thread(pid, tid, name), len(self._threads))
        task = self._tasks.setdefault(name, len(self._tasks))
        self._whos.append((thread, task, cpu))
        self._who_ids[text] = len(self._whos) - 1
        return len(self._whos) - 1

    def _learn_what(self, text: bytes) -> tuple[int, int]:
        """The event (with its cgroup), and the stack that is the function in the same line."""
        if b"PERF_RECORD_" in text:
            lost = _LOST.search(text)
            if lost is not None:
                self.facts.lost = (self.facts.lost or 0) + int(lost[1])
            return _OTHER, 0
        event, period, rest = what_of(text)
        cgroup = cgroup_of(rest)
        frame = inline_frame_of(rest) if cgroup is None and rest else None
        number = self._whats.setdefault((event, cgroup), len(self._whats))
        periods = self._periods.setdefault(event, set())
        if len(self._periods) > _MOST_EVENTS:
            raise SourceMalformed(self.facts.path, 0, f"has more than {_MOST_EVENTS:,} events")
        if period is not None and len(periods) < 2:
            periods.add(period)
        stack = self._empty
        if frame is not None:
            stack = self._stacks.id(array("i", [self._frame_id(*frame)]))
        if len(self._what_ids) >= _MOST_LINES:
            self._what_ids.clear()
        self._what_ids[text] = number, stack
        return number, stack

    def _beyond_time(self) -> SourceMalformed:
        return SourceMalformed(self.facts.path, 0, "a sample's time is too large to be one")

    def _named(self) -> Named:
        if not self._time:
            raise SourceMalformed(self.facts.path, 0, "no sample of perf script in it")
        facts, time_ns = self.facts, np.frombuffer(self._time, np.int64)
        if int(time_ns.max()) > LATEST_NS:
            raise self._beyond_time()
        facts.problems.extend(self._stacks.problems())
        if self._strange:
            facts.problems.append(f"{self._strange:,} lines were no part of a sample: left out")
        who = np.frombuffer(self._who, np.int32)
        thread, task, cpu = np.array(self._whos, np.int32).T
        events = {name: at for at, name in enumerate(dict.fromkeys(e for e, _ in self._whats))}
        groups = [group for _, group in self._whats if group is not None]
        cgroups = {group: at for at, group in enumerate(dict.fromkeys(groups))}
        what = np.frombuffer(self._what, np.int32)
        event_of = np.array([events[event] for event, _ in self._whats], np.int16)
        cgroup_id = [-1 if group is None else cgroups[group] for _, group in self._whats]
        stack, stacks = self._stacks.by_task(task[who], np.frombuffer(self._stack, np.int32))
        names, modules, kinds = self._frames.columns()
        return Named(
            time_ns=time_ns,
            cpu=_column(cpu, who),
            thread=_column(thread, who),
            cgroup=_column(np.array(cgroup_id, np.int32), what),
            event=event_of[what],
            stack=stack,
            weight=None,
            threads=tuple(self._threads),
            cgroups=tuple(cgroups),
            events=tuple(self._event(name) for name in events),
            tasks=tuple(self._tasks),
            stack_task=stacks.task,
            stack_start=stacks.start,
            stack_frame=stacks.frame,
            names=names,
            modules=modules,
            kinds=kinds,
            facts=facts,
        )

    def _event(self, name: str) -> Event:
        """As the comments have it, else as far as its period tells."""
        told = self._events.get(name)
        if told is not None:
            return told
        periods = self._periods[name]
        period = next(iter(periods)) if len(periods) == 1 else None
        if period and period >= 1000 and name.partition(":")[0] in ("cpu-clock", "task-clock"):
            return Event(name, hertz=round(1e9 / period))
        return Event(name or "samples", period=period)


def _column(values: I32, chosen: I32) -> I32:
    return values[chosen]
