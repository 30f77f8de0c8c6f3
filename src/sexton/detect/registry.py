"""How a detector declares itself, and how all detectors are found and run.

A detector is one module below `sexton.detect.detectors`, in the folder of its subject. Its file's
stem is its id (and its `NAME`), its docstring its page, and one function judges a window::

    LIMIT = Threshold("system time", 90, "% of a core", "why ninety")

    @detector(
        needs=(CoreTimes,),
        thresholds=(LIMIT,),
        title="saturated core",
        lanes=("cores", "stacks"),
        about=("core", "task"),
        answers={"core": 1},
    )
    def detect(window: Window) -> Finding: ...

Everything the rest of Sexton needs to know about a detector is an argument of this declaration
(see `Detector`). If a row type in `needs` was never read, the registry returns *unknown*, with the
reason and the remedy of the source that would have provided it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cache
from math import inf
from typing import NamedTuple, NotRequired, TypedDict, Unpack

import sexton.detect.detectors
from sexton.detect.findings import missing, reason, unknown
from sexton.detect.kubernetes.pods import with_pods
from sexton.detect.rows_read import witness
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding, Missing, Severity, Verdict
from sexton.model.row import Row
from sexton.model.settings import Settings
from sexton.model.text import seconds
from sexton.model.window import SourceState, Window

Detect = Callable[[Window], Finding]
Moments = Callable[[Finding, Window], Sequence[float]]
_PACKAGE = "sexton.detect.detectors."
#: What gives readings of a node that only Prometheus has scraped so far.
RECORDER = "sudo sexton record /var/lib/sexton  # on the node"
#: The risk of a step that changes nothing.
READS = "none (read-only)"

#: Settings in force, and the configured numbers by the id of their threshold (a module's constant).
_settings = Settings()
_values: dict[int, float] = {}


@contextmanager
def applied(settings: Settings) -> Iterator[None]:
    """Put settings in force for a block, usually a command's whole run; blocks must not nest."""
    global _settings
    for changed in settings.thresholds:
        check = detector_of(changed.detectors[0])
        for limit in check.thresholds if check is not None else ():
            if key_of(limit) == changed.name:
                _values[id(limit)] = changed.value
    _settings = settings
    try:
        yield
    finally:
        _settings = Settings()
        _values.clear()


def settings_in_force() -> Settings:
    """The settings of this run; the defaults if nothing was configured."""
    return _settings


class Threshold(NamedTuple):
    """A number that decides a verdict, its unit, and the reason for this number."""

    name: str
    default: float
    unit: str
    why: str

    @property
    def value(self) -> float:
        """The configured number, else the default."""
        return _values.get(id(self), self.default)


def key_of(threshold: Threshold) -> str:
    """A threshold's name as a key of the configuration.

    >>> key_of(Threshold("kernel share", 90, "%", "")), key_of(Threshold("a task's", 1, "", ""))
    ('kernel_share', 'a_tasks')
    """
    return threshold.name.replace("'", "").replace(" ", "_")


class Stage(IntEnum):
    """The order of advice: stop the source, free what it left, look closer, prove."""

    STOP = 1
    FREE = 2
    LOOK = 3
    PROVE = 4


class Advice(NamedTuple):
    """What to do about a problem: the stage, and the steps for a finding in its window."""

    stage: Stage
    steps: Callable[[Finding, Window], Sequence[Step]]


class Treatment(Enum):
    """What `sexton fix plan` can do about a problem."""

    STOP_UNITS = "stop the units it names"
    FREE_ZOMBIES = "free dying cgroups"
    REMOVE_EMPTY = "remove empty cgroups"


def look(command: str, why: str) -> Advice:
    """Advice to run one command that changes nothing."""
    return Advice(Stage.LOOK, lambda _finding, _window: [Step(command, why, READS)])


class Averages(NamedTuple):
    """What a detector can tell from scraped counters, which are averages over the scrape interval.

    `of` are the row types that it judges then. It can say *absent* if scrapes are at most so many
    seconds apart as `every` says, which is mostly the threshold of how long the symptom must last
    (0: never). `hides` completes "readings every 30 s cannot show …" for longer intervals.
    *Present* needs no limit: an average above a limit was above it all the time, or further above
    it for a part.
    """

    of: tuple[type[Row], ...]
    every: Threshold | float
    hides: str

    @property
    def every_s(self) -> float:
        return self.every.value if isinstance(self.every, Threshold) else self.every


#: Scrapes come a little early or late.
_LATE = 1.05
#: For counters of events: none is lost between two scrapes.
ANY_INTERVAL = inf


