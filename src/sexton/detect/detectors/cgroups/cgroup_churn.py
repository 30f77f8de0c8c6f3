"""Cgroups die in a loop under one parent: a container or a job is recreated again and again.

**What is seen.** How many cgroups were removed per second, by parent and by what their names have
in common (`docker/<64 digits>`, `run-*`; ten names, each used once, are random and of one kind),
whether each was released, and whether they are removed at regular intervals. From tracefs if
available; else from the directories of two counts, which is a lower bound and labelled as one.

**Why it hurts.** An agent that recreates its container forever shows no restart in systemd
(`NRestarts` stays 0), but leaves a dying memory cgroup each time if something pins it.

**What would make it wrong.** A build machine, a cron host or a shell server creates and removes
cgroups all day; as long as the kernel releases them that is ordinary and not reported. Page cache
holds some of them for a while: left at irregular times on a node with few dying ones, that is worth
a line and no more. A lost trace event may hide a release, so as many as were lost (half of them, if
the dying were counted before and after) are not counted unless their number grew as much. A job
that ends is no loop: as many must be created, and not all removed within four seconds. Cgroups
removed less than 5 s ago are *not yet released* and prove nothing. A job or a pod that ends is no
loop: about as many must be created as are removed, and not all within four seconds.

**Check by hand.** ``sexton zombies --watch``, or by hand in a tracefs instance of your own:
enable ``events/cgroup/cgroup_rmdir`` and ``cgroup_release`` and match them by ``id``;
``docker ps -a --format '{{.ID}} {{.Status}} {{.Names}}'`` for the containers' names.

**What to do.** Find what creates them (``docker events``, ``crictl ps -a``, the unit of the parent)
and why they die: their last log. Back off or stop that loop first; only then free what it left.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.detect.churn import Churn, Family, churn
from sexton.detect.deaths import GRACE
from sexton.detect.detectors.cgroups import crash_looping_unit
from sexton.detect.findings import AGAIN, missing, names, unknown, unread
from sexton.detect.growth import ENOUGH, growth, latest_count
from sexton.detect.registry import READS, Advice, Stage, Threshold, detector
from sexton.detect.stems import RANDOM
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cgroup import CgroupDir, CgroupEvent
from sexton.model.text import count, printable, seconds
from sexton.model.window import Window

NAME = "cgroup_churn"

OFTEN = Threshold("often", 0.05, "deaths a second", "one per 20 s: 30,000 a week if each stays")
REPEATED = Threshold(
    "repeated", 3, "deaths in the window", "two may be chance, three are a pattern"
)
KEPT = Threshold("kept", 50, "% not released", "ordinary removals are released within a second")
BY_THE_CLOCK = Threshold(
    "regular", 25, "% spread of the gaps", "people and queues are irregular, restart loops are not"
)
MANY = Threshold(
    "many",
    500,
    "dying",
    "fewer, at irregular times, are page cache that is freed when memory is needed",
)
LASTING = Threshold(
    "lasting", 4, "s from the first to the last", "what one command removes is gone in less"
)
_MOST = 5
_ALL = (OFTEN, REPEATED, KEPT, BY_THE_CLOCK, LASTING, MANY, GRACE, ENOUGH, RANDOM)


def _find_creator(finding: Finding, window: Window) -> list[Step]:
    """How to find the container that comes back, if these are containers."""
    seen = churn(window)
    places = finding.entities.get("cgroup", ())
    known = seen.families if seen is not None else ()
    if not any(name.container and printable(name.path) in places for name in known):
        return []
    why = "find out which container comes back; stop whatever recreates it"
    return [Step("crictl ps -a 2>/dev/null || docker ps -a", why, READS)]


@detector(
    thresholds=_ALL,
    title="cgroup churn",
    story="Cgroups were created and removed in a loop",
    lanes=("memcgs", "restarts"),
    about=("cgroup", "unit", "pod"),
    answers={"cgroup": 2, "unit": 2},
    advice=Advice(Stage.STOP, _find_creator),
    yields_to=crash_looping_unit.NAME,
    plan_note="containers or timers come and go; fix what starts them (kubectl, crontab)",
)
def detect(window: Window) -> Finding:
    """The families that die in a loop, if any does."""
    seen = churn(window)
    if seen is None or seen.seconds <= 0:
        return _cannot_tell(window)
    looping = sorted(_loops(window, seen), key=lambda loop: -loop.severity.rank)
    shown = [loop.family for loop in looping[:_MOST]] or list(seen.families[:1])
    evidence = [_overall(seen), *(_of(seen, family) for family in shown)]
    lacking = () if seen.traced else (missing(window.why_missing(CgroupEvent)),)
    if not looping:
        return Finding(
            NAME,
            # Two counts miss cgroups that lived and died between them: they can show a loop, but
            # never that there is none.
            Verdict.ABSENT if seen.traced else Verdict.UNKNOWN,
            Severity.INFO,
            _calm(seen),
            evidence=tuple(evidence),
            missing=lacking,
        )
    worst = looping[0].family
    others = f" (and {len(looping) - 1} more like it)" if len(looping) > 1 else ""
    kind = worst.container or "cgroup"
    were = "was" if worst.deaths == 1 else "were"
    return Finding(
        NAME,
        Verdict.PRESENT,
        looping[0].severity,
        f"{count(worst.deaths, kind)} {_whose(worst)} {were} removed in"
        f" {seconds(seen.seconds)}, {looping[0].why}{others}",
        entities={
            "cgroup": names([*(item.path for item in shown), *(item.exact for item in shown)]),
            "unit": names(family.unit for family in shown),
            "pod": names(family.pod.name for family in shown if family.pod is not None),
        },
        start=window.start,
        end=window.end,
        evidence=tuple(evidence),
        missing=lacking,
    )


def _whose(family: Family) -> str:
    return f"matching {family.shown}" if family.pod is None else f"({family.pod.words})"


def families(window: Window) -> list[Family]:
    """Families that die in a loop."""
    seen = churn(window)
    if seen is None or seen.seconds <= 0:
        return []
    return [loop.family for loop in _loops(window, seen)]


class _Loop(NamedTuple):
    """A family that dies in a loop, and why it is one."""

    family: Family
    why: str
    severity: Severity


def _loops(window: Window, seen: Churn) -> list[_Loop]:
    return [loop for family in seen.families if (loop := _loop(window, seen, family)) is not None]


def _loop(window: Window, seen: Churn, family: Family) -> _Loop | None:
    """`None` if the family comes and goes as usual."""
    if family.deaths < REPEATED.value or family.deaths / seen.seconds < OFTEN.value:
        return None
    census = latest_count(window)
    dying = None if census is None else census.dying
    if seen.traced is None:
        moved = growth(window)
        if moved is None or moved.by < max(ENOUGH.value, family.deaths * KEPT.value / 100):
            return None
        # Their owner is unknown: a container is suspect, others only if many are dying already.
        many = dying is not None and dying >= MANY.value
        severity = Severity.WARNING if family.container or many else Severity.INFO
        return _Loop(family, f"while dying cgroups grew by {moved.by:,}", severity)
    if not family.remade:
        return None  # a job or a pod that ended, one of its cgroups after the other
    # Those of one job end together, too, and a loop over them is as regular as a clock.
    regular = family.lasted_s >= LASTING.value and family.regular(BY_THE_CLOCK.value / 100)
    kept = family.kept - seen.traced.doubtful(growth(window))
    if kept >= REPEATED.value and kept * 100 >= KEPT.value * (family.kept + family.released):
        few = dying is not None and dying < MANY.value
        severity = Severity.INFO if few and not regular else Severity.WARNING
        least = "" if kept == family.kept else "at least "
        return _Loop(family, f"{least}{kept:,} of them not released", severity)
    if family.container and regular:
        why = f"one every {seconds(family.period_s or 0)}, at regular intervals"
        return _Loop(family, why, Severity.WARNING)
    return None


def _calm(seen: Churn) -> str:
    if not seen.deaths:
        where = "" if seen.traced else " between two counts; what happened in between is unknown"
        return f"no cgroup was removed in {seconds(seen.seconds)}{where}"
    text = f"{count(seen.deaths, 'cgroup')} removed in {seconds(seen.seconds)}"
    if seen.traced is None:
        return f"at least {text}; only a trace can show whether this is a loop"
    text += f", {len(seen.traced.released):,} released"
    pending, unsure = len(seen.traced.pending), len(seen.traced.unsure)
    text += f", {pending:,} not yet" if pending else ""
    return f"{text}, {unsure:,} unknown" if unsure else text


def _overall(seen: Churn) -> Evidence:
    bound = "" if seen.traced else "at least "
    rate = seen.deaths / seen.seconds
    return Evidence(
        "cgroups removed" + (" (a lower bound)" if bound else ""),
        f"{bound}{seen.deaths:,} removed ({seen.births:,} created) in {seconds(seen.seconds)}",
        "all released",
        "cgroups",
        "tracefs cgroup events" if seen.traced else "directories' inodes, two counts or more",
        rate,
        "cgroups that live and die between two counts are not seen"
        if bound
        else "events were lost",
    )


def _of(seen: Churn, family: Family) -> Evidence:
    value = f"{family.deaths:,} removed, {family.deaths / seen.seconds:.2f} a second"
    if seen.traced is not None:
        pending = family.deaths - family.released - family.kept - family.unsure
        value += f", {family.released:,} released, {family.kept:,} not"
        value += f", {pending:,} not yet" if pending else ""
        value += f", {family.unsure:,} unknown" if family.unsure else ""
        value += f"; {seen.traced.lost:,} events lost" if seen.traced.lost else ""
    kind = f" ({family.container})" if family.container else ""
    kind += f", {family.pod.words}" if family.pod is not None else ""
    return Evidence(
        f"removals of {family.shown}{kind}",
        value,
        f"< {OFTEN.value} a second, or released",
        "cgroups",
        "tracefs cgroup events" if seen.traced else "directories' inodes",
        float(family.deaths),
        "it is meant to run that often, and nothing is left behind",
    )


def _cannot_tell(window: Window) -> Finding:
    counts = unread(window, CgroupDir) or (Missing("two full counts of the directories", AGAIN),)
    lacking = (missing(window.why_missing(CgroupEvent)), *counts)
    return unknown(NAME, "no cgroup events, and fewer than two counts to compare", lacking)
