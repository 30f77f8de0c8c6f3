"""A systemd unit or a pod's container dies and is restarted, again and again.

**What is seen.** Per service: automatic restarts in the window and since boot (`NRestarts`, with a
new baseline whenever it went down), whether it waits for its next start right now
(`activating (auto-restart)`, which `systemctl --failed` does not list), and its period: restart
delay plus the time it ran. Per container of a pod (CrashLoopBackOff): how often the kubelet has
started it, by the number of its log, and when.

**Why it hurts.** Each start creates a cgroup and each death may leave a dying memory cgroup: one
every 10 s is 60,000 a week. systemd gives up only after 5 starts within 10 s; a unit that waits 2 s
or more between them never reaches that limit and goes on forever.

**What would make it wrong.** `NRestarts` ignores restarts by hand and is cleared by
``systemctl reset-failed``, so a loop may be older than it says. A unit that ends with status 0 and
is restarted may be a job that is meant to run in a loop; the summary says so. Whether anything here
needs the unit cannot be known from its restarts, and is not claimed. A container that its agent
recreates shows no restart at all: see *cgroup_churn*.

**Check by hand.** ``systemctl list-units --state=activating``, then
``systemctl show -p NRestarts,RestartUSec,ExecMainStatus UNIT`` twice, and
``journalctl -u UNIT -n 50`` for the reason. Of a container: ``kubectl -n NAMESPACE get pod POD``
and ``kubectl -n NAMESPACE logs POD -c CONTAINER --previous``.

**What to do.** Find out why it dies and fix that. If nothing on the node uses it: ``systemctl
disable --now UNIT`` and ``systemctl mask UNIT``. Never do that to units a node cannot run without
(kubelet, containerd, kube-proxy, sshd, network, storage, node-exporter): those are marked
*protected*, and have to be fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from signal import Signals
from typing import NamedTuple

from sexton.detect.findings import absent, and_more, names, not_applicable, unknown, unread
from sexton.detect.kubernetes.pods import PodPart
from sexton.detect.protected import protected
from sexton.detect.registry import (
    ANY_INTERVAL,
    Advice,
    Averages,
    Stage,
    Threshold,
    Treatment,
    detector,
)
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cgroup import CgroupDir
from sexton.model.rows.unit import RestartMark, ServiceManager, Unit
from sexton.model.text import count, printable, seconds
from sexton.model.window import Window
from sexton.series.restarts import Restarts, Seen, containers, restarts, units, without_fault

NAME = "crash_looping_unit"

AGAIN = Threshold(
    "again", 2, "restarts in the window", "one may be an upgrade or a transient fault"
)
WAITING = Threshold(
    "waiting", 3, "restarts so far", "and waiting for the next: the third time is a loop"
)
STEADY = Threshold(
    "steady", 20, "restarts so far", "and still restarting, by the mean time between restarts"
)
RARELY = Threshold("rarely", 3600, "s between restarts", "less than one an hour is not a loop")
ENDLESS = Threshold("endless", 100, "restarts so far", "this does not end by itself")
LIMIT = Threshold(
    "start limit", 10, "s for 5 starts", "systemd's default: StartLimitBurst=5 in 10 s"
)
SEEN = Threshold(
    "seen",
    5,
    "restarts in the window",
    "enough to measure its period; below that its settings are used",
)
BACK_OFF = Threshold(
    "back off", 300, "s between restarts", "the longest that a kubelet waits (MaxContainerBackOff)"
)
_STARTS = 5
KUBELET = "numbers and times of its logs, /var/log/containers"
#: With these a unit that ended cleanly would not have been started again.
_ONLY_AFTER_FAULTS = frozenset({"on-failure", "on-abnormal", "on-abort", "on-watchdog"})
_MOST = 8
_NEVER = Restarts(0, 0.0, 0, False, (None, None), None)
_ALL = (AGAIN, WAITING, STEADY, RARELY, ENDLESS, LIMIT, SEEN, BACK_OFF)


class _Loop(NamedTuple):
    """One unit or container, and its restarts."""

    seen: Seen
    restarts: Restarts
    part: PodPart | None = None

    @property
    def unit(self) -> Unit:
        return self.seen.unit

    @property
    def recent(self) -> int:
        return self.restarts.recent

    @property
    def total(self) -> int:
        return self.restarts.total

    @property
    def period_s(self) -> float | None:
        return self.restarts.period_s(SEEN.value)

    @property
    def never_trips(self) -> bool:
        """Does its period keep it from ever reaching systemd's start limit? A kubelet has none."""
        if self.part is not None:
            return True
        every = self.period_s or self.seen.delay_s
        return every is not None and every * _STARTS > LIMIT.value

    @property
    def clean(self) -> bool:
        """Was it seen to end without a fault?"""
        if self.unit.restart_policy in _ONLY_AFTER_FAULTS:
            return False
        return self.seen.ended is not None and without_fault(self.seen.ended)

    @property
    def severity(self) -> Severity:
        lasting = self.total >= ENDLESS.value or (self.total >= STEADY.value and self.never_trips)
        return Severity.CRITICAL if lasting and not self.clean else Severity.WARNING


