"""`/dev/kmsg`: the kernel log, as far back as its buffer goes.

Documented in the kernel's Documentation/ABI/testing/dev-kmsg. One `read` gives one record::

    3,1207,8123456789,-;ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). …
     SUBSYSTEM=pci
     DEVICE=+pci:0000:20:03.0

Quirks: a reader that was overtaken gets EPIPE and continues at the oldest record left; the sequence
numbers show how many were lost. Any process with write access can add records, but never with the
kernel's own facility: those are ignored (see `Recogniser`). With `kernel.dmesg_restrict=1` opening
needs CAP_SYSLOG. Container runtimes mask the file with another device: that is absent, not an empty
log.

The clock is the kernel's `local_clock`: microseconds since boot that stop in suspend and are not
adjusted by NTP. Wall time is computed with the current offset CLOCK_REALTIME − CLOCK_MONOTONIC, so
after a suspend older lines come out too late, and over weeks they drift by seconds.

There is one ring per kernel: a tree with the boot id of this boot (the host's, mounted in a
container) has ours. For any other tree a saved log is read: `/commands/kmsg`, `/commands/dmesg` or
`/commands/journal_k` of a collected archive, else `/var/log/kern.log` or `/var/log/dmesg`. The
first of these that exists is read; later readings give only what is new. On the node itself
`syslog(2)` replaces a ring that may not be read, then these files, then the journal's last hour.

`syslog(2)`, which `dmesg -S` uses, needs no device: a pod that is not privileged may not open the
node's `/dev/kmsg`, whatever it mounts, since its devices are limited. Each call gives the whole
buffer, as text::

    <6>[    0.004000] x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'
    <14>[   12.701177] a line that a process wrote

It has no sequence numbers. If the last line of one call is not in the next, at least one was lost.

Only lines in the catalogue become rows. `KernelLog` counts since the source was opened: lines seen,
the oldest one's time, records lost. Each reading is limited in bytes, lines and time; the rest
comes with the next one, or is lost and counted.

>>> seen = Seen()
>>> [seen.is_new(LogLine(0, None, "x", 0, seq)) for seq in (7, 8, 8, 11)], seen.lost
([True, True, False, True], 2)
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.host.host import ON_THE_NODE, Host
from sexton.host.reader import LiveFiles, exists, failure, text
from sexton.model.row import Row
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.journal import journal_text
from sexton.sources.kmsg.records import LogLine, parse_log, record
from sexton.sources.registry import Reading, source

PATH = "/dev/kmsg"
KEPT = (
    "/commands/kmsg",
    "/commands/dmesg",
    "/commands/journal_k",
    "/var/log/kern.log",
    "/var/log/dmesg",
)
#: The kernel's own bound on a record with its device lines.
_RECORD_BYTES = 8192
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_DEVICE = os.makedev(1, 11)
#: Per reading: bytes, lines, seconds, and events kept (the newest).
MOST_BYTES = 4 << 20
MOST_LINES = 200_000
MOST_SECONDS = 0.4
MOST_EVENTS = 20_000
#: How often the journal or the whole buffer is read, if it replaces the ring.
EVERY_S = 5.0
#: From the kernel's include/linux/syslog.h.
_READ_ALL, _SIZE_BUFFER = 3, 10


@source(
    PATH,
    rows=(KernelEvent, KernelLog),
    period_s=1.0,
    deadline_s=3.0,  # for a saved log of megabytes; the live ring has its own, shorter limit
    grant="sudo sexton diagnose  # needs CAP_SYSLOG, or kernel.dmesg_restrict=0",
)
class KernelLogReading(Reading):
    """The kernel log, live or saved."""

    def __init__(self, host: Host, trust_user_records: bool = False) -> None:
        super().__init__(host)
        self._recogniser = Recogniser(trust_user_records)
        self._log: Ring | Syslog | Kept | Journal | None = None
        self._lines = 0
        self._oldest_us: int | None = None

    def collect(self) -> Iterable[Row]:
        if self._log is None:
            self._log = _open(self._host)
        boot_s = boot_wall_s(self._host)
        events: deque[Row] = deque(maxlen=MOST_EVENTS)
        for line in self._log.new_lines():
            self._lines += 1
            if self._oldest_us is None:
                self._oldest_us = line.mono_us
            event = self._recogniser.event(line)
            if event is None:  # most lines
                continue
            if event.wall_s is None and event.mono_us is not None and boot_s is not None:
                event = replace(event, wall_s=boot_s + event.mono_us / 1e6)
            events.append(event)
        log = self._log
        return [*events, KernelLog(self._lines, self._oldest_us, log.seen.lost, log.path)]

    def close(self) -> None:
        if isinstance(self._log, Ring):
            self._log.close()


class Seen:
    """Which records were seen, by sequence number, and how many were lost."""

    def __init__(self) -> None:
        self.lost = 0
        self._next: int | None = None

    def is_new(self, line: LogLine) -> bool:
        """False for a record seen before; a gap before it is counted as lost."""
        if line.seq is None:
            return True
        if self._next is not None:
            if line.seq < self._next:
                return False
            self.lost += line.seq - self._next
        self._next = line.seq + 1
        return True


class Ring:
    """The live ring, read without blocking."""

    path = PATH

    def __init__(self) -> None:
        try:
            self._descriptor = os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise failure(PATH, error) from None
        status = os.fstat(self._descriptor)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _DEVICE:
            os.close(self._descriptor)
            raise SourceAbsent(PATH, "masked by another file (container runtimes do this)")
        self.seen = Seen()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def new_lines(self) -> Iterator[LogLine]:
        """Records not seen yet, up to the limits of one reading."""
        left = MOST_BYTES
        until = time.monotonic() + MOST_SECONDS
        for number in range(MOST_LINES):
            if left <= 0 or (number % 256 == 255 and time.monotonic() > until):
                return
            try:
                data = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overtaken: the next read is the oldest left
                    continue
                raise failure(PATH, error) from None
            if not data:
                return
            left -= len(data)
            line = record(data.decode("utf-8", "surrogateescape"))
            if line is not None and self.seen.is_new(line):
                yield line


class Syslog:
    """The live buffer through a system call, where the device may not be opened.

    Read rarely, since each call copies all of it.
    """

    path = "syslog(2)"

    def __init__(self) -> None:
        self.seen = Seen()
        self._bytes = min(_klogctl(_SIZE_BUFFER, None, 0), 4 * MOST_BYTES)
        self._before = ""
        self._pending: str | None = self._read()

    def new_lines(self) -> Iterator[LogLine]:
        """Lines not seen yet."""
        if self._pending is None and time.monotonic() - self._read_s >= EVERY_S:
            self._pending = self._read()
        content, self._pending = self._pending, None
        if not content:
            return iter(())
        fresh = _after(self._before, content)
        if self._before and fresh == content:
            self.seen.lost += 1
        self._before = content
        return parse_log(fresh[-MOST_BYTES:])

    def _read(self) -> str:
        self._read_s = time.monotonic()
        buffer = ctypes.create_string_buffer(self._bytes)
        length = _klogctl(_READ_ALL, buffer, self._bytes)
        return buffer.raw[:length].decode("utf-8", "surrogateescape")


def _klogctl(action: int, buffer: ctypes.Array[ctypes.c_char] | None, length: int) -> int:
    """`syslog(2)`, which libc calls klogctl."""
    found: int = ctypes.CDLL(None, use_errno=True).klogctl(action, buffer, length)
    if found < 0:
        code = ctypes.get_errno()
        raise failure(Syslog.path, OSError(code, os.strerror(code)))
    return found


class Kept:
    """A log saved as a file: the first one that exists, and only its new part."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.path = ""
        self.seen = Seen()
        self._before = ""

    def new_lines(self) -> Iterator[LogLine]:
        """Lines not seen yet; `SourceAbsent` if no log was saved."""
        content = self.find()
        fresh = _after(self._before, content)
        self._before = content
        lines = (line for line in parse_log(fresh[-MOST_BYTES:]) if self.seen.is_new(line))
        return iter(_last_boot(list(lines))) if "/log/" in self.path else lines

    def find(self) -> str:
        """The log's text; sets `path`."""
        refused: SourceError = SourceAbsent(PATH, "no kernel log in this tree", grant=ON_THE_NODE)
        for path in KEPT:
            try:
                content = text(self._host.files, path, 4 * MOST_BYTES)
            except SourceAbsent:
                continue
            except SourceError as error:
                refused = error
                continue
            self.path = path
            return content
        raise refused


