"""Tasks are stuck waiting for a disk or a file server.

**What is seen.** Hung tasks in the kernel log (``blocked for more than 120 seconds``), and the task
that holds the lock they wait for, where the kernel names it (6.15 and later); commands that a disk
did not answer (NVMe time-outs, frozen ATA ports, offline SCSI disks), disks dropped from a RAID
array, NFS servers, Lustre targets (FSx) and SMB servers (Azure Files) that do not respond, and I/O
errors of the block layer, each with its device.
Also processes that were in uninterruptible sleep (state D) at every reading of eight seconds and
more, and used no CPU time, now or earlier in a recording. The share of time in which all tasks
waited for I/O (`/proc/pressure/io`) is evidence.

**Why it hurts.** A task in state D cannot be killed, not even by SIGKILL: a job hangs without an
error until something else gives it up, its node looks idle, and the load average rises by one for
each such task. A checkpoint that does not end holds up all other ranks.

**What would make it wrong.** Hung tasks wait for whatever they wait for: a mutex of a driver, a
frozen cgroup, a filesystem frozen for a snapshot (``fsfreeze``) and a stopped FUSE server look
alike. The owner of a lock is who holds it when the line is written; of a semaphore, who took it
last. An SMB client does not log that its server answers again. The kernel reports the first ten
(`kernel.hung_task_warnings`) and then no more, and none if `kernel.hung_task_timeout_secs` is 0.
Cloud disks are given years before a time-out is reported (``nvme_core.io_timeout=4294967295`` on
EC2), so that the log stays silent. State D is read for a process's main thread only; a wait that
began and ended between two readings is not seen. Errors of floppy and optical drives do not count.

**Check by hand.** ``ps -eo state,pid,wchan:32,comm | grep ^D``; ``cat /proc/PID/stack``; ``dmesg -T
| grep -E 'blocked for more|I/O error|timeout'``; ``iostat -x 1``.

**What to do.** Read what the tasks wait for (their stack); where a task holds the lock that others
wait for, its stack is the one to read. A disk: move the work, check the volume's status and
``smartctl -a``. NFS: is the server up, does the network lose packets (`tcp_loss`)? Only the end of
the wait frees a task in state D: an answer, a reset of the device, or a reboot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.faults import Fault, Judged, Report, faults, present
from sexton.detect.findings import absent, and_more, names, unknown
from sexton.detect.kernel_log import NO_REACH, Line
from sexton.detect.registry import READS, Advice, Stage, Threshold, detector
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.task import Process
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series import pressure

NAME = "stuck_io"
FAMILIES = ("hung_task", "disk_timeout", "block_error")

RECENT = Threshold(
    "recent", 3600, "s", "time for an engineer to respond; a stuck disk keeps logging"
)
STUCK = Threshold(
    "stuck", 20, "s in state D", "a busy disk still completes each request within seconds"
)
NOTED = Threshold("noted", 8, "s in state D", "the whole of a short live run; worth a line")
_READINGS = 3
_SHOWN = 8
_DROPPED = "dropped from the RAID array"
_HUNG, _ERRORS = "hung task", "I/O errors"
_SILENT = "did not respond"
#: What does not respond, by driver.
_SERVERS = {"nfs": "NFS server", "lustre": "Lustre target", "cifs": "SMB server"}
_IGNORED = re.compile(r"fd\d|sr\d|loop\d")
_NOT_DATA = frozenset({"DISCARD", "WRITE_ZEROES", "SECURE_ERASE"})
_GONE = ("controller is down", "Device not ready", "Removing", "Disabling", "offline", "dead")
_WRONG = "it waits for something other than a disk: a lock, a frozen cgroup"


class _Lock(NamedTuple):
    """What a hung task waits for, and who holds it."""

    kind: str
    owner: str


class _Stuck(NamedTuple):
    """A process in state D at every reading from `start` to `end` (monotonic seconds), and still at
    the last one of all if `lasts`."""

    task: str
    start: float
    end: float
    lasts: bool

    @property
    def seconds(self) -> float:
        return self.end - self.start


def _ruled_out(window: Window) -> str:
    reach = kernel_log.reach(window)
    return "stuck I/O" if reach is not None and reach.covers(RECENT.value) else ""


def _look(finding: Finding, window: Window) -> list[Step]:
    task = next(iter(finding.entities.get("task", ())), "")
    locks = _locks(kernel_log.lines(window, ("hung_task",)))
    last, does = _waits(task, locks)[-1], "does" if task in locks else "waits for"
    found = re.search(r"\[(\d+)\]$", last)
    if found is not None:
        return [Step(f"cat /proc/{found[1]}/stack", f"see what {last} {does} in the kernel", READS)]
    return [
        Step("ps -eo state,pid,wchan:32,comm | grep ^D", "see which tasks wait, for what", READS)
    ]


@detector(
    thresholds=(RECENT, STUCK, NOTED),
    title="stuck I/O",
    story="Tasks were stuck waiting for a disk",
    lanes=("events", "pressure"),
    about=("task", "device"),
    answers={"device": 1, "task": 8, "job": 7},
    events=FAMILIES,
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
)
def detect(window: Window) -> Finding:
    """Which tasks are stuck, and which disk or server does not answer."""
    lines = kernel_log.lines(window, FAMILIES)
    back = {line.text("device"): line for line in lines if line.text("phase") == "done"}
    logged = faults(window, lines, partial(_judged, back), RECENT.value)
    stuck = _stuck(window)
    if logged and (logged[0].severity is not Severity.INFO or not stuck):
        return _logged(window, logged, stuck, _locks(lines))
    if stuck:
        return _waiting(window, stuck)
    if not kernel_log.was_read(window):
        what = "kernel messages about hung tasks and disks were not read"
        return unknown(NAME, what, kernel_log.lacking(window))
    reach = kernel_log.reach(window) or NO_REACH
    what = "hung tasks, time-outs and errors of disks in the kernel log"
    line = reach.no_lines(what, number=0.0)
    summary = f"0 hung tasks, time-outs or errors of disks {reach.words}"
    return absent(NAME, summary, (line, *_pressed(window)))


def _judged(back: dict[str | None, Line], line: Line) -> Judged | None:
    if line.text("owner") is not None:  # a further line about a hung task
        return None
    if line.event.family == "hung_task":
        return Judged(_task(line), _HUNG, Severity.CRITICAL)
    device, action = line.text("device") or line.text("bus") or "?", line.text("action") or ""
    if line.text("phase") == "done":
        return None
    driver = line.text("driver") or ""
    if driver in _SERVERS:
        answered = back.get(device)
        over = answered is not None and (answered.age_s or 0.0) <= (line.age_s or 0.0)
        # NFS says so only after a minute; a Lustre client reconnects after seconds, and goes on.
        after = Severity.WARNING if driver == "nfs" else Severity.INFO
        # SMB clients do not log that it answers again: it may do so by now.
        before = Severity.WARNING if driver == "cifs" else Severity.CRITICAL
        return Judged(device, f"{_SERVERS[driver]} {_SILENT}", after if over else before)
    if line.text("array") is not None:
        return Judged(device, f"{_DROPPED} {line.text('array')}", Severity.WARNING)
    if line.event.family == "disk_timeout":
        severity = Severity.CRITICAL if action.startswith(_GONE) else Severity.WARNING
        return Judged(device, "disk did not answer", severity)
    if _IGNORED.match(device) or line.text("operation") in _NOT_DATA:
        return None
    return Judged(device, _ERRORS, Severity.WARNING)


def _task(line: Line) -> str:
    return f"{line.text('comm')}[{line.text('pid')}]"


def _locks(lines: Sequence[Line]) -> dict[str, _Lock]:
    """By hung task, the lock it waits for as of its last report."""
    return {
        _task(line): _Lock(line.text("lock") or "lock", f"{owner}[{line.text('owner_pid')}]")
        for line in lines
        if (owner := line.text("owner")) is not None
    }


def _waits(task: str, locks: Mapping[str, _Lock]) -> list[str]:
    """A task, the owner of the lock it waits for, who that one waits for, and so on; each once."""
    found = [task]
    while found[-1] in locks and locks[found[-1]].owner not in found:
        found.append(locks[found[-1]].owner)
    return found


def _stuck(window: Window) -> list[_Stuck]:
    """Processes that were stuck in this window, the longest first."""
    found: list[_Stuck] = []
    # By process: since when, at how many readings, and its first row.
    since: dict[tuple[int, int], tuple[float, int, Process]] = {}
    last = 0.0

    def end(stuck: Iterable[tuple[float, int, Process]], lasts: bool) -> None:
        for begun, seen, row in stuck:
            if seen >= _READINGS and last - begun >= NOTED.value:
                found.append(_Stuck(f"{row.comm}[{row.pid}]", begun, last, lasts))

    for batch in window.matching(Process, "state", "D"):
        now: dict[tuple[int, int], tuple[float, int, Process]] = {}
        for row in batch.rows:
            if row.kernel:  # kernel threads wait in state D for anything, even for work
                continue
            known = since.get((row.pid, row.start_ms)) if batch.follows else None
            if known is None or _ran(known[2], row):
                now[row.pid, row.start_ms] = batch.mono_s, 1, row
            else:
                now[row.pid, row.start_ms] = known[0], known[1] + 1, known[2]
        end(
            (known for name, known in since.items() if now.get(name, (None,))[0] != known[0]), False
        )
        since, last = now, batch.mono_s
    end(since.values(), True)
    return sorted(found, key=lambda task: (-task.seconds, task.task))


def _ran(before: Process, now: Process) -> bool:
    return (before.user_ms, before.system_ms) != (now.user_ms, now.system_ms)


def _logged(
    window: Window, logged: Sequence[Fault], stuck: Sequence[_Stuck], known: Mapping[str, _Lock]
) -> Finding:
    worst = logged[0]
    current = [fault for fault in logged if fault.severity is not Severity.INFO]
    shown = current or list(logged)
    tasks = [fault.thing for fault in shown if fault.what == _HUNG]
    devices = [fault.thing for fault in shown if fault.what != _HUNG]
    locks = {task: known[task] for task in tasks if task in known}
    owners = [lock.owner for lock in locks.values()]
    report = Report(
        _summary(worst, len(tasks), names(devices)) + _held_by(worst.thing, locks),
        {
            "task": names([*tasks, *owners, *(item.task for item in stuck)]),
            "device": names(devices),
        },
        _WRONG,
        (
            *(_owned(task, lock) for task, lock in list(locks.items())[:_SHOWN]),
            *map(_evidence, stuck[:_SHOWN]),
            *_pressed(window),
        ),
    )
    begun = [
        line.wall_s - (line.number("seconds") or 0)
        for fault in shown
        for line in fault.lines
        if line.wall_s is not None
    ]
    made = present(NAME, logged, window, report)
    return replace(made, start=min(begun, default=None))


def _summary(worst: Fault, tasks: int, devices: tuple[str, ...]) -> str:
    if worst.what == _HUNG:
        long = worst.last.number("seconds")
        lasting = f" for more than {duration(long)}" if long else ""
        others = f" (and {count(tasks - 1, 'more task')})" if tasks > 1 else ""
        disks = f"; disk: {', '.join(devices[:2])}" if devices else ""
        return f"{worst.thing} was stuck{lasting}{others}, {worst.when}{disks}"
    if worst.what == _ERRORS:
        return f"I/O errors on {worst.thing}, last {worst.when}{worst.times}"
    what = f"{worst.thing} did not answer"
    if worst.what.startswith(_DROPPED):
        what = f"{worst.thing} was {worst.what}"
    if worst.what.endswith(_SILENT):
        what = f"{worst.what.removesuffix(_SILENT)}{worst.thing} {_SILENT}"
    return f"{what}, {worst.when}{worst.times}"


def _held_by(task: str, locks: Mapping[str, _Lock]) -> str:
    if task not in locks:
        return ""
    lock, last = locks[task], _waits(task, locks)[-1]
    words = f"; waits for a lock ({lock.kind}) likely held by {lock.owner}"
    if last in locks:
        return f"{words}; they wait for each other (deadlock)"
    return words if last == lock.owner else f"{words}, which waits for {last}"


def _owned(task: str, lock: _Lock) -> Evidence:
    return Evidence(
        f"{lock.kind} that {task} waits for, held by",
        lock.owner,
        "held only briefly",
        "task",
        "kernel log",
        None,
        "the lock was released and retaken; this was its owner at that moment",
    )


def _waiting(window: Window, stuck: Sequence[_Stuck]) -> Finding:
    worst = stuck[0]
    over = ""
    if not worst.lasts:
        over = f"; it ended {duration(window.end_mono - worst.end)} before the end of this window"
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if round(worst.seconds, 1) >= STUCK.value else Severity.INFO,
        f"{worst.task}{and_more(stuck)} in uninterruptible sleep for {duration(worst.seconds)},"
        f" without using CPU time{over}",
        entities={"task": names(item.task for item in stuck[:_SHOWN])},
        start=window.wall(worst.start),
        end=window.end if worst.lasts else window.wall(worst.end),
        evidence=(*map(_evidence, stuck[:_SHOWN]), *_pressed(window)),
        missing=kernel_log.lacking(window),
    )


def _evidence(item: _Stuck) -> Evidence:
    return Evidence(
        f"{item.task} in state D",
        duration(item.seconds),
        f"< {STUCK.value:.0f} s",
        "s, at every reading and without CPU time",
        "/proc/PID/stat",
        item.seconds,
        "each reading caught a separate short wait",
    )


def _pressed(window: Window) -> tuple[Evidence, ...]:
    """How much of the window all tasks waited for I/O."""
    share = pressure.whole(window, "io")
    if share is None or share.full is None:
        return ()
    return (
        Evidence(
            "all tasks waited for I/O",
            f"{share.full:.0f} %",
            "depends on the work",
            f"% of {duration(share.seconds)}",
            "/proc/pressure/io",
            share.full,
            "a job that reads a lot waits a lot, and is healthy",
        ),
    )
