"""Dying memory cgroups pile up: removed, and still held by the memory charged to them.

**What is seen.** How many memory cgroups the kernel still holds after their directories are gone,
against the live ones; how many died in the window without being released (tracefs), the growth
between two counts, and the average since boot, each labelled; their owners, and how many have
no known owner; and two limits: the 16-bit memcg ID limit where it applies, and the count at which
one walk takes 5 s of a core. A leak that goes on is judged by its rate as well, however few there
are now: one that reaches 1,000 (or another 1,000) within a day is a warning, within an hour it is
critical. It must be proven: deaths of one kind that are not released, or growth throughout the
watch. A watch of a few seconds in which removed cgroups were not released is *unknown*.
These are not zombie processes: no `ps` shows them and no signal reaches them.

**Why it hurts.** Each costs up to some hundred KB, and whatever walks all memory cgroups (old
statistics files, reclaim in their parent) takes longer with each. At about 70,000 such a walk held
one core for the 5 s after which a network driver resets its device.

**What would make it wrong.** Some hundreds are ordinary: they hold page cache and are freed when
memory is needed. Directories that came and went while counting look like a few zombies. A destroy
backlog after many removals drains by itself within a minute; the summary says so, and it is not a
problem. In a cgroup namespace the node's count is not available.

**Check by hand.** v1: ``grep memory /proc/cgroups`` (third column) minus
``find /sys/fs/cgroup/memory -type d | wc -l``. v2: ``nr_dying_descendants`` in
``/sys/fs/cgroup/cgroup.stat``.

**What to do.** Stop their source (see *crash_looping_unit*, *cgroup_churn*), then reclaim on
the parent that owns them (``memory.force_empty`` on v1, ``memory.reclaim`` on v2), and count
again. Those held by tmpfs files go when the files are deleted; a reboot frees the rest.
"""

from __future__ import annotations

from collections import Counter
from shlex import quote
from typing import NamedTuple

from sexton.detect.deaths import GRACE, Deaths, deaths
from sexton.detect.findings import absent, names, unread
from sexton.detect.growth import (
    COST_LIMIT,
    DRAIN,
    ENOUGH,
    ID_LIMIT,
    Growth,
    growth,
    latest_count,
    limits,
    rate,
)
from sexton.detect.kubernetes import pods
from sexton.detect.leak import (
    AT_BOOT,
    AT_ONCE,
    KEPT,
    SETTLED,
    SHORTEST,
    SOON,
    TOO_MANY,
    Leak,
    Undecided,
    leak,
    undecided,
)
from sexton.detect.owners import LEDGER, LISTED, TRACED, UPPER_BOUND, Owner, owners
from sexton.detect.registry import Advice, Stage, Threshold, Treatment, detector
from sexton.model.chain import Strength
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, OfflineMemcg, WalkCost
from sexton.model.text import an_hour, clock, count, day, printable, seconds, size
from sexton.model.window import Window

NAME = "zombie_memcgs"

NORMAL = Threshold("normal", 50, "dying", "a quiet node has a few dozen, held by page cache")
MANY = Threshold(
    "many", 500, "dying", "half of the 1,000 at which the incident's image gate now fails a build"
)
RATIO = Threshold(
    "ratio",
    2,
    "times the live ones",
    "the incident's lesson: alert at a small multiple of the live set",
)
PLENTY = Threshold(
    "plenty", 5_000, "dying", "at any ratio, a walk at 0.07 ms each takes a third of a second"
)
GRAVE = Threshold(
    "grave", 10_000, "dying", "0.7 s of a core per read of numa_stat before 5.8, 2 s per reclaim"
)
GRAVE_RATIO = Threshold(
    "grave ratio",
    10,
    "times the live ones",
    "a node that really runs thousands is not sick because of it",
)
#: Owners with a smaller part of the dead are left to `sexton zombies`.
SHARE = Threshold("share", 5, "% of the dead", "an owner of so few did not cause the problem")

