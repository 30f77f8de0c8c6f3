r"""The text of ``perf script``, plain or gzipped: every sample with its time and stack.

perf(1) script, tools/perf/builtin-script.c (`perf_sample__fprintf_start`, `process_event`) and
tools/perf/util/evsel_fprintf.c. An excerpt, with ``--header``::

    # hostname : node-7
    # ========
    #
    perf 28412 [001] 16783.425353:   10309278 cpu-clock:
            ffffffff821e9fe6 do_syscall_64+0x46 ([kernel.kallsyms])
                       f8a1a __close+0x3a (/usr/lib/x86_64-linux-gnu/libc.so.6)

Variants of the first line of a sample::

    swapper     0 [000] 16783.432569:   10309278 cpu-clock:
    perf 28412/28412 [001] 16783.425353:
    ksoftirqd/1    25 [001]  5296.196540123: cycles:u:
                perf 28412 [001] 16783.425353: cpu-clock:  ffffffff821e9fe6 do_syscall_64+0x46 ([k])
    kubelet  2113 [005]  5296.196540:   1 cpu-clock:  /kubepods/besteffort/pod4/5d1

It is read by block: samples with call chains are separated by empty lines, and repeated parts (the
thread, the event, the chain) are looked up by their bytes and parsed once. Everything else (samples
of one line, other records, names with newlines) is parsed line by line.

Quirks: a comm may contain anything but NUL, including spaces, brackets and newlines, up to 15
bytes, so it is found from the right: the *last* "number, time, colon" that leaves it at most 16
bytes. One number before the time is the thread id (`-F tid`, the default), two are process and
thread. The path of a module may itself end in " (deleted)". The text can be forged: a program that
names its thread or its functions like a whole sample has that sample counted, because perf escapes
nothing. perf.data cannot be forged in this way.

>>> header = header_of(b"Web Content  99/123 [001]  5.000001:  250 cycles:u: ")
>>> who_of(header.who)
Who(comm=b'Web Content', pid=99, tid=123, cpu=1)
>>> header.time_ns, what_of(header.what)
(5000001000, What(event='cycles:u', period=250, rest=b''))
>>> frame_of(b"\t    7f92 std::f(int, char) const+0x1c (/tmp/a (deleted))")
Frame(name=b'std::f(int, char) const', module=b'/tmp/a (deleted)', address=32658)
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

import numpy as np

from sexton.errors import SourceMalformed
from sexton.model.profile import UNKNOWN, Clock, Event, Facts, Thread
from sexton.model.text import count, size
from sexton.profile.perf.named_samples import FrameTable, NamedSamples, StackTable, kind_of, text_of
from sexton.profile.perf.raw import LATEST_NS
from sexton.profile.perf.stream import BOUNDS, MOST_LINE, Bounds, pieces

#: `who` is everything before the time. Greedy: a comm that looks like a whole header stays a comm.
#: Every repetition is bounded, so that a line of a million spaces costs no more than a short one;
#: leading spaces must be stripped first.
_HEADER = (
    rb"((?:%b {1,16})?-?\d{1,10}(?:/-?\d{1,10})? {1,16}(?:\[-?\d{1,6}\] {1,16})?)"
    rb"(\d{1,10})\.(\d{9}|\d{6}): ?(.*)$"
)
header_match = re.compile(_HEADER % rb".{0,16}").match
#: Names from /proc/PID/status have escaped newlines and backslashes, and are longer.
_long_match = re.compile(_HEADER % rb".{17,160}?").match
#: A name with a newline in it.
_broken_match = re.compile(_HEADER % rb"(?s:.{0,16})").match
_who_match = re.compile(rb"(?s)(.* )?(-?\d+)(?:/(-?\d+))? +(?:\[(-?\d+)\] +)?$").match
_WHAT = re.compile(rb" *(?:(\d{1,19}) +)?(\S+):(?: (.*)|$)")
_FRAME = re.compile(rb"\s+([0-9a-f]{1,16}) (.*)$")
_INLINE = re.compile(rb"( *)([0-9a-f]{1,16}) (.*)$")
_OFFSET = re.compile(rb"\+0x[0-9a-f]+$")
_CGROUP = re.compile(rb" *(/\S*) *$")
_NS = 1_000_000_000


class Header(NamedTuple):
    """The first line of a sample, split but not parsed (its parts repeat)."""

    who: bytes
    time_ns: int
    what: bytes


class Who(NamedTuple):
    comm: bytes
    pid: int
    tid: int
    cpu: int


class What(NamedTuple):
    event: str
    period: int | None
    rest: bytes


class Frame(NamedTuple):
    name: bytes
    module: bytes
    address: int


def header_of(line: bytes) -> Header | None:
    """The first line of a sample (or lines, if the name contains newlines), else `None`."""
    line = line.lstrip(b" ")
    found = header_match(line) or _long_match(line) or _broken_match(line)
    return None if found is None else Header(found[1], time_of(found[2], found[3]), found[4])


def time_of(whole: bytes, part: bytes) -> int:
    """Seconds and fraction (6 or 9 digits) in nanoseconds."""
    return int(whole + part) * (1000 if len(part) == 6 else 1)


def who_of(text: bytes) -> Who:
    """The thread. The process is -1 if only one number is given, except for the idle task."""
    found = _who_match(text)
    if found is None:  # cannot happen: `_HEADER` matched it
        return Who(text, -1, -1, -1)
    comm, first, second, cpu = found.groups()
    tid = int(second or first)
    pid = int(first) if second else (0 if tid == 0 else -1)
    return Who((comm or b"").rstrip(b" "), pid, tid, int(cpu) if cpu else -1)


def what_of(text: bytes) -> What:
    """The event, its period, and the rest of the first line."""
    found = _WHAT.match(text)
    if found is None:
        return What("", None, text.strip())
    period, event, rest = found.groups()
    return What(text_of(event), int(period) if period else None, (rest or b"").strip(b" "))


def cgroup_of(rest: bytes) -> str | None:
    """The cgroup of a sample (`-F +cgroup`), from the text after its event."""
    found = _CGROUP.match(rest)
    return None if found is None else text_of(found[1])


def frame_of(line: bytes) -> Frame | None:
    """A line of a call chain; `None` for a source line (`-F +srcline`) and anything else."""
    found = _FRAME.match(line)
    # A source line is indented by two spaces, an address by a tab or more spaces.
    if found is None or not (line.startswith((b"\t", b"   ")) or line.endswith(b")")):
        return None
    return _named(found[1], found[2])


def is_source_line(line: bytes) -> bool:
    """Is it a source position (`-F +srcline`), indented by two spaces?"""
    return line.startswith(b"  ") and line[2:3] != b" "


def inline_frame_of(rest: bytes) -> Frame | None:
    """The function in the first line of a sample without a call chain."""
    found = _INLINE.match(rest)
    if found is None:
        return None
    frame = _named(found[2], found[3])
    # Tracepoint fields are at the same position; an address is long, or followed by a module.
    return frame if frame.module or len(found[2]) >= 6 else None


def _named(address: bytes, text: bytes) -> Frame:
    name, module = text.rstrip(b" "), b""
    if name.endswith(b")"):
        until = len(name) - 11 if name.endswith(b" (deleted))") else len(name)
        at = name.rfind(b" (", 0, until)
        inside = name[at + 2 : -1]
        kept = inside[:-10] if inside.endswith(b" (deleted)") else inside
        # Not the end of a C++ name such as "f(int, char (*)(int))".
        if at >= 0 and b"(" not in kept and b")" not in kept:
            name, module = name[:at], inside
    if b"+0x" in name:
        name = _OFFSET.sub(b"", name)
    return Frame(name, module, int(address, 16))


class Prologue:
    """Parses the comments before the first sample (`perf script --header`) into facts."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.events: dict[str, Event] = {}

    def comment(self, line: bytes) -> None:
        """Parse one line; unknown keys are skipped."""
        facts = self._facts
        key, _, value = text_of(line[1:]).partition(":")
        key, value = key.strip(), value.strip()
        if key == "hostname":
            facts.host = value
        elif key == "os release":
            facts.release = value
        elif key == "nrcpus online" and value.isdecimal() and len(value) < 7:
            facts.cores = int(value)
        elif key == "cmdline":
            facts.command = value
        elif key == "event":
            self._event(value)
        elif key == "clockid":
            facts.clock = Clock(_clock_name(value.partition(" ")[0]), facts.clock.wall_minus_ns)
        elif key == "reference time":
            self._reference(value)

    def _event(self, value: str) -> None:
        name = re.match(r"name = (\S+?),", value)
        rate = re.search(r"\{ sample_period, sample_freq \} = (\d{1,18}),", value)
        if name is None or rate is None:
            return
        by_rate = ", freq = 1" in value
        number = int(rate[1])
        event = Event(name[1], number if by_rate else None, None if by_rate else number)
        self.events.setdefault(name[1], event)

    def _reference(self, value: str) -> None:
        """`2026-11-15 11:43:31.557993 = 1794743011.557993 (TOD) = 16663.572723795 (monotonic)`"""
        found = re.search(
            r"= (\d{1,10})\.(\d{6}) \(TOD\) = (\d{1,10})\.(\d{9}) \((\w{1,32})\)", value
        )
        if found is None:
            return
        wall = int(found[1]) * _NS + int(found[2]) * 1000
        clock = int(found[3]) * _NS + int(found[4])
        self._facts.clock = Clock(_clock_name(found[5]), wall - clock)