class Declaration(TypedDict):
    """The arguments of `@detector`; `Detector` documents each of them."""

    title: str
    needs: NotRequired[tuple[type[Row], ...]]
    thresholds: NotRequired[tuple[Threshold, ...]]
    story: NotRequired[str]
    lanes: NotRequired[tuple[str, ...]]
    about: NotRequired[tuple[str, ...]]
    answers: NotRequired[Mapping[str, int]]
    essential: NotRequired[int]
    ruled_out: NotRequired[Callable[[Window], str]]
    advice: NotRequired[Advice]
    mimics: NotRequired[str]
    yields_to: NotRequired[str]
    rises_with: NotRequired[str]
    rises_if: NotRequired[Callable[[Finding], bool]]
    events: NotRequired[tuple[str, ...]]
    moments: NotRequired[Moments]
    spells: NotRequired[Moments]
    holds_core: NotRequired[bool]
    marked: NotRequired[bool]
    ends_jobs: NotRequired[bool]
    treatments: NotRequired[tuple[Treatment, ...]]
    plan_note: NotRequired[str]
    averages: NotRequired[Averages]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A detector and everything it declares about itself."""

    id: str
    doc: str
    detect: Detect
    #: A short noun phrase: "dying memory cgroups".
    title: str
    #: Row types without which the finding is *unknown*.
    needs: tuple[type[Row], ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    #: The heading of its step in the explorer's tour; the title by default.
    story: str = ""
    #: Explorer lanes that show it; its mark goes on the first.
    lanes: tuple[str, ...] = ()
    #: Kinds of entities that a finding names: "core", "task", "unit", "cgroup", "nic", ….
    about: tuple[str, ...] = ()
    #: Kinds of subjects of `sexton why` that it helps to explain, each with its rank. Rank 1 is
    #: decisive: while it is unknown, so is the answer.
    answers: Mapping[str, int] | None = None
    #: Rank among the detectors without which a node is not called healthy; 0 for all others.
    essential: int = 0
    #: What to print on the RULED OUT line when it is absent; "" if its counters were not read.
    ruled_out: Callable[[Window], str] | None = None
    advice: Advice | None = None
    #: The `NAME` of a symptom that this one looks like without kernel stacks.
    mimics: str = ""
    #: The `NAME` of a detector that names the same problem more precisely and takes precedence.
    yields_to: str = ""
    #: A group of symptoms that often rise together without causing each other.
    rises_with: str = ""
    #: Which of its findings count for that group; all of them by default.
    rises_if: Callable[[Finding], bool] | None = None
    #: Kinds of kernel events, alarms and restarts that the explorer marks on its lane.
    events: tuple[str, ...] = ()
    #: Each time it happened (UNIX), if a finding counts events.
    moments: Moments | None = None
    #: When each of its spells began (UNIX), if a finding dates only the worst one.
    spells: Moments | None = None
    #: Its cores were in the kernel for its whole span: the tour unfolds them, and the tour and
    #: HTML files show their flame graph.
    holds_core: bool = False
    #: It was reported by a mark: not a problem of the node, but something to explain.
    marked: bool = False
    #: It often ends a job, which only a mark can show: a timeline that ends with it says so.
    ends_jobs: bool = False
    #: What `sexton fix plan` does about it.
    treatments: tuple[Treatment, ...] = ()
    #: What to do instead, for a problem that the plan does nothing about.
    plan_note: str = ""
    #: What it can tell from scraped averages; `None`: nothing.
    averages: Averages | None = None

    @property
    def headline(self) -> str:
        """The first line of its page."""
        return (self.doc.strip() or self.id).splitlines()[0]  # python -OO has no docstrings

    @property
    def heading(self) -> str:
        """Its heading in the tour."""
        return self.story or self.title[:1].upper() + self.title[1:]

    @property
    def lane(self) -> str:
        """The lane its mark goes on; "" for none."""
        return self.lanes[0] if self.lanes else ""

    def run(self, window: Window) -> Finding:
        """Its finding with the rows it read; *unknown* if the detector is switched off or the
        window lacks rows it needs."""
        if self.id in _settings.off:
            words = f"switched off in {_settings.path}"
            off = unknown(self.id, words, (Missing(f"{self.title}: {words}", ""),))
            return replace(off, essential=self.essential)
        found = self._judge(window)
        return replace(found, silenced=_settings.silenced(found)) if _settings.silences else found

    def _judge(self, window: Window) -> Finding:
        lacking = [kind for kind in self.needs if not window.read(kind)]
        if not lacking:
            seen = witness(window)
            with seen.noting() as noted:
                finding = self._by_averages(self.detect(seen), window, noted)
            rows = seen.rows(noted)
            return replace(with_pods(finding, seen), rows=rows, essential=self.essential)
        states = list(dict.fromkeys(window.why_missing(kind) for kind in lacking))
        found = unknown(self.id, reason(states[0]), map(missing, states))
        return replace(found, essential=self.essential)

    def _by_averages(self, found: Finding, window: Window, noted: Iterable[type[Row]]) -> Finding:
        """*Unknown* for what scraped averages cannot tell; what was read on the node stays as it
        is."""
        step = window.scraped_every(noted)
        known = self.averages
        if step is None:
            return found
        if found.verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE):
            # What nobody scraped may well be on the node.
            states = [window.why_missing(kind) for kind in noted]
            more = [_lack(state) for state in states if state.id in window.states and state.grant]
            if not more:
                return found
            lacking = tuple(dict.fromkeys((*found.missing, *more)))
            return replace(found, verdict=Verdict.UNKNOWN, missing=lacking)
        if known is not None and (
            found.verdict is Verdict.PRESENT or step <= _LATE * known.every_s
        ):
            return found
        need = "readings of the node itself"
        if known is None:
            words = "no exporter has what tells this"
        elif not known.every_s:
            words = f"scraped counters cannot show {known.hides}"
        else:
            words = f"readings every {seconds(step)} cannot show {known.hides}"
            words += f" for less than about {seconds(2 * step)}"
            need = f"readings at most {seconds(known.every_s)} apart"
        return replace(
            found,
            verdict=Verdict.UNKNOWN,
            severity=Severity.INFO,
            summary=f"{words}; by averages: {found.summary}",
            missing=(Missing(need, RECORDER), *found.missing),
        )


def _lack(state: SourceState) -> Missing:
    """A table that nobody scraped, or only in part."""
    if state.state == "ok":
        return Missing(f"the rest of {state.path} ({state.detail})", state.grant)
    return missing(state)


_found: dict[str, Detector] = {}


def detector(**declared: Unpack[Declaration]) -> Callable[[Detect], Detect]:
    """Register the decorated function under its module's stem."""

    def register(function: Detect) -> Detect:
        name = function.__module__.rpartition(".")[2]
        doc = sys.modules[function.__module__].__doc__ or ""
        _found[name] = Detector(id=name, doc=doc, detect=function, **declared)
        return function

    return register