HOST_VIEW = (
    "sudo sexton diagnose  # on the node; in a pod with hostPID: nsenter -t 1 -C -m sexton diagnose"
)
LONGER = "sudo sexton diagnose --seconds 15"
#: The whole tree is visible, but the kernel does not say how many are dead.
DEATHS_ONLY = "sudo sexton zombies --watch counts removals from now on; counting again may help"
_MOST = 8
_ADVERB = {Strength.LIKELY: "likely", Strength.POSSIBLE: "possibly"}
_COUNT = (NORMAL, MANY, RATIO, PLENTY, GRAVE, GRAVE_RATIO, SHARE)
_RATE = (GRACE, ENOUGH, DRAIN, TOO_MANY, SOON, AT_ONCE, KEPT, SETTLED, AT_BOOT, SHORTEST)


def _free(_finding: Finding, window: Window) -> list[Step]:
    census = latest_count(window)
    if census is None or census.mount_point is None:
        return []
    known = [owner for owner in owners(window) if owner.strength is not Strength.POSSIBLE]
    path = known[0].path if known else "/"
    parent = f"{census.mount_point.rstrip('/')}{path.rstrip('/')}"
    if path == "/":
        return [
            Step(
                "sudo sexton zombies --watch",
                "shows which unit leaves each zombie; stop those units,"
                " then reclaim on their parent cgroup",
                "none (follows events)",
            )
        ]
    if census.version == 2:
        command = f"echo 64M > {quote(printable(parent + '/memory.reclaim'))}"
        risk = "evicts cache of live siblings too; needs Linux 5.19 or later;"
        risk += " repeat as long as zombies are freed"
    else:
        order = f"echo 0 > {quote(printable(parent + '/memory.force_empty'))}"
        command = f"timeout 5 sh -c {quote(order)}"
        risk = "reclaims live siblings' cache too; about 0.3 ms of CPU per zombie it cannot free"
    what = f"once the source is stopped: frees zombies held by page cache under {printable(path)}"
    what += " (those held by files on tmpfs go when the files are deleted)"
    return [Step(command, what, risk)]


@detector(
    needs=(CgroupCensus,),
    thresholds=(*_COUNT, *_RATE, ID_LIMIT, COST_LIMIT),
    title="zombie memcgs",
    story="Removed memory cgroups stayed in memory",
    lanes=("memcgs", "cores"),
    about=("cgroup", "unit", "pod"),
    answers={"cgroup": 1, "unit": 3},
    essential=1,
    advice=Advice(Stage.FREE, _free),
    events=(NAME,),
    treatments=(Treatment.FREE_ZOMBIES, Treatment.REMOVE_EMPTY),
)
def detect(window: Window) -> Finding:
    """The last count that could be made, judged against the live set."""
    census = latest_count(window)
    if census is None or census.dying is None:
        return _cannot_tell(census)
    moved = growth(window)
    traced = deaths(window)
    going_on = leak(window)
    judged = (_severity(census.dying, census.live), going_on.severity if going_on else None)
    severity = max((grade for grade in judged if grade), key=lambda grade: grade.rank, default=None)
    evidence = [_counted(census), *_rates(window, census, moved, traced)]
    leaked = _leaking(window, going_on)
    # With few dying the leak is the problem, and reports show the first.
    evidence = [*leaked, *evidence] if severity and judged[0] is None else [*evidence, *leaked]
    if severity is None:
        return _few(census, evidence, moved, undecided(window))
    every = owners(window)
    found = _chosen(every, census.dying)
    named = [owner.dying or 0 for owner in every if owner.names is not None]
    rest = _Rest.of(census.dying - sum(named), traced) if any(named) else _Rest(0, 0)
    evidence += limits(census, window.latest(WalkCost) or (), rate(moved, traced))
    evidence += [_owned(owner) for owner in found]
    evidence += _not_named(rest, census.dying)
    lacking = [] if any(owner.names for owner in found) else list(_names_missing(window))
    lacking += pods.missing(window, (owner.path for owner in found))
    if census.scope != "node":
        lacking.append(Missing(census.reason or "the node's count", HOST_VIEW))
    fresh = len(traced.unreleased) if traced is not None else 0
    draining = moved is not None and moved.draining and fresh < ENOUGH.value
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.INFO if draining else severity,
        _draining(census, moved) if draining else _summary(census, (found, rest), moved, going_on),
        entities={
            "cgroup": names([*(owner.path for owner in found), *(owner.exact for owner in found)]),
            "unit": names(owner.unit for owner in found),
            "pod": names(owner.pod.name for owner in found if owner.pod is not None),
        },
        start=window.start,
        end=window.end,
        evidence=tuple(evidence),
        missing=tuple(lacking),
    )