def _stop(finding: Finding, _window: Window) -> list[Step]:
    """Read its log, then stop it; units that a node cannot run without are never stopped."""
    steps = []
    for pod in finding.entities.get("pod", ())[:3]:
        namespace, _, name = pod.partition("/")
        read = f"kubectl -n {quote(namespace)} logs {quote(name)} --all-containers --previous"
        steps.append(Step(read, f"find out why a container of {pod} dies", "none (reads the log)"))
    for unit in finding.entities.get("unit", ())[:3]:
        why = f"find out why {unit} dies"
        log = Step(f"journalctl -u {quote(unit)} -n 50", why, "none (reads the log)")
        if (needed_for := protected(unit)) is not None:
            steps.append(Step(log.do, f"{log.why}; do not disable it: {needed_for}", log.risk))
            continue
        steps.append(log)
        steps.append(
            Step(
                f"systemctl disable --now {quote(unit)} && systemctl mask {quote(unit)}",
                "if nothing here uses it: stops the source; undo with unmask and enable",
                "whatever depends on it stops working",
            )
        )
    return steps


@detector(
    needs=(ServiceManager,),
    thresholds=_ALL,
    title="crash-looping unit",
    story="A unit crashes and restarts",
    lanes=("restarts", "memcgs"),
    about=("unit", "cgroup", "container", "pod"),
    answers={"unit": 1},
    essential=4,
    advice=Advice(Stage.STOP, _stop),
    events=("restart",),
    treatments=(Treatment.STOP_UNITS,),
    averages=Averages((ServiceManager, Unit), ANY_INTERVAL, "restarts"),
)
def detect(window: Window) -> Finding:
    """Every unit in a loop, the one with the most restarts first."""
    manager = next(iter(window.latest(ServiceManager) or ()), None)
    inside = list(_containers(window))
    if not inside and (manager is None or manager.name != "systemd"):
        who = f"PID 1 is {manager.name}" if manager is not None else "none answered"
        return not_applicable(NAME, f"no service manager here restarts units ({who})")
    if not inside and not window.read(Unit):
        what = "systemd answered, but its units were not read"
        return unknown(NAME, what, unread(window, Unit))
    counts, rows = restarts(window), dict(units(window))
    if rows and not counts and not inside and not window.read(RestartMark):
        text = "systemd before 235 does not count restarts, and no journal was read"
        return unknown(NAME, text, unread(window, RestartMark))
    rows |= {
        name: Seen(_unlisted(name), None)
        for name, counted in counts.items()
        if counted.recent and name not in rows
    }
    seen = [_Loop(unit, counts.get(name, _NEVER)) for name, unit in rows.items()]
    loops = sorted(
        (*(loop for loop in seen if _is_loop(loop, window)), *inside),
        key=lambda loop: (-loop.severity.rank, -loop.total, loop.unit.name),
    )
    if loops:
        return _looping(window, loops)
    undated = [loop for loop in seen if loop.total >= STEADY.value and _is_undated(loop.unit)]
    if undated:
        most = max(undated, key=lambda loop: loop.total)
        text = f"{most.unit.name} restarted {count(most.total, 'time')} so far, not in this window"
        what = "when it was started last: a slow loop may be longer than this window"
        show = f"systemctl show -p NRestarts,ExecMainStartTimestamp {quote(most.unit.name)}"
        return unknown(NAME, text, [Missing(what, show)])
    return _calm(seen)