def _clock_name(name: str) -> str:
    return name.lower().removeprefix("clock_")


#: Limit on the bytes of cached chains; the cache is cleared when it is reached.
_MOST_CACHED = 64 << 20
_MOST_LINES = 1 << 20
_MOST_EVENTS = 1000
#: A longer block without an empty line is parsed line by line.
_MOST_BLOCK = 4 << 20
#: The longest comm, and so the longest part of one before a newline.
_TORN = 16
#: The first sample must be within this many bytes.
_MOST_PROLOGUE = 64 << 20
_NOT_A_FRAME = -1
_NOT_A_CHAIN = -1
#: A record other than a sample (``--show-lost-events`` and similar).
_OTHER = -1
_LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)? +(?:lost +)?(\d{1,18})")


def read(stream: BinaryIO, path: str, bounds: Bounds = BOUNDS) -> NamedSamples:
    """Every sample of the text, in file order."""
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
        prologue = Prologue(self.facts)
        self._prologue: Prologue | None = prologue  # until the first sample
        self._events = prologue.events
        self._rest = b""
        self._seen = 0
        self._skipped = 0
        self._torn = b""
        self._frames = FrameTable()
        self._stacks = StackTable(path)
        self._empty = self._stacks.id(array("i"))
        # Caches by bytes: lines of chains, whole chains, threads with their core, events.
        self._line_ids: dict[bytes, int] = {}
        self._chain_ids: dict[bytes, int] = {b"": self._empty}
        self._cached_bytes = 0
        self._who_ids: dict[bytes, int] = {}
        self._what_ids: dict[bytes, tuple[int, int]] = {}
        # By parsed value.
        self._threads: dict[Thread, int] = {}
        self._tasks: dict[str, int] = {}
        self._whos: list[tuple[int, int, int]] = []  # thread, task, cpu
        self._whats: dict[tuple[str, str | None], int] = {}
        self._periods: dict[str, set[int]] = {}
        # Columns, one value per sample.
        self._time = array("q")
        self._who = array("i")
        self._what = array("i")
        self._stack = array("i")
        # The sample that is being parsed line by line.
        self._open: Header | None = None
        self._chain: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        data = self._rest + piece if self._rest else piece
        cut = data.rfind(b"\n\n")
        while cut > 0 and data[cut - 1] == 10:
            cut -= 1  # the first two of many newlines separate blocks, wherever pieces end
        if cut >= 0:
            self._blocks(data[:cut].split(b"\n\n"))
            self._rest = data[cut + 2 :]
            return
        self._rest = data
        if len(data) > _MOST_BLOCK:
            cut = data.rfind(b"\n")
            if len(data) - cut > MOST_LINE:
                raise SourceMalformed(self.facts.path, 0, f"line longer than {size(MOST_LINE)}")
            for line in data[:cut].split(b"\n"):
                self._line(line)
            self._rest = data[cut + 1 :]

    def finish(self) -> NamedSamples:
        if self._rest:
            if not self._rest.endswith(b"\n"):
                self.facts.problems.append("the text ends in mid-line: it may be truncated")
            self._blocks([self._rest.removesuffix(b"\n")])
        self._close()
        return self._named()

    def _blocks(self, blocks: Iterable[bytes]) -> None:
        """The fast path: first lines and chains that are in the caches."""
        match, chain_ids = header_match, self._chain_ids
        who_ids, what_ids = self._who_ids, self._what_ids
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
        for line in block.split(b"\n"):
            self._line(line)
        self._close()
        if self._torn:
            self._tear(self._torn + b"\n")  # an empty line within a name: "a\n\nb"

    def _line(self, line: bytes) -> None:
        if self._prologue is not None:
            self._seen += len(line) + 1
            if self._seen > _MOST_PROLOGUE:
                raise SourceMalformed(self.facts.path, 0, "no perf script samples found")
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
            # Without call chains a comm is right-aligned with spaces.
            self._tear(self._torn + (line if self._torn else line.lstrip(b" ")) + b"\n")

    def _tear(self, text: bytes) -> None:
        """Keep text that may be the start of a name with a newline in it."""
        self._torn = text
        if len(text) > _TORN:
            self._forget()

    def _forget(self) -> None:
        self._skipped += bool(self._torn)
        self._torn = b""

    def _close(self) -> None:
        """Add the sample that was parsed line by line."""
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
        """The stack of a chain; `_NOT_A_CHAIN` if a line is the first of another sample."""
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
        self._cached_bytes += len(chain) + 100
        if self._cached_bytes > _MOST_CACHED:
            self._chain_ids.clear()
            self._chain_ids[b""] = self._empty
            self._cached_bytes = 0
        self._chain_ids[chain] = stack
        return stack

    def _line_id(self, line: bytes) -> int:
        found = self._line_ids.get(line)
        if found is not None:
            return found
        if len(line) > MOST_LINE:
            raise SourceMalformed(self.facts.path, 0, f"line longer than {size(MOST_LINE)}")
        frame = None if header_match(line.lstrip(b" ")) else frame_of(line)
        if frame is None and (not is_source_line(line) or header_of(line) is not None):
            return _NOT_A_FRAME
        if len(self._line_ids) >= _MOST_LINES:
            self._line_ids.clear()
        number = _NOT_A_FRAME  # a source line
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
        """The event (with its cgroup), and the stack of the function in the same line."""
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
            raise SourceMalformed(self.facts.path, 0, f"more than {_MOST_EVENTS:,} events")
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
        return SourceMalformed(self.facts.path, 0, "sample timestamp out of range")

    def _named(self) -> NamedSamples:
        if not self._time:
            raise SourceMalformed(self.facts.path, 0, "no perf script samples found")
        facts, time_ns = self.facts, np.frombuffer(self._time, np.int64)
        if int(time_ns.max()) > LATEST_NS:
            raise self._beyond_time()
        facts.problems.extend(self._stacks.problems())
        if self._skipped:
            facts.problems.append(f"{count(self._skipped, 'line')} outside any sample: skipped")
        who = np.frombuffer(self._who, np.int32)
        thread, task, cpu = np.array(self._whos, np.int32).T
        events = {name: at for at, name in enumerate(dict.fromkeys(e for e, _ in self._whats))}
        groups = [group for _, group in self._whats if group is not None]
        cgroups = {group: at for at, group in enumerate(dict.fromkeys(groups))}
        what = np.frombuffer(self._what, np.int32)
        event_of = np.array([events[event] for event, _ in self._whats], np.int16)
        cgroup_id = [-1 if group is None else cgroups[group] for _, group in self._whats]
        stack, stacks = self._stacks.by_task(task[who], np.frombuffer(self._stack, np.int32))
        return NamedSamples(
            time_ns=time_ns,
            cpu=cpu[who],
            thread=thread[who],
            cgroup=np.array(cgroup_id, np.int32)[what],
            event=event_of[what],
            stack=stack,
            weight=None,
            threads=tuple(self._threads),
            cgroups=tuple(cgroups),
            events=tuple(self._event(name) for name in events),
            tasks=tuple(self._tasks),
            stacks=stacks,
            frames=self._frames.frames(),
            facts=facts,
        )

    def _event(self, name: str) -> Event:
        """The event from the comments, else inferred from its period."""
        described = self._events.get(name)
        if described is not None:
            return described
        periods = self._periods[name]
        period = next(iter(periods)) if len(periods) == 1 else None
        if period and period >= 1000 and name.partition(":")[0] in ("cpu-clock", "task-clock"):
            return Event(name, hertz=round(1e9 / period))
        return Event(name or "samples", period=period)