class Journal:
    """The journal's copy of the last hour, for users who may read the journal but not the ring.

    Read rarely, since each time runs a program.
    """

    path = "journalctl -k"

    def __init__(self, host: Host) -> None:
        self._host = host
        self.seen = Seen()
        self._given: set[tuple[int | None, str]] = set()
        self._pending = self._read()
        self._read_s = time.monotonic()

    def new_lines(self) -> Iterator[LogLine]:
        """Lines not given yet."""
        if self._pending is None and time.monotonic() - self._read_s >= EVERY_S:
            self._pending = self._read()
            self._read_s = time.monotonic()
        lines, self._pending = self._pending or [], None
        for line in lines:
            if (line.mono_us, line.message) not in self._given:
                self._given.add((line.mono_us, line.message))
                yield line

    def _read(self) -> list[LogLine] | None:
        wanted = ["-k", "-b", "-n", "5000"]
        return list(parse_log(journal_text(self._host, wanted, deadline_s=1.0)))


def boot_wall_s(host: Host) -> float | None:
    """UNIX time of the log's zero, by the host's current clocks; `None` if unknown."""
    if host.moment is not None:
        mono_s, wall_s = host.moment
        return wall_s - mono_s
    if same_kernel(host):
        return time.time() - time.monotonic()
    try:
        found = re.search(r"^btime (\d{1,12})$", text(host.files, "/proc/stat"), re.M | re.A)
    except SourceError:
        return None
    return float(found[1]) if found else None