def _cannot_tell(census: CgroupCensus | None) -> Finding:
    why = (census.reason if census else None) or "the memory cgroups could not be counted"
    whole = census is not None and census.scope == "node" and census.mount_point is not None
    remedy = DEATHS_ONLY if whole else HOST_VIEW
    evidence: tuple[Evidence, ...] = ()
    if census is not None and census.live is not None:
        evidence = (
            Evidence(
                "live memory cgroups seen from here",
                f"{census.live:,}",
                "any number",
                "directories",
                census.mount_point or census.method,
                float(census.live),
                "only a subtree is mounted here",
            ),
        )
    return Finding(
        NAME,
        Verdict.UNKNOWN,
        Severity.INFO,
        f"dying memory cgroups cannot be counted from here: {why}",
        evidence=evidence,
        missing=(Missing("the number of dying memory cgroups on the node", remedy),),
    )


def _severity(dying: int, live: int | None) -> Severity | None:
    """`None` if healthy; without the live count only the absolute limit applies."""
    times = None if live is None else dying / max(live, 1)
    if dying >= GRAVE.value and times is not None and times >= GRAVE_RATIO.value:
        return Severity.CRITICAL
    if dying >= PLENTY.value:
        return Severity.WARNING
    if dying >= MANY.value and times is not None and times >= RATIO.value:
        return Severity.WARNING
    return None


def _where(census: CgroupCensus) -> str:
    return "" if census.scope == "node" else " in this subtree"


def _few(
    census: CgroupCensus, evidence: list[Evidence], moved: Growth | None, open_: Undecided | None
) -> Finding:
    number = f"{census.dying:,} dying / {_live(census)} memory cgroups{_where(census)}"
    if moved is not None and moved.by >= ENOUGH.value:
        number += f", {moved.by:+,} in {seconds(moved.seconds)}"
    missing = []
    if open_ is not None:
        number += f"; {open_.text}"
        missing.append(Missing("whether they stay: an ordinary release takes a second", LONGER))
    if census.scope != "node":
        # A clean subtree says nothing about the rest of the node.
        number += "; the node's count cannot be seen from here"
        missing.append(Missing(census.reason or "the node's count", HOST_VIEW))
    if not missing:
        return absent(NAME, number, evidence)
    return Finding(
        NAME,
        Verdict.UNKNOWN,
        Severity.INFO,
        number,
        evidence=tuple(evidence),
        missing=tuple(missing),
    )


def _live(census: CgroupCensus) -> str:
    return "unknown live" if census.live is None else f"{census.live:,} live"


def _counted(census: CgroupCensus) -> Evidence:
    times = "" if census.live is None else f", {(census.dying or 0) / max(census.live, 1):.1f} x"
    return Evidence(
        f"dying memory cgroups{_where(census)}",
        f"{census.dying:,} against {_live(census)}{times}",
        f"< {NORMAL.value:.0f}",
        "memory cgroups",
        census.method,
        float(census.dying or 0),
        "directories came and went while they were counted",
    )


def _leaking(window: Window, going_on: Leak | None) -> list[Evidence]:
    if going_on is None:
        return []
    value = f"{an_hour(going_on.per_hour)} ({going_on.number:,} in {seconds(going_on.seconds)})"
    value += f" from {going_on.shown}" if going_on.shown else ""
    more = "another " if going_on.passed else ""
    value += f"; will reach {more}{TOO_MANY.value:,.0f} dying in {seconds(going_on.arrives_s)},"
    when = window.end + going_on.arrives_s
    value += f" at {day(when)} " if day(when) != day(window.end) else " at "
    value += f"{clock(when)} UTC"
    return [
        Evidence(
            "memory cgroups leaked",
            value,
            "0",
            "memory cgroups an hour",
            going_on.method,
            going_on.per_hour,
            "page cache holds them, and they are freed as soon as memory is needed",
            outlook=True,
        )
    ]


