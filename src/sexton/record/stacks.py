"""Rolling stacks: one ``perf record`` that runs for months and writes a file every few minutes.

The open file is ``DIR/stacks/perf.data``; perf renames it to ``perf.data.<local time of its end>``
when it starts the next, without losing a sample in between, and each file is complete in itself.
They are kept raw (0600) until they are decoded (`sexton.record.decoding`).

- perf runs at a low priority (`NICE`) with a parent-death signal, so that a ``kill -9`` of the
  recorder makes it finish its file and exit. `ChildOptions.dies_with_parent` watches the *thread*
  that calls `start` and `poll`, which must live as long as the recorder: its main loop.
- Leftovers of a killed recorder are taken over: an old perf is ended, its open file is renamed to
  ``…-torn`` and its missing header is restored (`mend`).
- A perf that dies, or no longer rotates, is started again after 1, 2, 4 … 60 s; each exit is
  counted and its last message kept. A full disk is such an exit.
- The limit in bytes deletes the oldest closed files, and is checked at each `poll`. perf's own
  ``--switch-max-files`` is a second limit, for a recorder that was stopped and does not poll.

File times are wall time. The end on the monotonic clock is computed from them and clamped between
the last poll that did not see the file and the first that did, so that a clock jump does no harm.

Kernel symbols are saved beside the stacks, so that they can be resolved after a reboot:
`/proc/kallsyms` is valid for one boot only (KASLR). Under `kernel.kptr_restrict` it is all zeros
and is not saved. Modules loaded after the snapshot are not in it.

A perf that is killed leaves a torn perf.data. perf reserves space for the header of a rotated file
and writes it when the file is closed, so a torn file has zeros there, and all its samples. The
header describes the samples (the event attributes), and all files of one perf share it: `mend`
copies it from a sibling, with the actual size and without the closing sections.

Header, native endian (the kernel's tools/perf/Documentation/perf.data-file-format.txt): magic
``PERFILE2``, ``u64 size, attr_size``, then ``{u64 offset, size}`` of attrs, data and event types,
then 256 bits for the sections that follow the data.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import struct
import time
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from sexton.errors import SourceDenied, SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.host.runner import ChildOptions, Running, start
from sexton.record.budget import exclude_child_cpu
from sexton.record.perf_child import clear_trials, end_leftovers, flags, last_words
from sexton.sources.perf.stacks import HERTZ
from sexton.store.layout import unused, write_whole

#: Not 19: with ten tasks running on two cores, perf then fell more than ten seconds behind its
#: rotations, and would lose samples exactly when the node is in trouble.
NICE = 10
#: With fewer cores the recorder is a larger part of the machine: half as often there, so that its
#: total cost stays within 1 %.
_FEW_CORES, _HERTZ_ON_FEW = 4, 49
_CHILD_OPTIONS = ChildOptions(nice=NICE, private=True, keep_stderr=True, dies_with_parent=True)
_OPEN = "perf.data"
_CLOSED = re.compile(r"perf\.data\.[0-9]{14,20}(-torn)?(\.[0-9]+)?", re.ASCII)
#: Per file: two minutes of 98 busy cores, and at most 300 s, so that the stacks of an alarm can be
#: read soon; shorter files cost more, because perf lists every process again in each.
_MOST_SAMPLES, _LONGEST_S = 1_150_000, 300
_LEAST_WAIT_S, _MOST_WAIT_S = 1.0, 60.0
#: How late a rotation may be on a busy node.
_SLACK_S = 30.0
#: After running this long, the wait for a restart starts again at 1 s.
_SETTLED_S = 60.0


class Rotation(NamedTuple):
    """How stacks are sampled and how many files are kept; 400 files are 13 hours or more."""

    segment_s: int = 120
    hertz: int = HERTZ
    keep_bytes: int = 1 << 30
    keep_files: int = 400

    @classmethod
    def for_cores(cls, cores: int) -> Rotation:
        """Shorter files on big machines, so that decoding one stays within its memory; fewer
        samples on small ones.

        >>> [Rotation.for_cores(cores)[:2] for cores in (2, 96, 192, 4096)]
        [(300, 49), (123, 97), (61, 97), (10, 97)]
        """
        hertz = HERTZ if cores >= _FEW_CORES else _HERTZ_ON_FEW
        return cls(
            segment_s=max(10, min(_LONGEST_S, _MOST_SAMPLES // (hertz * cores))), hertz=hertz
        )


class Closed(NamedTuple):
    """A file that perf has closed; `whole` is false if perf was killed before closing it.

    `mono_end_s` is `None` for one that is older than this boot.
    """

    path: str
    mono_end_s: float | None
    bytes: int
    whole: bool


def closed_in(folder: str) -> list[Closed]:
    """Every file there that perf has closed, oldest first."""
    ahead_s = time.time() - time.monotonic()
    found = []
    for name in _names(folder):
        matched = _CLOSED.fullmatch(name)
        if matched is None:
            continue
        with contextlib.suppress(FileNotFoundError):  # perf deletes files, too
            status = os.lstat(f"{folder}/{name}")
            end_s = status.st_mtime - ahead_s
            end = end_s if end_s > 0 else None
            closed = Closed(f"{folder}/{name}", end, status.st_size, matched[1] is None)
            found.append((status.st_mtime_ns, closed))
    return [closed for _, closed in sorted(found)]


class StacksState(NamedTuple):
    """The state of perf; `reason` is its last message before it exited."""

    alive: bool
    deaths: int
    reason: str
    again_in_s: float | None
    deleted_files: int
    deleted_bytes: int
    taken_over: int


class ChildCost(NamedTuple):
    """CPU time of a child, user and system, and its resident memory."""

    cpu_s: float
    rss_bytes: int


NO_COST = ChildCost(0.0, 0)


class RollingStacks:
    """One perf, kept alive by `poll`, which the recorder calls every few seconds."""

    def __init__(self, host: Host, directory: str, rotation: Rotation = Rotation()) -> None:  # noqa: B008
        host.require_live("perf record")
        self.folder = os.path.join(os.path.realpath(directory), "stacks")
        self._host = host
        self._rotation = rotation
        self._command: list[str] = []
        self._running: Running | None = None
        self._began_s = self._rotated_s = 0.0
        self._wait_s = _LEAST_WAIT_S
        self._again_s: float | None = None
        self._seen: set[str] = set()
        self._polled_s: float | None = None
        self._deaths = self._deleted_files = self._deleted_bytes = self._taken_over = 0
        self._reason = ""
        self._spent_s = 0.0
        self._last = NO_COST

    def start(self) -> None:
        """Take over leftovers, find out which flags perf supports, and start it.

        Raises `SourceAbsent` or `SourceDenied` with the grant that would help.
        """
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._taken_over += end_leftovers(self._host, self.folder)
        self._set_aside()
        clear_trials(self.folder)
        rotation = self._rotation
        self._command = flags(rotation.hertz, rotation.segment_s, rotation.keep_files, self.folder)
        self._launch(time.monotonic())

    def poll(self, spare: Container[str] = ()) -> list[Closed]:
        """Files closed since the last call, oldest first; the first call includes those found at
        the start. Also restarts perf if due, and limits the bytes of files that are not
        named in `spare` (pinned). Waits only if a perf has to be ended.
        """
        now_s = time.monotonic()
        self._tend(now_s)
        found = self.closed()
        listed_s = time.monotonic()  # a busy node may take its time up to here
        fresh = [file for file in found if os.path.basename(file.path) not in self._seen]
        if self._polled_s is not None:
            earliest_s = self._polled_s
            fresh = [
                file._replace(mono_end_s=_within(file, earliest_s, listed_s)) for file in fresh
            ]
        if fresh:
            self._rotated_s = now_s
        self._watch(now_s)
        gone = self._bound(found, spare)
        self._seen = {os.path.basename(file.path) for file in found} - gone
        self._polled_s = now_s
        return [file for file in fresh if os.path.basename(file.path) not in gone]

    def closed(self) -> list[Closed]:
        """Every closed file, oldest first."""
        return closed_in(self.folder)

    def is_alive(self) -> bool:
        return self._running is not None and self._running.status() is None

    def cost(self) -> ChildCost:
        """What perf's process used, without the cost of sampling in other processes."""
        if self._running is not None and self._running.status() is None:
            with contextlib.suppress(SourceError):  # it has just exited: keep the last reading
                self._last = cost_of(self._host, self._running.pid, "VmRSS")
        return ChildCost(self._spent_s + self._last.cpu_s, self._last.rss_bytes)

    def state(self) -> StacksState:
        waits_s = None if self._again_s is None else max(0.0, self._again_s - time.monotonic())
        return StacksState(
            alive=self.is_alive(),
            deaths=self._deaths,
            reason=self._reason,
            again_in_s=waits_s,
            deleted_files=self._deleted_files,
            deleted_bytes=self._deleted_bytes,
            taken_over=self._taken_over,
        )

    def stop(self, patience_s: float = 5.0) -> None:
        """End perf, which closes its last file: the next `poll` returns it."""
        self.cost()
        if self._running is not None:
            self._running.stop(patience_s)
            self._running = None
        self._retire()
        self._again_s = None
        self._set_aside()

    def _launch(self, now_s: float) -> None:
        self._running = start([*self._command, "-o", f"{self.folder}/{_OPEN}"], _CHILD_OPTIONS)
        self._began_s = now_s
        self._again_s = None

    def _tend(self, now_s: float) -> None:
        """Notice an exit, and restart perf once the wait is over."""
        if self._running is not None:
            self.cost()
            status = self._running.status()
            if status is None:
                self._running.stderr()  # truncates what was captured
                if self._open_bytes() > self._rotation.keep_bytes:
                    self._end_perf(now_s, "a single file exceeded the size limit")
            else:
                said = last_words(self._running.stderr())
                self._end_perf(now_s, said or _disk_full(self.folder) or f"ended with {status}")
        elif self._again_s is not None and now_s >= self._again_s:
            try:
                self._launch(now_s)
            except SourceError as error:  # perf was uninstalled meanwhile
                self._count_exit(now_s, str(error))

    def _watch(self, now_s: float) -> None:
        """End a perf that never rotates, which closes its file: seen with 6.1, if it took longer to
        start than a file may take."""
        late_s = now_s - max(self._rotated_s, self._began_s)
        if self.is_alive() and late_s > 2 * self._rotation.segment_s + _SLACK_S:
            self._end_perf(now_s, f"no new file for {late_s:.0f} s")

    def _end_perf(self, now_s: float, why: str) -> None:
        assert self._running is not None
        self._running.stop(patience_s=2.0)
        self._running = None
        self._retire()
        self._set_aside()
        if now_s - self._began_s >= _SETTLED_S:
            self._wait_s = _LEAST_WAIT_S
        self._count_exit(now_s, why)

    def _count_exit(self, now_s: float, why: str) -> None:
        self._deaths += 1
        self._reason = why
        self._again_s = now_s + self._wait_s
        self._wait_s = min(_MOST_WAIT_S, 2 * self._wait_s)

    def _retire(self) -> None:
        self._spent_s += self._last.cpu_s
        exclude_child_cpu(self._last.cpu_s)
        self._last = NO_COST

    def _open_bytes(self) -> int:
        try:
            return os.lstat(f"{self.folder}/{_OPEN}").st_size
        except FileNotFoundError:  # between two files
            return 0

    def _set_aside(self) -> None:
        """Rename the file of an exited perf; the next perf would rename it otherwise."""
        for name in (_OPEN, f"{_OPEN}.old"):
            path = f"{self.folder}/{name}"
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            if status.st_size == 0:
                os.unlink(path)
                continue
            stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(status.st_mtime))
            hundredths = status.st_mtime_ns // 10_000_000 % 100
            torn = unused(f"{self.folder}/{_OPEN}.{stamp}{hundredths:02}-torn")
            siblings = [file.path for file in self.closed() if file.whole]
            os.rename(path, torn)
            with contextlib.suppress(OSError):  # such as a full disk: it stays as it is
                mend(torn, siblings[-1] if siblings else None)
                os.utime(torn, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _bound(self, found: list[Closed], spare: Container[str]) -> set[str]:
        """Delete the oldest until the rest fits; returns the names of deleted files."""
        held = self._open_bytes() + sum(file.bytes for file in found)
        gone: set[str] = set()
        for file in found:
            if held <= self._rotation.keep_bytes:
                break
            name = os.path.basename(file.path)
            if name in spare:
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)
            held -= file.bytes
            gone.add(name)
            self._deleted_files += 1
            self._deleted_bytes += file.bytes
        return gone


