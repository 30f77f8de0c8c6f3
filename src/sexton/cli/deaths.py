"""``sexton zombies --watch``: one line per removed memory cgroup, once its outcome is known.

A cgroup that the kernel frees is printed with the time that took; one that is not freed within the
grace period of five seconds is a zombie. The sampler's own loop reads the trace.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sexton.cli.output import has_cursor
from sexton.detect.deaths import GRACE
from sexton.detect.growth import latest_count
from sexton.detect.kubernetes.pods import PodNames, PodPart
from sexton.errors import CommandError
from sexton.host.host import open_host
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.text import count, printable, seconds
from sexton.model.window import Window
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of

_SCHEMA = "sexton.death/1"
_READ = (CgroupEvent, CgroupCensus, Container, Pod)
_CLEAR = "\r\x1b[K"
_TICK_S = 0.25
_FULL = "more were removed at once than the trace buffer holds"


class Outcome(NamedTuple):
    """Outcome of one removal: "released", "zombie" (not freed), "freed" (a late release), or
    "doubtful" (not freed, unless its release is among the lost events)."""

    kind: str
    path: str
    died_s: float
    after_s: float

    @property
    def at_s(self) -> float:
        """When the outcome was known; never decreases from line to line."""
        return self.died_s + self.after_s


@dataclass(slots=True)
class Ledger:
    """Removed cgroups whose outcome is not yet known, totals, and the names of pods so far."""

    open: dict[int, CgroupEvent] = field(default_factory=dict)
    zombies: dict[int, CgroupEvent] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    births: int = 0
    deaths: int = 0
    released: int = 0
    became: int = 0
    unsure: int = 0
    lost: int = 0
    names: PodNames = field(default_factory=PodNames)

    def gap(self, lost: int) -> None:
        """Note lost events: the releases of all open cgroups may be among them."""
        self.lost += lost
        self.doubtful |= self.open.keys()

    def feed(self, events: Iterable[CgroupEvent], now_s: float) -> Iterator[Outcome]:
        """Add `events`, oldest first; yields every outcome known by `now_s`."""
        for event in events:
            at_s = event.mono_ns / 1e9
            if event.kind == "mkdir":
                self.births += 1
            elif event.kind == "rmdir":
                self.deaths += 1
                self.open[event.cgroup_id] = event
                self.doubtful.discard(event.cgroup_id)
            else:
                yield from self._overdue(at_s)
                yield from self._released(event.cgroup_id, at_s)
        yield from self._overdue(now_s)

    def _released(self, cgroup_id: int, at_s: float) -> Iterator[Outcome]:
        if cgroup_id in self.open:
            self.released += 1
            yield _outcome("released", self.open.pop(cgroup_id), at_s)
        elif cgroup_id in self.zombies:
            yield _outcome("freed", self.zombies.pop(cgroup_id), at_s)

    def _overdue(self, now_s: float) -> Iterator[Outcome]:
        overdue = [
            key for key, dead in self.open.items() if now_s - dead.mono_ns / 1e9 >= GRACE.value
        ]
        for key in overdue:
            dead = self.open.pop(key)
            if key in self.doubtful:
                self.doubtful.discard(key)
                self.unsure += 1
                yield _outcome("doubtful", dead, now_s)
                continue
            self.zombies[key] = dead
            self.became += 1
            yield _outcome("zombie", dead, now_s)

    @property
    def totals(self) -> str:
        words = [f"{self.deaths:,} removed", f"{self.released:,} freed"]
        words.append(count(self.became, "zombie"))
        freed = self.became - len(self.zombies)
        words += [f"{freed:,} of them freed later"] if freed else []
        words += [f"{self.unsure:,} unknown"] if self.unsure else []
        words += [f"{len(self.open):,} pending"] if self.open else []
        words += [f"{self.lost:,} events lost"] if self.lost else []
        return " · ".join(words)


def _outcome(kind: str, dead: CgroupEvent, now_s: float) -> Outcome:
    died_s = dead.mono_ns / 1e9
    return Outcome(kind, dead.path, died_s, now_s - died_s)


def watch(root: str, limit_s: float | None, *, as_json: bool = False) -> int:
    """Follow removals until Ctrl-C, SIGTERM or `limit_s`; then print a summary."""
    host = open_host(root)
    if not host.live:
        raise CommandError(
            "--watch traces this machine's kernel: it cannot be combined with --root", 3
        )
    before = [
        (number, signal.signal(number, signal.default_int_handler))
        for number in (signal.SIGTERM, signal.SIGINT)
    ]
    try:
        with Sampler(host, sources_of(*_READ)) as sampler:
            return _follow(sampler, limit_s, as_json=as_json)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _follow(sampler: Sampler, limit_s: float | None, *, as_json: bool) -> int:
    ledger = Ledger()
    began = time.monotonic()
    seen_s = -1.0
    sampler.read_due(began)
    _require_trace(sampler.window())
    first = _dying(sampler.window())
    screen = has_cursor(sys.stdout) and not as_json
    if not as_json:
        now = "" if first is None else f"; {count(first, 'zombie')} now"
        print(f"tracing removed memory cgroups (not processes){now}; Ctrl-C to stop", flush=True)
    try:
        while limit_s is None or time.monotonic() - began < limit_s:
            seen_s = _print_new(sampler, ledger, seen_s, as_json=as_json)
            if screen:
                gone = seconds(time.monotonic() - began)
                sys.stdout.write(f"{_CLEAR} {gone} · {ledger.totals} · Ctrl-C to stop")
            sys.stdout.flush()
            time.sleep(_TICK_S)
            sampler.read_due(time.monotonic())
            sampler.forget(time.monotonic() - 10)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # do not interrupt the summary
    if screen:
        sys.stdout.write(_CLEAR)
    sampler.read_all()
    _print_new(sampler, ledger, seen_s, as_json=as_json)
    if not as_json:
        print(_summary(ledger, time.monotonic() - began, first, _dying(sampler.window())))
    return 0


def _print_new(sampler: Sampler, ledger: Ledger, seen_s: float, *, as_json: bool) -> float:
    """Print what is new since the reading at `seen_s`; returns the time of the newest one."""
    window = sampler.window()
    batches = window.batches(CgroupEvent) or ()
    events = [row for batch in batches if batch.mono_s > seen_s for row in batch.rows]
    gaps = [batch for batch in window.batches(CgroupEventGap) or () if batch.mono_s > seen_s]
    lost = sum(row.lost for batch in gaps for row in batch.rows)
    ledger.names.add(window.all(Pod) or ())
    ledger.names.add(window.all(Container) or ())
    events.sort(key=lambda event: event.mono_ns)
    now_s = batches[-1].mono_s if batches else seen_s
    clear = _CLEAR if has_cursor(sys.stdout) and not as_json else ""
    for outcome in ledger.feed(events, now_s):
        part = ledger.names.of(outcome.path)
        made = _as_json(outcome, window, part) if as_json else _line(outcome, window, part)
        print(clear + made)
    if lost:
        ledger.gap(lost)
        line = {"schema": _SCHEMA, "state": "lost", "events": lost}
        print(clear + (json.dumps(line) if as_json else f" {count(lost, 'event')} lost: {_FULL}"))
    return now_s


def _line(outcome: Outcome, window: Window, part: PodPart | None = None) -> str:
    moment = time.strftime("%H:%M:%S", time.localtime(window.wall(outcome.at_s)))
    words = {
        "released": f"freed after {seconds(outcome.after_s)}",
        "zombie": f"ZOMBIE, not freed after {seconds(outcome.after_s)}",
        "doubtful": f"not freed after {seconds(outcome.after_s)}, or event lost",
        "freed": f"freed after {seconds(outcome.after_s)} as a zombie",
    }
    whose = "" if part is None else f"  ({printable(part.words)})"
    return f" {moment}  {words[outcome.kind]:43}  {printable(outcome.path)}{whose}"


def _as_json(outcome: Outcome, window: Window, part: PodPart | None = None) -> str:
    return json.dumps(
        {
            "schema": _SCHEMA,
            "died": round(window.wall(outcome.died_s), 3),
            "path": printable(outcome.path),
            **({} if part is None else part.fields),
            "state": outcome.kind,
            "after_s": round(outcome.after_s, 6),
        }
    )


def _require_trace(window: Window) -> None:
    if window.batches(CgroupEvent) is not None:
        return
    state = window.why_missing(CgroupEvent)
    as_root = "sudo sexton zombies --watch"
    if state.state == "timeout":  # tracing waits for every core
        grant = "sudo sexton diagnose names a task that holds a core"
    else:
        grant = as_root if state.state == "denied" else state.grant or as_root
    raise CommandError(f"cannot trace cgroup removals: {state.detail}; {grant}", 3)


def _dying(window: Window) -> int | None:
    census = latest_count(window)
    return None if census is None else census.dying


def _summary(ledger: Ledger, watched_s: float, first: int | None, last: int | None) -> str:
    text = f"in {seconds(watched_s)}: {ledger.totals}"
    if first is not None and last is not None:
        text += f"; zombies before: {first:,}, now: {last:,}"
    return text
