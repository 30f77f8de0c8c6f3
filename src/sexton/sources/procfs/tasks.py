r"""`/proc/PID/stat` and `/proc/PID/task/TID/stat`: CPU time of processes and threads, by core.

Documented in the kernel's Documentation/filesystems/proc.rst, table 1-4, and in proc(5). An
excerpt::

    1 (systemd) S 0 1 1 0 -1 4194560 10123 401215 40 362 50 117 1034 543 20 0 1 0 3 …

It takes two steps. First every process's line is read. Its times are the sum over its threads, but
its `processor` (field 39) is the *leader's*, which is the wrong core for any program with worker
threads (such as kubelet). So second, the threads of the processes that used CPU time are read, and
a thread's own time and `processor` say what held a core.

Quirks:

- The name is in parentheses and may contain any byte but NUL, among them ``)``, spaces and
  newlines (``a) R 1\nx``): it goes from the first ``(`` to the *last* ``)``.
- A process that ends between listing and reading is skipped; an empty file (a snapshot taken by a
  shell while the process ended) counts as ended too. With `hidepid` other users' processes are
  hidden: they are skipped, and the source is denied only if none can be read.
- Defunct processes have state ``Z`` until their parent waits for them.
- Page faults are the process's own, over all its threads: minor ones (`minflt`) found their page in
  memory, major ones (`majflt`) waited for a disk. Those of its dead children are not included.
- Times are in ticks of 10 ms. `start_ms` is since boot; with it, two processes that had the same
  pid one after the other are distinct.

Limits: threads are read of the `_MOST_MOVERS` busiest processes, each of which used at least
`_MOVED` of one core since the last scan, and for `_KEEP_SCANS` scans more, so that there are two
readings of a thread to compare. The first scan reads those of processes that used `_LONG_BUSY` of
a core since they started. At most `_MOST_THREADS` threads of one process are read, those with
the lowest thread ids, and `_MOST_IN_ALL` in one scan, the busiest process first. A snapshot is read
only once, so nothing can be compared: there the threads are read within the same limits, starting
with the processes with the most CPU time.

>>> row = parse_process(b"7 (a) R 1\nx) S 1 7 7 0 -1 4194560 0 0 0 0 50 117 0 0 20 0 3 0 543 0"
...                     b" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0\n")
>>> row.comm, row.state, row.system_ms, row.threads, row.cpu
('a) R 1\nx', 'S', 1170, 3, 1)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed
from sexton.host.host import Host
from sexton.host.reader import HeldFiles
from sexton.model.counters import moved
from sexton.model.rows.task import Process, Thread
from sexton.sources.procfs.stat import TICK_MS
from sexton.sources.registry import Reading, source

PATH = "/proc/*/stat"
_MOVED = 0.05
_MOST_MOVERS = 24
_LONG_BUSY = 0.5
_KEEP_SCANS = 3
_MOST_THREADS = 512
_MOST_IN_ALL = 2048
_MOST_BYTES = 4000  # a line has about 300; below a page, one read is enough
#: PF_KTHREAD in include/linux/sched.h; the same bit since 2.6.27.
_KERNEL_THREAD = 0x00200000


@source(PATH, rows=(Process, Thread), period_s=2.0)
class Tasks(Reading):
    """Every process, and the threads of busy ones."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._held = HeldFiles() if host.live and host.lasting else None
        self._began_s = 0.0
        self._used_ms: dict[tuple[int, int], int] = {}
        self._followed: dict[tuple[int, int], int] = {}
        #: Each process's last line, parsed: most processes sleep, and their line stays the same.
        self._known: dict[str, tuple[bytes, Process]] = {}

    def collect(self) -> Iterator[Process | Thread]:
        began_s, self._began_s = self._began_s, time.monotonic()
        processes = self._processes()
        yield from processes
        yield from self._threads(self._worth_a_look(processes, self._began_s - began_s))

    def close(self) -> None:
        if self._held is not None:
            self._held.close()

    def _processes(self) -> list[Process]:
        read = self._files.read if self._held is None else self._held.read
        before, self._known = self._known, {}
        found: list[Process] = []
        for path, content in each_process(self._files.names("/proc"), "stat", read, _MOST_BYTES):
            if not content:
                continue
            known = before.get(path)
            if known is None or known[0] != content:
                known = (content, parse_process(content, path))
            self._known[path] = known
            found.append(known[1])
        if self._held is not None:
            self._held.keep_only(self._known)
        if not found:  # at least sexton runs: no process means no procfs
            raise SourceAbsent(PATH, "no processes in /proc")
        return found

    def _worth_a_look(self, processes: list[Process], passed_s: float) -> list[Process]:
        """Whose threads to read, the busiest first."""
        used = {_key(process): _used_ms(process) for process in processes}
        if self._host.moment is not None:
            return sorted(processes, key=_used_ms, reverse=True)
        before, self._used_ms = self._used_ms, used
        if not before:
            return self._long_busy(processes)
        # A process that is new since the last scan used all its time since then.
        spent = moved(before, used, born=True)
        least_ms = _MOVED * 1000 * passed_s
        movers = sorted(
            (key for key, ms in spent.items() if ms > 0 and ms >= least_ms),
            key=lambda key: spent[key],
            reverse=True,
        )
        followed = {key: left - 1 for key, left in self._followed.items() if left and key in used}
        followed.update(dict.fromkeys(movers[:_MOST_MOVERS], _KEEP_SCANS))
        self._followed = followed
        worth = [process for process in processes if _key(process) in followed]
        return sorted(worth, key=lambda process: spent.get(_key(process), 0), reverse=True)

    def _long_busy(self, processes: list[Process]) -> list[Process]:
        """At the first scan: those that have used most of a core since they started. Where later
        scans are late, as beside a task that holds a core, there are two readings of them."""
        if not self._host.live:
            return []
        now_ms = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
        busy = [
            process
            for process in processes
            if _used_ms(process) >= max(_LONG_BUSY * (now_ms - process.start_ms), 1000)
        ]
        busy = sorted(busy, key=_used_ms, reverse=True)[:_MOST_MOVERS]
        self._followed = dict.fromkeys(map(_key, busy), _KEEP_SCANS)
        return busy

    def _threads(self, processes: list[Process]) -> Iterator[Thread]:
        left = _MOST_IN_ALL
        for process in processes:
            directory = f"/proc/{process.pid}/task"
            try:
                names = self._files.names(directory)
            except (SourceAbsent, SourceDenied):
                continue
            tids = sorted(int(name) for name in names if name.isdecimal())
            for tid in tids[: min(_MOST_THREADS, left)]:
                path = f"{directory}/{tid}/stat"
                try:
                    content = self._files.read(path, _MOST_BYTES)
                except (SourceAbsent, SourceDenied):
                    continue
                if content:
                    left -= 1
                    yield parse_thread(process.pid, content, path)
            if left <= 0:
                return


