"""A filesystem stopped working: remounted read-only, shut down, or full of errors.

**What is seen.** Lines of ext4, XFS and btrfs in the kernel log (``Remounting filesystem
read-only``, ``Shutting down filesystem``, ``forced readonly``, ``EXT4-fs error``, ``csum failed``),
and `/proc/self/mountinfo`: a filesystem that is read-only although it was mounted for writing, or
that became read-only during the window.

**Why it hurts.** Every write fails with "Read-only file system" or "Input/output error" from one
moment to the next. What runs goes on until it writes: checkpoints, logs, container layers. After
an XFS shutdown even reading fails.

**What would make it wrong.** Somebody may have remounted it (``mount -o remount,ro``): then there
is no line of the filesystem's own. A disk that was pulled, a detached volume or a snapshot of a
cloud's control plane ends the same way, and the filesystem is not to blame. Errors alone, with
``errors=continue``, leave it writable; they are a warning. A filesystem that was unmounted or can
be written to again since is a note. That XFS was shut down is in the log alone, so it counts for a
day even if it was repaired. The same holds for ext4 on kernels that still show it as ``rw`` after
an error (6.12 to 6.14, stable kernels since October 2024), until the line of a later mount.

**Check by hand.** ``dmesg -T | grep -E 'EXT4-fs|XFS|BTRFS'``; ``findmnt -o TARGET,SOURCE,OPTIONS``;
``touch`` a file on it.

**What to do.** Look at the disk below it first (`stuck_io`, ``smartctl -a``, the cloud's volume
status). Move the work away, unmount it, and check it (``e2fsck -f``, ``xfs_repair``): remounting it
for writing without a check makes the damage larger. Data that is not what was written (btrfs,
``csum failed``): ``btrfs scrub start``, restore the file, and test the memory (`memory_errors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from sexton.detect import kernel_log
from sexton.detect.block_devices import disk_of
from sexton.detect.faults import (
    Fault,
    Judged,
    Report,
    fault_evidence,
    faults,
    none_logged,
    present,
    unrecorded,
)
from sexton.detect.findings import absent, and_more, names, unknown
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import READS, Advice, Stage, Threshold, detector
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.filesystem import Filesystem
from sexton.model.text import count
from sexton.model.window import Window

NAME = "filesystem_errors"
FAMILIES = ("filesystem",)

RECENT = Threshold(
    "recent",
    DAY_S,
    "s",
    "it does not repair itself; after a day without a log line it was repaired",
)
_WRONG = "the disk was detached on purpose"
_REMOUNTED, _ERRORS = "remounted read-only", "errors"
_EXT = frozenset({"ext2", "ext3", "ext4"})
_SHOWN = 8


def _ruled_out(window: Window) -> str:
    return "read-only disks" if window.read(Filesystem) else ""


def _look(finding: Finding, _window: Window) -> list[Step]:
    device = next(iter(finding.entities.get("device", ())), "")
    if not device:
        return [Step("findmnt -o TARGET,SOURCE,OPTIONS", "see which mounts are read-only", READS)]
    return [
        Step(
            f"dmesg -T | grep -F {quote(disk_of(device))}",
            "see what the disk logged before the filesystem failed",
            READS,
        )
    ]


@detector(
    thresholds=(RECENT,),
    title="filesystem errors",
    story="A filesystem stopped working",
    lanes=("events",),
    about=("mount", "device"),
    answers={"mount": 2, "device": 2, "job": 8},
    events=FAMILIES,
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
)
def detect(window: Window) -> Finding:
    """Which filesystems stopped writing, and what they logged."""
    lines = kernel_log.lines(window, FAMILIES)
    logged = _current(window, lines, faults(window, lines, _judged, RECENT.value))
    closed = _closed(window)
    if closed:
        return _read_only(window, closed, logged)
    if logged:
        return _logged(window, logged)
    log_read, rows = kernel_log.was_read(window), window.latest(Filesystem)
    if not log_read and rows is None:
        lacking = (unrecorded(window, Filesystem), *kernel_log.lacking(window))
        return unknown(NAME, "neither the mounts nor the kernel log were read", lacking)
    states = () if rows is None else (_writable(rows),)
    if log_read:
        return none_logged(NAME, "filesystem errors", window, states)
    summary = f"{count(len(rows or ()), 'filesystem')}, none read-only because of an error"
    return absent(NAME, summary, states, kernel_log.lacking(window))


def _judged(line: Line) -> Judged | None:
    device, phase = line.text("device") or "?", line.text("phase")
    if phase == "done":  # mounted
        return None
    if phase == "read-only":
        return Judged(device, _REMOUNTED, Severity.CRITICAL)
    if phase == "shut down":
        return Judged(device, "shut down", Severity.CRITICAL)
    return Judged(device, _ERRORS, Severity.WARNING)


def _current(window: Window, lines: Sequence[Line], logged: list[Fault]) -> list[Fault]:
    """Faults of filesystems that were unmounted or can be written to again are notes, unless they
    happened in this window. In a container, whose mounts are its own, all faults stay as they are.
    """
    rows = window.latest(Filesystem)
    if rows is None or (window.node is not None and window.node.container is not None):
        return logged
    mounts = {row.device: row for row in rows}
    mounted = {line.text("device"): line for line in lines if line.text("phase") == "done"}
    found = []
    for fault in logged:
        row = mounts.get(fault.thing)
        # mountinfo does not show that XFS was shut down, nor errors; of ext4 not on every kernel.
        over = row is None or (fault.what == _REMOUNTED and not row.read_only)
        if over and row is not None and row.fstype in _EXT:
            again = mounted.get(fault.thing)
            over = again is not None and (again.age_s or 0.0) <= (fault.last.age_s or 0.0)
        found.append(fault._replace(severity=_lesser(window, fault)) if over else fault)
    return sorted(found, key=lambda fault: -fault.severity.rank)


def _lesser(window: Window, fault: Fault) -> Severity:
    at = fault.last.wall_s
    inside = at is not None and window.start <= at <= window.end
    if inside and not fault.thing.startswith("loop"):  # a file: an image that is built or tested
        return min(fault.severity, Severity.WARNING, key=lambda severity: severity.rank)
    return Severity.INFO


def _closed(window: Window) -> list[Filesystem]:
    """Filesystems that are read-only now and were meant to be written to."""
    writable = {
        row.mount_point
        for row in window.changes(Filesystem, ("read_only", "mount_read_only"))
        if not row.read_only
    }
    return [
        row
        for row in window.latest(Filesystem) or ()
        if row.read_only and (not row.mount_read_only or row.mount_point in writable)
    ]


def _read_only(window: Window, closed: list[Filesystem], logged: list[Fault]) -> Finding:
    """The mounts show that it is read-only; the log shows why."""
    devices = names(row.device for row in closed)
    mine = [fault for fault in logged if fault.thing in devices]
    first = closed[0]
    grave = bool(mine) or not first.mount_read_only
    why = f"; {mine[0].what} {mine[0].when}" if mine else "; the log does not say why"
    dated = [line.wall_s for fault in mine for line in fault.lines if line.wall_s is not None]
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.CRITICAL if grave else Severity.WARNING,
        f"{_place(first)} is read-only{why}{and_more(closed)}",
        entities={"mount": names(row.mount_point for row in closed), "device": devices},
        start=min(dated, default=_began(window, first)),
        end=window.end,
        evidence=(
            *(
                Evidence(
                    f"state of {_place(row)}",
                    "read-only",
                    "read-write",
                    "mounted read-write" if not row.mount_read_only else "was read-write before",
                    "/proc/self/mountinfo",
                    None,
                    "someone remounted it on purpose",
                )
                for row in closed[:_SHOWN]
            ),
            *fault_evidence((mine or logged)[:_SHOWN], window, _WRONG),
        ),
        missing=kernel_log.lacking(window),
    )


def _began(window: Window, row: Filesystem) -> float | None:
    """When it was first read as read-only, if it was seen writable before."""
    before = None
    for batch in window.batches(Filesystem) or ():
        state = next((one for one in batch.rows if one.mount_point == row.mount_point), None)
        if state is not None and state.read_only and before is False:
            return batch.wall_s
        before = state.read_only if state is not None else before
    return None


def _place(row: Filesystem) -> str:
    return f"{row.mount_point} ({', '.join(part for part in (row.device, row.fstype) if part)})"


def _logged(window: Window, logged: list[Fault]) -> Finding:
    worst = logged[0]
    rows = {row.device: row for row in window.latest(Filesystem) or () if row.device}
    shown = [fault for fault in logged if fault.severity is worst.severity]
    devices = names(fault.thing for fault in shown)
    where = _place(rows[worst.thing]) if worst.thing in rows else worst.thing
    was = f"errors on {where}" if worst.what == _ERRORS else f"{where} was {worst.what}"
    others = f"; also {', '.join(devices[1:3])}" if len(devices) > 1 else ""
    report = Report(
        f"{was} {worst.when}{worst.times}{others}",
        {
            "device": devices,
            "mount": names(rows[name].mount_point for name in devices if name in rows),
        },
        _WRONG,
    )
    return present(NAME, logged, window, report)


def _writable(rows: tuple[Filesystem, ...]) -> Evidence:
    return Evidence(
        "filesystems read-only because of an error",
        f"0 of {len(rows):,}",
        "0",
        "local filesystems",
        "/proc/self/mountinfo",
        0.0,
        "it is visible only in another mount namespace",
    )
