"""The restart ledger: which restarts match the dying cgroups, by number and by period.

It names an owner after the fact, on any kernel, without a trace and without `lru_gen`, from
counters that every node has. It compares:

- **number**: restarts since boot (`NRestarts`, or the counter in the journal) with the dying
  cgroups below the unit's parent (v2) or on the node; and restarts in the window with the growth
  in the window;
- **period**: a unit's period (restart delay + run time) with uptime ÷ dying. One cgroup each 10 s
  is 68,680 in eight days, even if the counter was cleared meanwhile.

Within 20 % is a match, from 5 of each on. The strengths, by this rule and no other:

- *proven*: dead cgroups with its own path (traced and not released, or listed by `lru_gen`), at
  least a fifth of all that are known by name;
- *likely*: number or period matches, and it restarts in the window; or its path was traced while
  the trace lost events; or the restarts of *all* units that restart in the window match together;
- *possible*: only one of the two.

What would make it wrong: two causes whose numbers happen to agree; counters cleared more than once;
zombies from before that were freed meanwhile.

Candidates are units (by `NRestarts` and the journal's restart counters), timers (by their interval)
and containers (by the ids that disappeared in the window, and a kubelet's restart count): ecs-init
and kubelet recreate a container forever without restarting a unit, so `NRestarts` stays 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sexton.detect.deaths import Deaths, already_dying, deaths
from sexton.detect.detectors.cgroups.crash_looping_unit import SEEN
from sexton.detect.growth import ENOUGH, dying_below, growth, latest_count
from sexton.detect.kubernetes.pods import PodPart, pods
from sexton.detect.registry import Threshold
from sexton.detect.rows_read import remembered
from sexton.detect.stems import container, join, path_stem, split
from sexton.model.chain import Strength
from sexton.model.rows.cgroup import CgroupDir, OfflineMemcg
from sexton.model.rows.unit import Timer, Unit
from sexton.model.text import count, printable, seconds
from sexton.model.window import Window
from sexton.series import restarts as restarted
from sexton.series.directories import turnover


class Account(NamedTuple):
    """A unit, timer or kind of container that comes and goes, and its cgroup while it runs.

    `total` is how often since boot, as far as known; `recent` how often in the window; `active`
    is true if it still does.
    """

    owner: str
    path: str
    kind: str
    total: int | None
    recent: int
    active: bool
    period_s: float | None


def units(window: Window) -> Iterator[Account]:
    seen = restarted.units(window)
    for name, counted in restarted.restarts(window).items():
        if not counted.total:
            continue
        unit = seen[name].unit if name in seen else None
        waiting = unit is not None and "auto-restart" in unit.sub_state
        yield Account(
            owner=name,
            path=(unit.cgroup if unit is not None else None) or f"/system.slice/{name}",
            kind="unit",
            total=counted.total,
            recent=counted.recent,
            active=counted.recent > 0 or waiting,
            period_s=counted.period_s(SEEN.value),
        )


def timers(window: Window) -> Iterator[Account]:
    first: dict[str, int] = {}
    for timer in window.changes(Timer, ("last_trigger_us",)):
        if timer.last_trigger_us:
            first.setdefault(timer.name, timer.last_trigger_us)
    homes = {unit.name: unit.cgroup for unit in window.latest(Unit) or ()}
    uptime_s = window.node.uptime_s if window.node is not None else None
    for timer in window.latest(Timer) or ():
        if not timer.interval_us or not timer.last_trigger_us:
            continue
        period_s = timer.interval_us / 1e6
        moved = timer.last_trigger_us > first[timer.name]
        idle_s = window.end_mono - timer.last_trigger_us / 1e6
        yield Account(
            owner=timer.name,
            path=homes.get(timer.unit) or f"/system.slice/{timer.unit}",
            kind="timer",
            total=int(uptime_s / period_s) if uptime_s else None,
            recent=0,
            active=moved or idle_s <= period_s * 1.2,
            period_s=period_s,
        )


def containers(window: Window, traced: Deaths | None, named: Iterable[str]) -> Iterator[Account]:
    """Containers that were removed in the window, by runtime and directory; `named` are paths of
    dead cgroups from before it."""
    if traced is not None:
        went = Counter(death.path for death in traced.all)
        span_s = traced.seconds
    else:
        edges = window.bounds_of(CgroupDir)
        went, span_s = turnover(window).gone, edges[1] - edges[0] if edges is not None else 0.0
    before = Counter(named)
    recent: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    parts: dict[tuple[str, str], set[PodPart | None]] = defaultdict(set)
    whose = pods(window)
    for path in {*went, *before}:
        kind = container(path)
        if kind is not None:
            key = f"{kind}s", pattern_of(path)
            recent[key] += went[path]
            total[key] += max(went[path], before[path])
            parts[key].add(whose.of(path))
    counted = restarted.containers(window)
    for (owner, path), number in total.items():
        new = recent[owner, path]
        period_s = span_s / new if new > 1 and span_s > 0 else None
        one = next(iter(parts[owner, path])) if len(parts[owner, path]) == 1 else None
        mine = None
        if one is not None:
            mine = counted.get((one.namespace, one.pod, one.container or ""))
        if mine is not None:
            number = max(number, mine.restarts.total)
            period_s = mine.restarts.period_s(SEEN.value) or period_s
        yield Account(
            owner=owner if one is None else one.words,
            path=path,
            kind="container",
            total=number,
            recent=new,
            active=new > 1,
            period_s=period_s,
        )


def pattern_of(path: str) -> str:
    """`path` with the unique part of its last name replaced.

    >>> pattern_of("/top/run-17")
    '/top/run-*'
    """
    parent, name = split(path)
    return join(parent, path_stem(name))


CLOSE = Threshold(
    "match",
    20,
    "%",
    "restarts that leave nothing and zombies freed meanwhile account for that much",
)
SHARE = Threshold(
    "share", 20, "% of those with a known path", "below this another owner has most of them"
)
PART = Threshold("part", 5, "% of a sum", "a smaller share would match with or without it")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A possible owner of dead cgroups.

    `owner` is the name of the unit, timer or kind of container; `path` the cgroup that dies, with
    ``*`` for the part that differs each time. `matched` is how many of the dead it accounts for,
    `ratio` its restarts per dead cgroup (1.0 is a perfect match, `None` if one side is unknown);
    `period_s` the time from one restart to the next.
    """

    owner: str
    path: str
    kind: str
    matched: int
    ratio: float | None
    period_s: float | None
    strength: Strength
    sentence: str


