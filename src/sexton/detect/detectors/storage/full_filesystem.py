"""A filesystem has no space or no inodes left.

**What is seen.** Space and inodes of every local filesystem (disks and tmpfs), as statvfs(2) counts
them for users other than root, once a minute; and lines of ext4, btrfs and dm-thin that say that
there was none. The mount point, how much is left and since when are named.

**Why it hurts.** Every write fails with "No space left on device": checkpoints, logs, sockets in
`/run`, shared memory in `/dev/shm` (a process that touches a page there dies of SIGBUS). systemd,
kubelet and databases fail in ways that do not name the disk.

**What would make it wrong.** Root may still write where the filesystem keeps blocks for root (5 %
on ext4 by default), so that a test as root succeeds; the evidence says how much that is. A volume
may be filled on purpose, and a full `/boot` only stops the next kernel update: it is a note.
Filesystems below 16 MiB and read-only ones are not judged. Quotas, and project quotas of
containers, are not seen here. btrfs can be out of space for metadata while statvfs shows plenty.

**Check by hand.** ``df -h``, ``df -i``; ``du -xh --max-depth=2 / | sort -h | tail``;
``lsof +L1`` for deleted files that are still open and keep their space.

**What to do.** Find what grew (``du``), and delete or move it; ``journalctl --vacuum-size=1G``,
``crictl rmi --prune``. For inodes: ``du --inodes -x / | sort -n | tail``, usually a directory of
millions of small files. Then give the writer a limit or a filesystem of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np

from sexton.detect import kernel_log
from sexton.detect.faults import Fault, Judged, Report, fault_evidence, faults, present, unrecorded
from sexton.detect.findings import absent, and_more, names, unknown
from sexton.detect.kernel_log import Line
from sexton.detect.registry import READS, Advice, Averages, Stage, Threshold, detector
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.filesystem import Filesystem
from sexton.model.text import count, size
from sexton.model.window import Window
from sexton.series.filesystems import Levels, levels

NAME = "full_filesystem"
FAMILIES = ("no_space",)

FULL = Threshold("full", 1, "% left", "the next large write fails")
FULL_BYTES = Threshold(
    "bytes left", 1 << 30, "bytes left", "on a large disk one per cent is still a lot"
)
LOW = Threshold("nearly full", 5, "% left", "a job's next checkpoint or image may not fit")
LOW_BYTES = Threshold(
    "few bytes left", 5 << 30, "bytes left", "on a large disk five per cent is still a lot"
)
LEAST = Threshold("judged", 16 << 20, "bytes in size", "smaller ones have one small purpose")
RECENT = Threshold(
    "recent",
    3600,
    "s",
    "a log line about missing space; after that, current usage is better evidence",
)
#: Written to by updates alone.
_BOOT = ("/boot", "/efi")
_SHOWN = 8
_WRONG = "the line is about another filesystem on the same disk"
_GRANT = "sudo sexton diagnose  # on the node itself"


class _Short(NamedTuple):
    """A filesystem that is or was short of something."""

    levels: Levels
    severity: Severity
    inodes: bool
    full: bool
    since: float
    over: bool

    @property
    def until(self) -> float:
        return float(self.levels.mono[-1])

    @property
    def percent(self) -> float:
        mine = self.levels.inodes_percent if self.inodes else self.levels.available_percent
        return float(np.nanmin(mine)) if self.over else float(mine[-1])


def _look(finding: Finding, _window: Window) -> list[Step]:
    point = quote(next(iter(finding.entities.get("mount", ())), "/"))
    inodes = "--inodes " if "inodes" in finding.summary else "-h "
    order = "-n" if "inodes" in finding.summary else "-h"
    command = f"du -x {inodes}--max-depth=2 {point} | sort {order} | tail"
    return [Step(command, "see what takes the space; it reads every directory", READS)]


def _ruled_out(window: Window) -> str:
    return "full disks" if _judgeable(window) else ""


@detector(
    thresholds=(FULL, FULL_BYTES, LOW, LOW_BYTES, LEAST, RECENT),
    title="full filesystem",
    story="A filesystem was full",
    lanes=("events",),
    about=("mount", "device"),
    answers={"mount": 1, "device": 3, "job": 9},
    events=FAMILIES,
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
    averages=Averages((Filesystem,), 120, "a filesystem that is full"),
)
def detect(window: Window) -> Finding:
    """The filesystem with the least left, and all others that are short."""
    known = _judgeable(window)
    short = sorted((item for mine in known for item in _short(mine)), key=_rank)
    lines = kernel_log.lines(window, FAMILIES)
    logged = faults(window, lines, _judged, RECENT.value)
    if short and not (logged and logged[0].severity.rank > short[0].severity.rank):
        return _full(window, short, logged)
    if logged and (logged[0].severity is not Severity.INFO or not known):
        return _logged(window, logged)
    if known:
        return _room(known)
    return _unknown(window)


def _judgeable(window: Window) -> list[Levels]:
    """Filesystems that are written to; an image mounted read-only is full by nature."""
    rows = window.latest(Filesystem) or ()
    closed = {row.mount_point for row in rows if row.read_only or row.mount_read_only}
    return [
        mine
        for mine in levels(window)
        if mine.mount_point not in closed and mine.total[-1] >= LEAST.value
    ]


def _rank(item: _Short) -> tuple[int, bool, float]:
    return -item.severity.rank, item.over, item.percent


def _short(mine: Levels) -> list[_Short]:
    found = []
    for inodes in (False, True):
        percent = mine.inodes_percent if inodes else mine.available_percent
        if np.isnan(percent).all():
            continue
        left = np.zeros(len(percent)) if inodes else mine.available  # inodes have no size
        full = (percent < FULL.value) & (left < FULL_BYTES.value)
        low = (percent < LOW.value) & (left < LOW_BYTES.value)
        begun, over = mine.since(full), not full[-1]
        if begun is None:
            begun, over = (mine.since(low) if low[-1] else None), False
        if begun is None:
            continue
        is_full = bool(full[-1])
        severity = Severity.CRITICAL if is_full else Severity.WARNING
        found.append(_Short(mine, _lesser(mine, severity), inodes, is_full, begun, over))
    return found


def _lesser(mine: Levels, severity: Severity) -> Severity:
    boot = any(mine.mount_point == top or mine.mount_point.startswith(f"{top}/") for top in _BOOT)
    return Severity.INFO if boot else severity


def _judged(line: Line) -> Judged:
    return Judged(line.text("device") or "?", "no space left", Severity.WARNING)


def _full(window: Window, short: Sequence[_Short], logged: Sequence[Fault]) -> Finding:
    worst = short[0]
    shown = [item for item in short if item.severity is worst.severity]
    points = names(item.levels.mount_point for item in shown)
    devices = {row.mount_point: row.device for row in window.latest(Filesystem) or ()}
    return Finding(
        NAME,
        Verdict.PRESENT,
        worst.severity,
        _summary(worst) + and_more(short),
        entities={"mount": points, "device": names(devices.get(point) for point in points)},
        start=window.wall(min(item.since for item in shown)),
        end=window.wall(max(item.until for item in shown)),
        evidence=(
            *(line for item in short[:_SHOWN] for line in _evidence(item)),
            *fault_evidence(logged[:_SHOWN], window, _WRONG),
        ),
    )


def _summary(item: _Short) -> str:
    mine = item.levels
    if item.inodes and item.over:
        return f"{mine.mount_point} had {item.percent:.1f} % of its inodes left, and has more now"
    if item.inodes:
        left = f"{mine.free_inodes[-1]:,.0f} inodes left ({item.percent:.1f} %)"
        nearly = "" if item.full else "nearly "
        return f"{mine.mount_point} is {nearly}out of inodes: {left}"
    if item.over:
        least = size(float(np.nanmin(mine.available)))
        return f"{mine.mount_point} was full ({least} left), and has more now"
    state = "is full" if item.full else "is nearly full"
    return (
        f"{mine.mount_point} {state}: {size(float(mine.available[-1]))} of"
        f" {size(float(mine.total[-1]))} left ({item.percent:.1f} %)"
    )


def _evidence(item: _Short) -> list[Evidence]:
    mine = item.levels
    what = f"{'inodes' if item.inodes else 'space'} left on {mine.mount_point}"
    made = [
        Evidence(
            what,
            f"{item.percent:.1f} %",
            f">= {LOW.value:.0f} %",
            "% of its inodes" if item.inodes else "% of its size, for users other than root",
            "statvfs(2)",
            item.percent,
            "it is meant to be full",
        )
    ]
    if not item.inodes and mine.free[-1] > mine.available[-1]:
        made.append(
            Evidence(
                f"reserved for root on {mine.mount_point}",
                size(float(mine.free[-1])),
                "5 % on ext4",
                "bytes, including what all users may use",
                "statvfs(2)",
                float(mine.free[-1]),
                "the writer runs as root",
            )
        )
    return made


def _logged(window: Window, logged: Sequence[Fault]) -> Finding:
    """Only in the log: the filesystem was full for seconds, or reports space it does not have."""
    worst = logged[0]
    rows = [row for row in window.latest(Filesystem) or () if row.device == worst.thing]
    where = f"{rows[0].mount_point} ({worst.thing})" if rows else worst.thing
    devices = names(fault.thing for fault in logged if fault.severity is worst.severity)
    report = Report(
        f"no space was left on {where} {worst.when}{worst.times}",
        {"device": devices, "mount": tuple(row.mount_point for row in rows)},
        _WRONG,
    )
    return present(NAME, logged, window, report)


def _room(known: Sequence[Levels]) -> Finding:
    least = min(known, key=lambda mine: float(mine.available_percent[-1]))
    percent = float(least.available_percent[-1])
    left = Evidence(
        f"space left on {least.mount_point}",
        f"{percent:.0f} %",
        f">= {LOW.value:.0f} %",
        "% of its size, for users other than root",
        "statvfs(2)",
        percent,
        "a quota ends earlier, or btrfs is out of space for metadata",
    )
    summary = f"{count(len(known), 'filesystem')}, the fullest is {least.mount_point}:"
    summary += f" {size(float(least.available[-1]))} left ({percent:.0f} %)"
    return absent(NAME, summary, [left])


def _unknown(window: Window) -> Finding:
    rows = window.latest(Filesystem)
    if rows is None:
        lacking = unrecorded(window, Filesystem)
        return unknown(NAME, "filesystem usage is unknown", (lacking,))
    hung = next((row for row in rows if row.hung), None)
    if hung is not None:
        lacking = Missing(
            f"{hung.mount_point}: statvfs(2) did not answer", f"df {hung.mount_point}"
        )
        return unknown(NAME, f"{hung.mount_point} did not report its usage", (lacking,))
    lacking = Missing("statvfs(2) of the node's filesystems", _GRANT)
    return unknown(NAME, "a file tree does not contain filesystem usage", (lacking,))