def each_process(
    names: Iterable[str], file: str, read: Callable[[str, int], bytes], limit: int
) -> Iterator[tuple[str, bytes]]:
    """Path and content of one file of each process in `names`, the entries of `/proc`.

    Those that ended or may not be read are left out; `SourceDenied` if all others may not be read.
    """
    seen = False
    denied: SourceDenied | None = None
    for name in names:
        if not name.isdecimal():
            continue
        path = f"/proc/{name}/{file}"
        try:
            content = read(path, limit)
        except SourceAbsent:
            continue
        except SourceDenied as error:
            denied = error
            continue
        seen = True
        yield path, content
    if denied and not seen:
        raise denied


def parse_process(content: bytes, path: str = PATH) -> Process:
    """One process out of its `stat` line."""
    try:
        pid, comm, fields = _split(content)
        return Process(
            pid,
            int(fields[1]),
            comm,
            fields[0].decode("ascii"),
            int(fields[19]) * TICK_MS,
            int(fields[11]) * TICK_MS,
            int(fields[12]) * TICK_MS,
            int(fields[36]) if len(fields) > 36 else None,
            int(fields[17]),
            int(fields[6]) & _KERNEL_THREAD != 0,
            int(fields[7]),
            int(fields[9]),
        )
    except (ValueError, IndexError):
        raise SourceMalformed(path, 1, "not a task's fields") from None


def parse_thread(pid: int, content: bytes, path: str = PATH) -> Thread:
    """One thread of process `pid` out of its own `stat` line.

    >>> line = b"9 (gc) R 1 7 7 0 -1 64 0 0 0 0 5 2 0 0 20 0 3 0 543"
    >>> parse_thread(7, line).tid, parse_thread(7, line).cpu
    (9, None)
    """
    try:
        tid, comm, fields = _split(content)
        return Thread(
            pid,
            tid,
            comm,
            fields[0].decode("ascii"),
            int(fields[19]) * TICK_MS,
            int(fields[11]) * TICK_MS,
            int(fields[12]) * TICK_MS,
            int(fields[36]) if len(fields) > 36 else None,
            int(fields[38]) if len(fields) > 38 else None,
            int(fields[37]) if len(fields) > 38 else None,
        )
    except (ValueError, IndexError):
        raise SourceMalformed(path, 1, "not a task's fields") from None


def _split(content: bytes) -> tuple[int, str, list[bytes]]:
    """Task id, name, and the fields from the third (the state) on."""
    opening = content.index(b"(")
    closing = content.rindex(b")")
    comm = content[opening + 1 : closing].decode("utf-8", "surrogateescape")
    return int(content[:opening]), comm, content[closing + 1 :].split(None, 39)


def _key(process: Process) -> tuple[int, int]:
    return process.pid, process.start_ms


def _used_ms(process: Process) -> int:
    return process.user_ms + process.system_ms