def same_kernel(host: Host) -> bool:
    """Is the host's kernel the one we run on? Never true of a snapshot."""
    if host.live or host.moment is not None:
        return host.live
    try:
        theirs, ours = text(host.files, _BOOT_ID), text(LiveFiles(), _BOOT_ID)
        return theirs == ours and not exists(host.files, "/commands")
    except SourceError:
        return False


def _open(host: Host) -> Ring | Syslog | Kept | Journal:
    if not same_kernel(host):
        return Kept(host)
    try:
        return Ring()
    except (SourceAbsent, SourceDenied) as refused:
        try:
            return Syslog()
        except SourceError:
            pass
        kept = Kept(host)
        try:
            kept.find()
            return kept
        except SourceError:
            pass
        try:
            return Journal(host)
        except SourceError:
            raise refused from None


def _after(before: str, content: str) -> str:
    """The part of `content` that is not in `before`, also if its beginning was cut off."""
    if content.startswith(before):
        return content[len(before) :]
    last = before.rstrip("\n").rpartition("\n")[2]
    place = content.rfind(f"{last}\n") if last else -1
    return content if place < 0 else content[place + len(last) + 1 :]


def _last_boot(lines: list[LogLine]) -> list[LogLine]:
    """Files under `/var/log` outlive boots: only lines of the last boot keep their time."""
    starts = [at for at, line in enumerate(lines) if line.message.startswith("Linux version ")]
    if not starts:
        return lines
    return [line._replace(mono_us=None) for line in lines[: starts[-1]]] + lines[starts[-1] :]