def _is_undated(unit: Unit) -> bool:
    """Prometheus counts a unit's restarts and says nothing else of it."""
    return unit.main_start_us is None and not unit.active_state


def _unlisted(name: str) -> Unit:
    """A unit whose restarts only the journal has: the list of units was cut."""
    return Unit(
        name, load_state="", active_state="", sub_state="", file_state=None, restarts=None,
        restart_policy=None, restart_delay_us=None, main_start_us=None, main_exit_us=None,
        active_enter_us=None, result=None, exit_status=None, cgroup=None, cgroup_origin="",
    )  # fmt: skip


def _is_loop(loop: _Loop, window: Window) -> bool:
    if loop.recent >= AGAIN.value:
        return True
    waits = loop.unit.active_state == "activating" and "auto-restart" in loop.unit.sub_state
    if (waits or loop.recent) and loop.total >= WAITING.value:
        return True
    return loop.total >= STEADY.value and _still_at_it(loop, window)


def _containers(window: Window) -> Iterator[_Loop]:
    """Containers in a loop. Back-off grows to 5 min, so a short window may not show a restart: then
    the last two starts tell, or that it is dead so soon after its last one."""
    live = [row.path for row in window.latest(CgroupDir) or ()]
    for (namespace, pod, name), counted in containers(window).items():
        part, known = PodPart(namespace, pod, name), counted.restarts
        every, age = known.period_s(SEEN.value), window.end - counted.last_s
        lasts = every is not None and age <= 2 * every <= 2 * RARELY.value
        if not lasts and live and known.total >= WAITING.value and age <= 2 * BACK_OFF.value:
            lasts = not any(counted.id in path for path in live)
        if known.recent >= AGAIN.value or (known.total >= WAITING.value and lasts):
            yield _Loop(Seen(_unlisted(part.words), None), known, part)


def _still_at_it(loop: _Loop, window: Window) -> bool:
    """Whether its last start fits the mean time between restarts, and it was not stopped or given
    up on since."""
    if loop.unit.sub_state in ("dead", "failed"):
        return False
    started = (loop.unit.main_start_us or 0) / 1e6
    age = window.end_mono - started
    mean = window.end_mono / loop.total
    return bool(started) and 0 <= age <= 2 * mean and mean <= RARELY.value


def _looping(window: Window, loops: list[_Loop]) -> Finding:
    worst = loops[0]
    noun = "unit" if any(loop.part is None for loop in loops) else "container"
    every = f" every {seconds(worst.period_s)}" if worst.period_s else ""
    times = f"{count(worst.total, 'time')} so far, {worst.recent:,} in this window"
    return Finding(
        NAME,
        Verdict.PRESENT,
        max((loop.severity for loop in loops), key=lambda severity: severity.rank),
        f"{worst.unit.name} restarts{every}, {times}{_end(worst)}{and_more(loops, noun)}",
        entities={
            "unit": tuple(loop.unit.name for loop in loops if loop.part is None),
            "cgroup": tuple(loop.unit.cgroup for loop in loops if loop.unit.cgroup),
            "container": tuple(loop.part.words for loop in loops if loop.part is not None),
            "pod": names(loop.part.name for loop in loops if loop.part is not None),
        },
        start=window.start,
        end=window.end,
        evidence=tuple(line for loop in loops[:_MOST] for line in _evidence(loop)),
    )


#: systemd's results for which ExecMainStatus is the number of a signal.
_BY_SIGNAL = ("signal", "core-dump")
_SIGNALS = {signal.value: signal.name for signal in Signals}


def _end(loop: _Loop) -> str:
    if loop.clean:
        return ", ending cleanly each time"
    ended = loop.seen.ended
    if ended is None or not ended.exit_status:
        return ""
    if ended.result == "oom-kill":
        return ", killed by the OOM killer"
    if ended.result in _BY_SIGNAL and ended.exit_status in _SIGNALS:
        return f", killed by {_SIGNALS[ended.exit_status]}"
    return f", exit status {ended.exit_status}"


