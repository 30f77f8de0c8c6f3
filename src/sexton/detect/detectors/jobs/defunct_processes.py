"""Processes have ended and their parent never reaped them.

**What is seen.** Processes in state ``Z`` (defunct) in `/proc/PID/stat`, in the first and the last
reading alike, grouped by the parent that would have to reap them. These are zombie *processes*:
different from the dying memory cgroups of `zombie_memcgs`, with a different cure, and
they hold no memory cgroup, no memory and no CPU.

**Why it hurts.** Each holds a process id and a line in every process list. At tens of thousands
`fork` fails. A few hundred usually mean a container whose first process does not reap.

**What would make it wrong.** Every process is defunct for a moment between its end and its
parent's `wait`: a build or a shell loop always shows a few, so only those that stay are counted.
One reading alone cannot separate them. `hidepid` hides other users' processes.

**Check by hand.** ``ps -eo pid,ppid,stat,comm | awk '$3 ~ /^Z/'``.

**What to do.** Restart or fix the parent: a signal cannot reach a process that has ended;
when the parent ends, init reaps them. Containers: run an init as process 1 (``docker run --init``,
``shareProcessNamespace: true``).
"""

from __future__ import annotations

from collections import Counter

from sexton.detect.findings import absent, unknown, unread
from sexton.detect.registry import Threshold, detector
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.task import Process
from sexton.model.text import count
from sexton.model.window import Window

NAME = "defunct_processes"

NOTED = Threshold(
    "noted", 20, "defunct processes", "a busy build shows a handful at any moment, not twenty"
)
MANY = Threshold(
    "many", 100, "defunct processes", "a hundred that stay mean a parent that never reaps"
)
_SHOWN = 5


@detector(
    needs=(Process,),
    thresholds=(NOTED, MANY),
    title="defunct processes",
    story="Processes ended and were never reaped",
    lanes=("events",),
    about=("task",),
)
def detect(window: Window) -> Finding:
    """How many stay defunct, and which parents do not reap them."""
    edges = window.edges(Process)
    if edges is None:  # recorded, and damaged since
        return unknown(NAME, "processes cannot be read", unread(window, Process))
    first, last = edges[0], edges[1].rows
    # A leader that ended before its threads shows Z too, and cannot be reaped yet.
    defunct = [row for row in last if row.state == "Z" and row.threads <= 1]
    twice = edges[1].mono_s > first.mono_s
    if twice:
        before = {(row.pid, row.start_ms) for row in first.rows if row.state == "Z"}
        defunct = [row for row in defunct if (row.pid, row.start_ms) in before]
    names = {row.pid: row.comm for row in last}
    parents = Counter(row.ppid for row in defunct).most_common(_SHOWN)
    counted = Evidence(
        "defunct processes" + (" that stayed" if twice else ""),
        f"{len(defunct):,}",
        f"< {NOTED.value:.0f}",
        "processes",
        "/proc/PID/stat",
        len(defunct),
        "other users' processes are hidden (hidepid)"
        if twice
        else "one reading also counts those about to be reaped",
    )
    if len(defunct) < NOTED.value:
        few = count(len(defunct), "defunct process", "defunct processes")
        return absent(NAME, f"{few} of {len(last):,}", [counted])
    worst, held = parents[0]
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if len(defunct) >= MANY.value else Severity.INFO,
        f"{len(defunct):,} defunct processes (not dying cgroups), {held:,} of them"
        f" not reaped by {_task(worst, names)}",
        entities={"task": tuple(_task(pid, names) for pid, _ in parents)},
        evidence=(
            counted,
            *(
                Evidence(
                    f"not reaped by {_task(pid, names)}",
                    f"{held:,}",
                    "0",
                    "processes",
                    "/proc/PID/stat",
                    held,
                    "the parent is stopped or being debugged",
                )
                for pid, held in parents
            ),
        ),
    )


def _task(pid: int, names: dict[int, str]) -> str:
    return f"{names.get(pid, '?')}[{pid}]"