def _within(file: Closed, earliest_s: float, latest_s: float) -> float:
    made_s = latest_s if file.mono_end_s is None else file.mono_end_s
    return min(max(made_s, earliest_s), latest_s)


def _disk_full(folder: str) -> str:
    """The reason why perf died without a message: it cannot even write a header."""
    full = shutil.disk_usage(folder).free < 1 << 16
    return f"{folder}: No space left on device" if full else ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def cost_of(host: Host, pid: int, memory: str) -> ChildCost:
    """What a process has used, from /proc; `memory` is a field of its ``status``."""
    fields = text(host.files, f"/proc/{pid}/stat").rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = text(host.files, f"/proc/{pid}/status")
    found = re.search(rf"^{memory}:\s*(\d+) kB$", status, re.MULTILINE)
    return ChildCost(cpu_s, int(found[1]) * 1024 if found is not None else 0)


KALLSYMS = "/proc/kallsyms"
#: 200,000 symbols take 11 MB; kernels with everything built in, three times that.
_MOST_KALLSYMS = 128 << 20
_NAMED = re.compile(rb"^0*[1-9a-f][0-9a-f]* ", re.MULTILINE)
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}", re.ASCII)


def snapshot_kallsyms(host: Host, directory: str, boot_id: str) -> str:
    """Write ``DIR/stacks/kallsyms-<boot id>.gz`` unless it exists; returns its path.

    Raises `SourceDenied` if the kernel hides its addresses.
    """
    if _BOOT_ID.fullmatch(boot_id) is None:
        raise ValueError(f"not a boot id: {boot_id!r}")
    folder = os.path.join(directory, "stacks")
    path = os.path.join(folder, f"kallsyms-{boot_id}.gz")
    if os.path.exists(path):
        return path
    symbols = host.files.read(KALLSYMS, _MOST_KALLSYMS)
    if _NAMED.search(symbols) is None:
        raise SourceDenied(KALLSYMS, "all addresses are zero: kernel.kptr_restrict", "as root")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    write_whole(Path(path), gzip.compress(symbols, compresslevel=1, mtime=0))
    return path