def _arrival(going_on: Leak) -> str:
    """How many more there will be, and when too many, in one clause with what came before."""
    more = "another " if going_on.passed else ""
    when = "within a minute" if going_on.arrives_s < 60 else f"in {seconds(going_on.arrives_s)}"
    pace = an_hour(going_on.per_hour).removesuffix(" an hour")
    return f" and {pace} more an hour ({more}{TOO_MANY.value:,.0f} {when})"


def _source(going_on: Leak, found: list[Owner]) -> str:
    """Who leaks, unless the first of `found` says so."""
    # The summary names who left the most, or holds the most memory: another one may leak now.
    first = next((owner for owner in found if owner.dying is not None), None)
    said = first is not None and (
        f"{going_on.shown}/".startswith(f"{first.path.rstrip('/')}/")
        or (first.pod is not None and first.pod.name in going_on.shown)
    )
    return f"; leaking from {going_on.shown}" if going_on.shown and not said else ""


def _rates(
    window: Window, census: CgroupCensus, moved: Growth | None, traced: Deaths | None
) -> list[Evidence]:
    """Growth by each available method, under its own name."""
    rates = []
    if moved is not None:
        drained = moved.drained_in_s
        ending = "" if drained is None else f": draining by itself, empty in {seconds(drained)}"
        rates.append(
            Evidence(
                "net growth in this window",
                f"{moved.by:+,} in {seconds(moved.seconds)}{ending}",
                "about 0",
                "memory cgroups",
                f"{census.method}, twice",
                float(moved.by),
                "the window is short compared with the rate of creation and removal",
                outlook=True,
            )
        )
    if traced is not None:
        rates.append(_traced(traced))
    uptime = window.node.uptime_s if window.node else None
    if uptime is not None and uptime >= 1 and census.scope == "node":
        average = (census.dying or 0) * 3600 / uptime
        rates.append(
            Evidence(
                "average since boot",
                f"{an_hour(average)} over {seconds(uptime)}",
                "about 0",
                "memory cgroups an hour",
                f"{census.method}, /proc/uptime",
                average,
                "they came in bursts, or some were freed meanwhile; not a forecast",
                outlook=True,
            )
        )
    return rates


def _traced(traced: Deaths) -> Evidence:
    number: float | None = float(len(traced.unreleased))
    value = f"{len(traced.unreleased):,} of {count(len(traced.all), 'removal')}"
    if traced.pending and traced.seconds <= GRACE.value:
        # None could be called a zombie yet: that is not zero.
        number, value = None, f"unknown: {count(len(traced.all), 'removal')}"
    value += f" in {seconds(traced.seconds)}"
    if traced.pending:
        value += f", {len(traced.pending):,} more not yet released"
    if traced.unsure:
        value += f", {len(traced.unsure):,} unknown"
    if traced.lost:
        value += f", {traced.lost:,} events lost"
    return Evidence(
        "removed but not freed in this window",
        value,
        "0",
        "memory cgroups",
        "tracefs cgroup_rmdir, cgroup_release",
        number,
        "the trace buffer lost releases, or page cache holds them only for a while",
    )


def _chosen(every: tuple[Owner, ...], dying: int) -> list[Owner]:
    """Owners with a fair share of the dead; those with the most bytes if none could be counted."""
    whole: Counter[tuple[str, str | None]] = Counter()
    for owner in every:  # a directory's dead may be of several pods
        whole[owner.path, owner.names] += owner.dying or 0
    largest = {(owner.path, owner.names): owner for owner in reversed(every)}
    fair = {key for key, number in whole.items() if number * 100 >= SHARE.value * dying}
    counted = [
        owner
        for owner in every
        # One traced while it happened matters, however many older ones there are.
        if owner.dying is not None
        and (
            owner.dying * 100 >= SHARE.value * dying
            or TRACED in owner.method
            or ((owner.path, owner.names) in fair and largest[owner.path, owner.names] is owner)
        )
    ]
    return counted[:_MOST] or [owner for owner in every if owner.dying is None][:_MOST]