def _evidence(loop: _Loop) -> list[Evidence]:
    unit = loop.unit
    evidence = [
        Evidence(
            f"restarts of {unit.name}",
            f"{loop.total:,} so far, {loop.recent:,} in this window"
            + (" (counter cleared meanwhile)" if loop.restarts.rebased else ""),
            "0",
            "restarts",
            _counter(loop),
            float(loop.total),
            "it is meant to run in a loop" if loop.clean else "it is being deployed right now",
        )
    ]
    if loop.clean:
        evidence.append(
            Evidence(
                _exit_of(unit.name),
                "status 0, result success",
                "not restarted after it",
                "exit status",
                "systemd ExecMainStatus, Result",
                0.0,
                "runs that were not seen ended with a fault",
            )
        )
    if loop.period_s is not None:
        computed = ""
        if loop.period_s == loop.restarts.settings_s:
            delay, ran = loop.seen.delay_s or 0, loop.seen.run_s or 0
            computed = f" = RestartSec {seconds(delay)} + run {seconds(ran)}"
        by_journal = loop.period_s == loop.restarts.measured_s[1]
        measured = "restart counter in the journal" if by_journal else "systemd NRestarts, twice"
        measured = measured if loop.part is None else KUBELET
        evidence.append(
            Evidence(
                f"period of {unit.name}",
                f"{seconds(loop.period_s)}{computed}",
                "none",
                "s",
                "systemd RestartUSec, ExecMain timestamps" if computed else measured,
                loop.period_s,
                "its runs differ in length",
            )
        )
    if loop.never_trips and loop.part is None:
        starts_s = _STARTS * (loop.period_s or loop.seen.delay_s or 0)
        evidence.append(
            Evidence(
                f"start limit of {unit.name}",
                f"never trips: {_STARTS} starts take {seconds(starts_s)}",
                f"{_STARTS} starts in {LIMIT.value:.0f} s end a loop",
                "s",
                "systemd RestartUSec against the default start limit",
                starts_s,
                "the unit sets its own start limit",
            )
        )
    if (why := protected(unit.name)) is not None:
        evidence.append(
            Evidence(
                f"{unit.name} is protected",
                f"fix it, never disable it: {why}",
                "runs",
                "advice",
                "Sexton's list of units a node cannot run without",
                wrong_if="it is another program of that name, or this node does not need it",
            )
        )
    return evidence


def _counter(loop: _Loop) -> str:
    if loop.part is not None:
        return KUBELET
    if loop.unit.active_state:
        return f"systemd NRestarts; {loop.unit.active_state} ({loop.unit.sub_state})"
    return "restart counter in the journal; systemd did not list the unit"


def exits_cleanly(finding: Finding, unit: str) -> bool:
    """Was this unit of the finding seen to end without a fault?"""
    return any(evidence.what == _exit_of(unit) for evidence in finding.evidence)


def _exit_of(unit: str) -> str:
    return printable(f"clean exit of {unit}")


def _calm(seen: list[_Loop]) -> Finding:
    most = max(seen, key=lambda loop: loop.total, default=None)
    gave_up = [loop.unit.name for loop in seen if loop.unit.result == "start-limit-hit"]
    text = f"{count(len(seen), 'service')}, none in a restart loop"
    if most is not None and most.total:
        text += f"; most restarts {most.unit.name} {most.total:,}"
    evidence = [
        Evidence(
            "most restarts of a unit" + (f", {most.unit.name}" if most else ""),
            f"{most.total if most else 0:,}",
            "0, or a few",
            "restarts",
            "systemd NRestarts",
            float(most.total if most else 0),
            "the counter was cleared by reset-failed",
        )
    ]
    if gave_up:
        evidence.append(
            Evidence(
                "units that systemd gave up on",
                ", ".join(sorted(gave_up)[:_MOST]),
                "none",
                "units",
                "systemd Result=start-limit-hit",
                float(len(gave_up)),
                "the fault is old: reset-failed was never run",
            )
        )
    return absent(NAME, text, evidence)