class _Dead(NamedTuple):
    """What is known about the dead cgroups, by every method."""

    traced: Deaths | None
    unreleased: Counter[str]
    #: No release of an unreleased one can have been missed.
    complete: bool
    listed: Counter[str]
    below: dict[str, int]
    node: int | None
    grown: int | None
    uptime_s: float | None

    def of(self, path: str) -> int | None:
        """How many died below the parent of `path`, else on the node."""
        return self.below.get(split(path)[0], self.node) if path else self.node

    @property
    def nothing(self) -> bool:
        """They were counted, and there are next to none."""
        few = self.node is not None and self.node < ENOUGH.value
        return few and not self.unreleased and not self.listed


@remembered
def suspects(window: Window) -> tuple[Suspect, ...]:
    """Everything whose restarts could have left the dead, the strongest first."""
    dead = _dead(window)
    if dead.nothing:
        return ()
    named = [*dead.listed.elements(), *dead.unreleased.elements()]
    accounts = [*units(window), *timers(window), *containers(window, dead.traced, named)]
    found = [suspect for account in accounts if (suspect := _judge(account, dead)) is not None]
    found = _together(accounts, found, dead)
    return tuple(sorted(found, key=_order))


def _order(suspect: Suspect) -> tuple[int, float, int, str]:
    miss = abs(suspect.ratio - 1) if suspect.ratio is not None else float("inf")
    return (-suspect.strength.rank, miss, -suspect.matched, suspect.owner)


def close(mine: float | None, theirs: float | None) -> bool:
    """Do two numbers match?

    >>> close(97, 100), close(3, 5000), close(None, 4), close(1, 0)
    (True, False, False, False)
    """
    if not mine or not theirs:
        return False
    return abs(mine / theirs - 1) * 100 <= CLOSE.value


class _Match(NamedTuple):
    """How one account compares with the dead."""

    own: int
    share: float
    certain: bool
    number: bool
    growth: bool
    period: bool

    @property
    def any(self) -> bool:
        return self.number or self.growth or self.period


def _match(account: Account, dead: _Dead) -> _Match:
    traced, traced_share = _share(dead.unreleased, account.path)
    listed, listed_share = _share(dead.listed, account.path)
    here = dead.of(account.path)
    gap = dead.uptime_s / here if dead.uptime_s and here and _enough(here) else None
    return _Match(
        own=max(traced, listed),
        share=max(traced_share, listed_share),
        certain=listed > 0 or dead.complete,
        number=_enough(account.total, here) and close(account.total, here),
        growth=_enough(account.recent, dead.grown) and close(account.recent, dead.grown),
        period=close(account.period_s, gap),
    )


