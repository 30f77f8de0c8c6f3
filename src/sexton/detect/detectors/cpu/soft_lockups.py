"""The kernel itself reported a core that did not schedule.

**What is seen.** Lines of the kernel's own watchdogs in its log: ``BUG: soft lockup - CPU#5 stuck
for 23s! [kubelet:2113]`` (no task switch for 20 s and more), hard lockups (not even timer
interrupts), RCU stalls (a core that did not pass a quiescent state for 21 s and more) and workqueue
stalls (the kernel's own workers of a core did not get on for 30 s and more; not every kernel looks
for them).

**Why it hurts.** Nothing else ran on that core: no NAPI poll, no timers, no heartbeats. It is the
same problem as `saturated_core`, longer, and reported by the kernel.

**What would make it wrong.** A virtual machine that was paused, migrated or starved by its host
reports lockups of cores that had nothing to do with it: look for several cores at the same second
and for steal time. The log is a ring buffer that drops old lines: the finding says how far back it
goes. A pool of workers that serves several cores names none. The task named is the one that was on
the core, which may be the victim of a lock held elsewhere.

**Check by hand.** ``dmesg -T | grep -E 'lockup|stall'`` and the stack below each line.

**What to do.** Read the stack's topmost kernel function: `mem_cgroup_*` and `css_next_*` point at
`zombie_memcgs`, `shrink_*` at reclaim, a driver's name at that driver. Keep the whole trace before
a reboot takes it away: ``dmesg > lockup.txt``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.detect import kernel_log
from sexton.detect.findings import absent, names
from sexton.detect.kernel_log import DAY_S, NO_REACH, Burst, Line, Reach
from sexton.detect.registry import Threshold, detector
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.event import KernelLog
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window

NAME = "soft_lockups"

RECENT = Threshold(
    "recent", DAY_S, "s", "a lockup today may be what broke the job; an older one is history"
)
ONE_STALL = Threshold(
    "one stall",
    60,
    "s between lines",
    "the watchdog repeats its message every 20 s while a core hangs",
)

FAMILIES = {
    "soft_lockup": "soft lockup",
    "hard_lockup": "hard lockup",
    "rcu_stall": "RCU stall",
    "workqueue_lockup": "workqueue stall",
}
_SHOWN = 8


@detector(
    needs=(KernelLog,),
    thresholds=(RECENT, ONE_STALL),
    title="soft lockups",
    story="A core was locked up",
    lanes=("cores", "events"),
    about=("core", "task"),
    answers={"core": 2, "task": 2, "function": 2},
    events=tuple(FAMILIES),
)
def detect(window: Window) -> Finding:
    """Which cores hung, how long, and what ran on them."""
    reach = kernel_log.reach(window) or NO_REACH
    lines = kernel_log.lines(window, FAMILIES)
    if not lines:
        off = "the watchdog is off (kernel.watchdog = 0)"
        none = reach.no_lines("lockups and RCU stalls in the kernel log", off)
        return absent(NAME, f"0 lockups or RCU stalls {reach.words}", [none])
    stalls = kernel_log.bursts(lines, _subject, ONE_STALL.value)
    recent = [stall for stall in stalls if stall.age_s is not None and stall.age_s <= DAY_S]
    undated = [stall for stall in stalls if stall.age_s is None]
    shown = recent or undated or stalls
    logged = [line for stall in shown for line in stall.lines]
    severity = Severity.CRITICAL if recent else Severity.WARNING if undated else Severity.INFO
    dated = [line for line in logged if line.wall_s is not None]
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        _summary(shown, bool(recent), bool(undated)),
        entities={
            "core": names(map(_core, reversed(logged))),
            "task": names(map(_task, reversed(logged))),
        },
        start=min(((line.wall_s or 0.0) - _stuck(line) for line in dated), default=None),
        end=max((line.wall_s or 0.0 for line in dated), default=None),
        evidence=tuple(_evidence(stall, reach) for stall in reversed(shown[-_SHOWN:])),
    )


def _subject(line: Line) -> str:
    """Lines about one stall share this: its kind and core; RCU names its cores in other lines."""
    core = "" if line.event.family == "rcu_stall" else _core(line) or ""
    return f"{line.event.family} {core}"


def _core(line: Line) -> str | None:
    return line.text("cpu")


def _task(line: Line) -> str | None:
    comm, pid = line.text("comm"), line.number("pid")
    return None if comm is None or pid is None else f"{comm}[{pid}]"


def _stuck(line: Line) -> float:
    return float(line.number("seconds") or 0)


def _worst(burst: Burst) -> Line:
    """The most informative line: the longest time, else the one that names a core."""
    return max(burst.lines, key=lambda line: (_stuck(line), _core(line) is not None))


def _summary(shown: Sequence[Burst], is_recent: bool, is_undated: bool) -> str:
    worst = max(shown, key=lambda burst: _stuck(_worst(burst)))
    line = _worst(worst)
    core, task, stuck = _core(line), _task(line), _stuck(line)
    where = f" of core {core}" if core is not None else ""
    long = f" for {duration(stuck)}" if stuck else ""
    by = f" in {task}" if task else ""
    age = f", {duration(line.age_s)} ago" if line.age_s is not None else ""
    when = "in 24 h" if is_recent else "at an unknown time" if is_undated else "before today"
    kind = FAMILIES[line.event.family]
    if len(shown) == 1:
        return f"1 {kind}{where}{long}{by}{age or ' ' + when}"
    total = count(len(shown), "lockup or stall", "lockups or stalls")
    return f"{total} {when}; the worst a {kind}{where}{long}{by}{age}"


def _evidence(burst: Burst, reach: Reach) -> Evidence:
    line = _worst(burst)
    core, stuck, task = _core(line), _stuck(line), _task(line)
    age = f", {duration(line.age_s)} ago" if line.age_s is not None else ""
    where = f" of core {core}" if core is not None else ""
    return Evidence(
        f"{FAMILIES[line.event.family]}{where}{age}",
        " by ".join(part for part in (duration(stuck) if stuck else "reported", task) if part),
        "never",
        "report" if not stuck else "s" if core is None else "s without a schedule",
        reach.origin,
        stuck or None,
        "the virtual machine itself was paused",
    )