_MAGIC = b"PERFILE2"
_HEAD = struct.Struct("=8s8Q32s")
#: Attributes and ids of one event on a thousand cores take 8 kB.
_MOST_HEAD = 1 << 20


class _Head(NamedTuple):
    magic: bytes
    size: int
    attr_size: int
    attrs_offset: int
    attrs_size: int
    data_offset: int
    data_size: int
    types_offset: int
    types_size: int
    sections: bytes


def mend(path: str, sibling: str | None) -> bool:
    """Restore a torn file's header; whether it can be read now. `sibling` is a complete file of the
    same perf."""
    with open(path, "r+b", buffering=0) as torn:
        size = os.fstat(torn.fileno()).st_size
        head, between = _head(torn.read(_HEAD.size)), b""
        if head is not None and head.data_size:
            return True
        if head is None and sibling is not None:
            with open(sibling, "rb") as whole:
                head = _head(whole.read(_HEAD.size))
                if head is not None:
                    between = whole.read(head.data_offset - _HEAD.size)
        if head is None or head.data_offset >= size:
            return False
        mended = head._replace(data_size=size - head.data_offset, sections=bytes(32))
        torn.seek(0)
        torn.write(_HEAD.pack(*mended) + between)
        os.fsync(torn.fileno())
    return True


def _head(content: bytes) -> _Head | None:
    if len(content) < _HEAD.size:
        return None
    head = _Head(*_HEAD.unpack(content))
    sane = head.magic == _MAGIC and head.size == _HEAD.size <= head.data_offset <= _MOST_HEAD
    return head if sane else None
