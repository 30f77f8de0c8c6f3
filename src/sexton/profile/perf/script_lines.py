r"""The lines of perf script text, one at a time: what each says, and nothing about their order.

perf(1) script, tools/perf/builtin-script.c (`perf_sample__fprintf_start`, `process_event`) and
tools/perf/util/evsel_fprintf.c. A sample's first line, in the variants people have::

    swapper     0 [000] 16783.432569:   10309278 cpu-clock:
    perf 28412/28412 [001] 16783.425353:
    ksoftirqd/1    25 [001]  5296.196540123: cycles:u:
                perf 28412 [001] 16783.425353: cpu-clock:  ffffffff821e9fe6 do_syscall_64+0x46 ([k])
    kubelet  2113 [005]  5296.196540:   1 cpu-clock:  /kubepods/besteffort/pod4/5d1

Quirks: a comm holds anything but NUL, spaces and brackets and newlines included, up to 15 bytes, so
it is found from its right: the *last* "number, time, colon" that leaves it at most 16 bytes. One
number before the time is the thread's id (`-F tid`, the default), two are process and thread. A
module's path may itself end in " (deleted)".

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
from typing import NamedTuple

from sexton.model.profile import Clock, Event, Facts
from sexton.profile.perf.named import text_of

#: `who` is everything before the time. Greedy: a comm that looks like a whole header stays a comm.
#: Every repetition is bounded, so that a line of a million spaces costs no more than a short one;
#: spaces before a comm must have been stripped.
_HEADER = (
    rb"((?:%b {1,16})?-?\d{1,10}(?:/-?\d{1,10})? {1,16}(?:\[-?\d{1,6}\] {1,16})?)"
    rb"(\d{1,10})\.(\d{9}|\d{6}): ?(.*)$"
)
header_match = re.compile(_HEADER % rb".{0,16}").match
#: Names perf took from /proc/PID/status have newlines and backslashes escaped there: longer.
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
    """A sample's first line, its parts still to be read (they repeat: read them once)."""

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
    """A sample's first line (or lines, where the name is broken), `None` for any other."""
    line = line.lstrip(b" ")
    found = header_match(line) or _long_match(line) or _broken_match(line)
    return None if found is None else Header(found[1], time_of(found[2], found[3]), found[4])


def time_of(whole: bytes, part: bytes) -> int:
    """Seconds and their fraction (6 or 9 digits) in nanoseconds."""
    return int(whole + part) * (1000 if len(part) == 6 else 1)


def who_of(text: bytes) -> Who:
    """The thread. Its process is -1 where only one number is given, but for the idle task's."""
    found = _who_match(text)
    if found is None:  # `text` is what `_HEADER` matched, so this cannot be
        return Who(text, -1, -1, -1)
    comm, first, second, cpu = found.groups()
    tid = int(second or first)
    pid = int(first) if second else (0 if tid == 0 else -1)
    return Who((comm or b"").rstrip(b" "), pid, tid, int(cpu) if cpu else -1)


def what_of(text: bytes) -> What:
    """The event, its period, and whatever else stands in a sample's first line."""
    found = _WHAT.match(text)
    if found is None:
        return What("", None, text.strip())
    period, event, rest = found.groups()
    return What(text_of(event), int(period) if period else None, (rest or b"").strip(b" "))


def cgroup_of(rest: bytes) -> str | None:
    """The cgroup of a sample (`-F +cgroup`), given what follows its event."""
    found = _CGROUP.match(rest)
    return None if found is None else text_of(found[1])


def frame_of(line: bytes) -> Frame | None:
    """A line of a call chain; `None` for a source line (`-F +srcline`) and anything else."""
    found = _FRAME.match(line)
    # A source line is indented by two spaces, an address by a tab or as far as it is short.
    if found is None or not (line.startswith((b"\t", b"   ")) or line.endswith(b")")):
        return None
    return _named(found[1], found[2])


def is_source_line(line: bytes) -> bool:
    """Is it where a frame is in the sources (`-F +srcline`), indented by two spaces?"""
    return line.startswith(b"  ") and line[2:3] != b" "


def inline_frame_of(rest: bytes) -> Frame | None:
    """The function in a sample's first line, where there is no call chain."""
    found = _INLINE.match(rest)
    if found is None:
        return None
    frame = _named(found[2], found[3])
    # A tracepoint's fields stand at the same place; an address is long, or has a module behind it.
    return frame if frame.module or len(found[2]) >= 6 else None


def _named(address: bytes, text: bytes) -> Frame:
    name, module = text.rstrip(b" "), b""
    if name.endswith(b")"):
        until = len(name) - 11 if name.endswith(b" (deleted))") else len(name)
        at = name.rfind(b" (", 0, until)
        inside = name[at + 2 : -1]
        kept = inside[:-10] if inside.endswith(b" (deleted)") else inside
        # Not the end of a C++ name: "f(int, char (*)(int))".
        if at >= 0 and b"(" not in kept and b")" not in kept:
            name, module = name[:at], inside
    if b"+0x" in name:
        name = _OFFSET.sub(b"", name)
    return Frame(name, module, int(address, 16))


class Prologue:
    """The comments before the first sample (`perf script --header`), read into facts."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.events: dict[str, Event] = {}

    def comment(self, line: bytes) -> None:
        """One line; what is not known is skipped."""
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