def _owned(owner: Owner) -> Evidence:
    about = "about " if owner.about else ""
    parts = [] if owner.dying is None else [about + count(owner.dying, "zombie")]
    if owner.bytes is not None:
        parts.append(f"{size(owner.bytes)} held")
    whose = f", {owner.unit}" if owner.unit and owner.unit not in owner.shown else ""
    whose = whose if owner.pod is None else f", {owner.pod.words}"
    return Evidence(
        f"left under {owner.shown}{whose}",
        f"{' · '.join(parts)} ({owner.strength})",
        "0",
        "memory cgroups" if owner.dying is not None else "bytes",
        owner.method,
        float(owner.bytes or 0 if owner.dying is None else owner.dying),
        "another directory with the same name was there before",
    )


class _Rest(NamedTuple):
    """Dying cgroups without a known owner: `fresh` of them were removed within the grace, so they
    may still be released; nobody saw the removal of the `nameless`."""

    fresh: int
    nameless: int

    @classmethod
    def of(cls, number: int, traced: Deaths | None) -> _Rest:
        left = max(number, 0)
        fresh = min(len(traced.pending), left) if traced is not None else 0
        return cls(fresh, left - fresh)

    @property
    def called(self) -> str:
        words = (
            (self.fresh, f"removed in the last {GRACE.value:.0f} s"),
            (self.nameless, "origin unknown"),
        )
        return "; ".join(f"{number:,} more, {what}" for number, what in words if number)


def _not_named(rest: _Rest, dying: int) -> list[Evidence]:
    if not rest.nameless:
        return []
    return [
        Evidence(
            "of them, origin unknown",
            f"{rest.nameless:,} of {dying:,}",
            "0",
            "memory cgroups",
            f"none of: {TRACED}; {LISTED}; {LEDGER}",
            float(rest.nameless),
            "they were removed before tracing began, and may belong to the owners above",
        )
    ]


def _names_missing(window: Window) -> tuple[Missing, ...]:
    """No owner is known: what would have named one."""
    nothing_died = Missing(
        "their owner: no cgroup was removed while watching", "sexton zombies --watch"
    )
    return unread(window, CgroupEvent, OfflineMemcg) or (nothing_died,)


def _number(census: CgroupCensus) -> str:
    return f"{census.dying:,} dying memory cgroups{_where(census)} (not zombie processes)"


def _draining(census: CgroupCensus, moved: Growth | None) -> str:
    step = moved.last_step_percent_s if moved is not None else None
    pace = "" if step is None else f"; draining by itself, {-step:.0f} % a second"
    return f"{_number(census)}, {_live(census)}{pace}"


def _summary(
    census: CgroupCensus,
    whose: tuple[list[Owner], _Rest],
    moved: Growth | None,
    going_on: Leak | None,
) -> str:
    found, rest = whose
    leaking = going_on if going_on is not None and going_on.severity is not None else None
    text = _number(census) + (_arrival(leaking) if leaking is not None else "")
    text += f", {_live(census)}"
    named = next((owner for owner in found if owner.dying is not None), None)
    if named is not None:
        about = "about " if named.about else ""
        # What is not proven says so, as in the evidence.
        sure = "" if named.strength is Strength.PROVEN else f"{_ADVERB[named.strength]} "
        where = "left by" if named.pod is not None else "left under"
        text += f", {about}{named.dying:,} of them {sure}{where} {named.called}"
        if named.names is not None and sum(rest) * 100 >= SHARE.value * (census.dying or 0):
            text += f" ({rest.called})"
    elif found:
        # Bytes do not show who left the most: name them all, up to a line's length.
        text += f", memory still charged to them is under {' · '.join(map(_holding, found[:3]))}"
        text += f" and {len(found) - 3} more" if len(found) > 3 else ""
    if moved is not None and moved.by >= ENOUGH.value:
        text += f", {moved.by:+,} in {seconds(moved.seconds)}"
    return text + (_source(leaking, found) if leaking is not None else "")


def _holding(owner: Owner) -> str:
    most = "at most " if UPPER_BOUND in owner.method else ""
    where = owner.path if owner.pod is None else owner.pod.words
    return f"{where} ({most}{size(owner.bytes or 0)})"
