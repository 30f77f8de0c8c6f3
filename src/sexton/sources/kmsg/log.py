"""`/dev/kmsg`: what the kernel said, as far back as its ring reaches, and from then on.

Documented in the kernel's Documentation/ABI/testing/dev-kmsg. One `read` gives one record::

    3,1207,8123456789,-;ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). …
     SUBSYSTEM=pci
     DEVICE=+pci:0000:20:03.0

Quirks: a reader that was overtaken gets EPIPE and goes on at the oldest record left; the sequence
numbers tell how many were lost. Any process that may write the file puts records into the ring,
but never with the kernel's own facility: those are not believed (see `Recogniser`). With
`kernel.dmesg_restrict=1` opening needs CAP_SYSLOG. Container runtimes mask the file with another
device: that is absent, not an empty log.

The clock is the kernel's `local_clock`: microseconds since boot that stand still in suspend and
are not steered by NTP. Wall time is made with the offset CLOCK_REALTIME − CLOCK_MONOTONIC of now,
so after a suspend older lines come out too late, and over weeks they drift by seconds.

There is one ring per kernel: a tree with the boot id of this very boot (the host's, mounted in a
container) has ours. On any other tree the log is what was kept of it: `/commands/kmsg`,
`/commands/dmesg` or `/commands/journal_k` of a collected archive, else `/var/log/kern.log` or
`/var/log/dmesg`. The first of these that is there is read; on a later reading only what is new. On
the node itself they stand in for a ring that refuses us, and after them the journal's last hour.

Only lines the catalogue knows become rows. `KernelLog` counts since the source was opened: lines
seen, the oldest one's time, records lost. A flood is bounded: by bytes, by lines and by time per
reading; what is left over comes with the next one, or is lost and counted.

>>> seen = Seen()
>>> [seen.is_new(LogLine(0, None, "x", 0, seq)) for seq in (7, 8, 8, 11)], seen.lost
([True, True, False, True], 2)
"""

from __future__ import annotations

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
from sexton.model.event import KernelEvent, KernelLog
from sexton.model.row import Row
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.journal import journal_text
from sexton.sources.kmsg.records import LogLine, parse_log, record
from sexton.sources.registry import source

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
#: How often the journal is asked, where it has to stand in for the ring.
JOURNAL_EVERY_S = 5.0


@source(
    PATH,
    rows=(KernelEvent, KernelLog),
    period_s=1.0,
    deadline_s=3.0,  # for a kept log of megabytes; the live ring stops by itself much earlier
    grant="sudo sexton diagnose  # needs CAP_SYSLOG, or kernel.dmesg_restrict=0",
)
class KernelLogReading:
    """The kernel's log, live or as it was kept."""

    def __init__(self, host: Host, trust_user_records: bool = False) -> None:
        self._host = host
        self._recogniser = Recogniser(trust_user_records)
        self._log: Ring | Kept | Journal | None = None
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
            if event is None:  # like nearly all of them
                continue
            if event.wall_s is None and event.mono_us is not None and boot_s is not None:
                event = replace(event, wall_s=boot_s + event.mono_us / 1e6)
            events.append(event)
        log = self._log
        return [*events, KernelLog(self._lines, self._oldest_us, log.seen.lost, log.path)]

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


class Seen:
    """Which records were seen, by their numbers, and how many went by unseen."""

    def __init__(self) -> None:
        self.lost = 0
        self._next: int | None = None

    def is_new(self, line: LogLine) -> bool:
        """False for a record met before; a hole before it is counted as lost."""
        if line.seq is None:
            return True
        if self._next is not None:
            if line.seq < self._next:
                return False
            self.lost += line.seq - self._next
        self._next = line.seq + 1
        return True


class Ring:
    """The live ring, without ever waiting for it."""

    path = PATH

    def __init__(self) -> None:
        try:
            self._descriptor = os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise failure(PATH, error) from None
        status = os.fstat(self._descriptor)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _DEVICE:
            os.close(self._descriptor)
            raise SourceAbsent(PATH, "masked: another file stands in its place")
        self.seen = Seen()

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)

    def new_lines(self) -> Iterator[LogLine]:
        """Records not seen yet, up to the bounds of one reading."""
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


class Kept:
    """A log that was kept as a file: the first there is, and only its new part."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.path = ""
        self.seen = Seen()
        self._before = ""

    def close(self) -> None:
        """Nothing is held."""

    def new_lines(self) -> Iterator[LogLine]:
        """Lines not seen yet; `SourceAbsent` where no log was kept."""
        content = self.find()
        fresh = _after(self._before, content)
        self._before = content
        lines = (line for line in parse_log(fresh[-MOST_BYTES:]) if self.seen.is_new(line))
        return iter(_last_boot(list(lines))) if "/log/" in self.path else lines

    def find(self) -> str:
        """The log's text, and `path` set to where it was."""
        refused: SourceError = SourceAbsent(
            PATH, "no kernel log was kept in this tree", grant=ON_THE_NODE
        )
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
    """The journal's copy of the last hour, for members of its group whom the ring itself refuses.

    Asked seldom, since each time is a program run.
    """

    path = "journalctl -k"

    def __init__(self, host: Host) -> None:
        self._host = host
        self.seen = Seen()
        self._told: set[tuple[int | None, str]] = set()
        self._waiting = self._ask()
        self._asked_s = time.monotonic()

    def close(self) -> None:
        """Nothing is held."""

    def new_lines(self) -> Iterator[LogLine]:
        """Lines not told yet."""
        if self._waiting is None and time.monotonic() - self._asked_s >= JOURNAL_EVERY_S:
            self._waiting = self._ask()
            self._asked_s = time.monotonic()
        lines, self._waiting = self._waiting or [], None
        for line in lines:
            if (line.mono_us, line.message) not in self._told:
                self._told.add((line.mono_us, line.message))
                yield line

    def _ask(self) -> list[LogLine] | None:
        wanted = ["-k", "-b", "-n", "5000"]
        return list(parse_log(journal_text(self._host, wanted, deadline_s=1.0)))


def boot_wall_s(host: Host) -> float | None:
    """UNIX time of the log's zero, as the host's clocks stand now; `None` where nothing tells."""
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
    """Is this process's kernel the host's, now? A snapshot is of then, though it were of here."""
    if host.live or host.moment is not None:
        return host.live
    try:
        theirs, ours = text(host.files, _BOOT_ID), text(LiveFiles(), _BOOT_ID)
        return theirs == ours and not exists(host.files, "/commands")
    except SourceError:
        return False


def _open(host: Host) -> Ring | Kept | Journal:
    if not same_kernel(host):
        return Kept(host)
    try:
        return Ring()
    except (SourceAbsent, SourceDenied) as refused:
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
    """What `content` has that `before` had not, also where its beginning was cut off."""
    if content.startswith(before):
        return content[len(before) :]
    last = before.rstrip("\n").rpartition("\n")[2]
    place = content.rfind(f"{last}\n") if last else -1
    return content if place < 0 else content[place + len(last) + 1 :]


def _last_boot(lines: list[LogLine]) -> list[LogLine]:
    """Files under `/var/log` outlive boots: only since the last one does a line's time count."""
    starts = [at for at, line in enumerate(lines) if line.message.startswith("Linux version ")]
    if not starts:
        return lines
    return [line._replace(mono_us=None) for line in lines[: starts[-1]]] + lines[starts[-1] :]