def _modules() -> Iterator[str]:
    """Module names of all detectors; imports only the folders' empty packages."""
    for module in pkgutil.walk_packages(sexton.detect.detectors.__path__, _PACKAGE):
        if not module.ispkg:
            yield module.name


@cache
def detector_ids() -> tuple[str, ...]:
    """The ids of all detectors, by file name: imports none of them."""
    return tuple(sorted(name.rpartition(".")[2] for name in _modules()))


@cache
def all_detectors() -> tuple[Detector, ...]:
    """Every detector, sorted by id."""
    for name in _modules():
        importlib.import_module(name)
    return tuple(_found[name] for name in sorted(_found))


def detector_of(name: str) -> Detector | None:
    """The detector with this id, or `None`."""
    all_detectors()
    return _found.get(name)


def title_of(name: str) -> str:
    """A detector's title; the id in words for a finding of an unknown detector.

    >>> title_of("odd_clock")
    'odd clock'
    """
    known = detector_of(name)
    return known.title if known is not None else name.replace("_", " ")


@cache
def essentials() -> tuple[str, ...]:
    """Ids of the detectors without which a node is not called healthy, by rank."""
    ranked = sorted((check.essential, check.id) for check in all_detectors() if check.essential)
    return tuple(name for _, name in ranked)


def is_marked(finding: Finding) -> bool:
    """Was this reported by a mark?"""
    known = detector_of(finding.id)
    return known is not None and known.marked and finding.verdict is Verdict.PRESENT


def answering(kind: str) -> tuple[str, ...]:
    """Ids of the detectors that help to answer `sexton why` about this kind, best first.

    A pod is known by its cgroups.
    """
    kind = "cgroup" if kind == "pod" else kind
    ranks = {check.id: (check.answers or {}).get(kind) for check in all_detectors()}
    known = {name: rank for name, rank in ranks.items() if rank is not None}
    return tuple(sorted(known, key=known.__getitem__))


def run_all(window: Window) -> tuple[Finding, ...]:
    """Every detector's finding: problems first, the gravest at the top."""
    seen = witness(window)
    return in_order(check.run(seen) for check in all_detectors())


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Present findings first, silenced ones after problems, the gravest at the top."""
    order = [Verdict.PRESENT, Verdict.UNKNOWN, Verdict.ABSENT, Verdict.NOT_APPLICABLE]
    return tuple(
        sorted(
            findings,
            key=lambda finding: (
                order.index(finding.verdict),
                finding.silenced is not None,
                -finding.severity.rank,
                finding.id,
            ),
        )
    )