def _strength(match: _Match, active: bool) -> Strength | None:
    """The strength by the rule in this module's docstring; `None` if nothing matches."""
    if match.share >= SHARE.value:
        return Strength.PROVEN if match.certain else Strength.LIKELY
    if match.any and active:
        return Strength.LIKELY
    return Strength.POSSIBLE if match.own or match.any or active else None


def _judge(account: Account, dead: _Dead) -> Suspect | None:
    match = _match(account, dead)
    strength = _strength(match, account.active)
    here = dead.of(account.path)
    if strength is None or (here == 0 and not match.own):
        return None  # no dead cgroups below its parent: it left none
    mine, theirs = account.total, here
    if match.growth and not match.number:
        mine, theirs = account.recent, dead.grown
    ratio = mine / theirs if mine is not None and theirs else None
    matched = match.own or min(account.total or 0, here or 0)
    if match.number and not dead.listed:  # a trace knows the last few, its counter all of them
        matched = max(matched, min(account.total or 0, here or 0))
    if match.period and not match.own and not match.number:  # its counter was cleared
        matched = here or 0
    return Suspect(
        account.owner,
        account.path,
        account.kind,
        matched,
        ratio,
        account.period_s,
        strength,
        printable(f"{account.owner}: {'; '.join(_reasons(account, match, ratio, here))}"),
    )


def _reasons(
    account: Account, match: _Match, ratio: float | None, here: int | None
) -> Iterator[str]:
    if match.own:
        yield f"{count(match.own, 'dying cgroup')} under its path"
    noun = {"unit": "restarts", "timer": "runs"}.get(account.kind, "deaths")
    if ratio is not None and (match.number or match.growth):
        yield f"{noun} match dying cgroups {ratio:.2f} : 1"
    elif account.total and here:
        yield f"{account.total:,} {noun} against {count(here, 'dying cgroup')}"
    if match.period:
        yield "its period matches uptime ÷ dying cgroups"
    yield _rhythm(account)


def _rhythm(account: Account) -> str:
    verb = {"unit": "restarts", "timer": "runs"}.get(account.kind, "comes and goes")
    if not account.active:
        return f"no longer {verb}"
    return f"{verb} every {seconds(account.period_s)}" if account.period_s else f"{verb} now"


def _enough(*numbers: int | None) -> bool:
    return all(number is not None and number >= ENOUGH.value for number in numbers)


def _share(paths: Counter[str], path: str) -> tuple[int, float]:
    """How many of the dead had this path or one below it, and their share in percent."""
    if not path:
        return 0, 0.0
    if "*" in path:
        own = sum(n for key, n in paths.items() if pattern_of(key) == path)
    else:
        own = sum(n for key, n in paths.items() if key == path or key.startswith(f"{path}/"))
    return own, 100.0 * own / max(paths.total(), 1)


def _together(accounts: Sequence[Account], found: list[Suspect], dead: _Dead) -> list[Suspect]:
    """Raise to *likely* the units that restart now and whose restarts together match the dead."""
    if any(suspect.strength is not Strength.POSSIBLE for suspect in found):
        return found
    sharing = [
        account
        for account in accounts
        if account.kind == "unit" and account.active and account.total
    ]
    total = sum(account.total or 0 for account in sharing)
    sharing = [account for account in sharing if 100 * (account.total or 0) >= PART.value * total]
    total = sum(account.total or 0 for account in sharing)
    if len(sharing) < 2 or not _enough(dead.node) or not close(total, dead.node):
        return found
    assert dead.node is not None
    names = sorted(account.owner for account in sharing)
    ratio = total / dead.node
    result = []
    for suspect in found:
        if suspect.owner in names and suspect.kind == "unit":
            others = " and ".join(name for name in names if name != suspect.owner)
            sentence = (
                f"{suspect.sentence}; together with {printable(others)} restarts match dying"
                f" cgroups {ratio:.2f} : 1"
            )
            suspect = replace(suspect, strength=Strength.LIKELY, sentence=sentence)
        result.append(suspect)
    return result


def _dead(window: Window) -> _Dead:
    traced = deaths(window)
    before = already_dying(window)
    stayed = (*before.deaths, *(traced.unreleased if traced else ()))
    census = latest_count(window)
    moved = growth(window)
    return _Dead(
        traced=traced,
        unreleased=Counter(death.path for death in stayed),
        complete=before.sure and (traced is None or not traced.doubted),
        listed=Counter(memcg.path for memcg in window.latest(OfflineMemcg) or ()),
        below=dying_below(window),
        node=census.dying if census is not None and census.scope == "node" else None,
        grown=moved.by if moved is not None else None,
        uptime_s=window.node.uptime_s if window.node is not None else None,
    )
