"""Keeps the metrics of one recording up to date while somebody scrapes them.

A thread refreshes them: the last readings every `Pace.refresh_s`; the verdict after an alarm, every
`Pace.judge_s` while there is an alarm or a problem, and else every `Pace.calm_s`. A scrape only
hands out what is there. It never waits: for a disk, for a source, or for what the thread waits for.
What is too old is left out, because an old value looks like a new one: then only the recorder's
state remains. Nobody scraping means no work.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import NamedTuple

from sexton import __version__
from sexton.errors import SextonError
from sexton.explorer.tiles.processes import ForkServer, Gone, Usage
from sexton.export import families as f
from sexton.export.current import SPAN_S
from sexton.export.exposition import Page, Totals
from sexton.export.pace import Pace
from sexton.export.samples import Counts, Samples
from sexton.export.work import Answer, MetricsWork
from sexton.model.diagnosis import Exit
from sexton.model.text import printable

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def once(directory: Path, pace: Pace = Pace()) -> Samples:  # noqa: B008 - immutable
    """Everything that a recording tells now. If its last reading is too old, only since when."""
    work, samples = MetricsWork(directory), Samples()
    found = work.answer("current", (-inf, SPAN_S))
    age_s = time.monotonic() - found.mono_s
    of_now = found.boot_id == _boot_id() and -pace.fresh_s <= age_s <= pace.stale_s
    if of_now:
        samples.update(found.samples)
        samples.update(work.answer("judged", ()).samples)
    samples.add(f.BUILD, 1, __version__)
    samples.add(f.RECORDER, int(found.live and of_now and age_s <= pace.fresh_s))
    samples.add(f.PROBLEM, found.problem)
    samples.add(f.LAST_READING, found.wall_s)
    return samples


class _State(NamedTuple):
    """The page of one refresh, what follows it once its last reading is not fresh any more, and
    that reading: at -inf if there is none of this boot. `problem` was known at `asked_s`."""

    page: Page
    late: Page
    mono_s: float
    wall_s: float | None
    problem: bool | None
    asked_s: float


class Exporter:
    """Metrics of one recording. Create it before threads are started: it forks."""

    def __init__(self, directory: Path, pace: Pace = Pace()) -> None:  # noqa: B008 - immutable
        self._pace = pace
        self._boot_id = _boot_id()
        self._server = ForkServer(MetricsWork(directory), itself=("current",))
        #: Of processes that others have started here.
        self._beside: Callable[[], Usage] = lambda: Usage(0.0, 0)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._totals = Totals()
        self._kernel: Counts | None = None
        self._seen_s = -inf
        self._judged: Answer | None = None
        self._alarms: object = None
        self._due_s = -inf
        self._spent_s = 0.0
        self._failures = 0
        self._last_message = ""
        #: So that a scrape never hands out less of a counter than the one before.
        self._lock = threading.Lock()
        self._state: _State | None = None
        #: Whether a refresh has ended since somebody began to scrape.
        self._tried = False
        self._scraped_s = time.monotonic()

    def scrape(self, accept: str, gzipped: bool) -> tuple[bytes, str]:
        """The metrics as they are known now, and their content type."""
        now = time.monotonic()
        idle = now - self._scraped_s > self._pace.idle_s
        self._scraped_s = now
        if idle:
            self._tried = False
            self._wake.set()
        with self._lock:
            state = self._state
            if state is None or now - state.mono_s > self._pace.stale_s:
                page = Page(self._without_readings(state))
            else:
                page = state.page if now - state.mono_s <= self._pace.fresh_s else state.late
        return page.body(accept, gzipped)

    def run(self) -> None:
        """Refresh until `stop`; raises what no refresh can mend."""
        while not self._stopping.is_set():
            if time.monotonic() - self._scraped_s <= self._pace.idle_s:
                self.refresh()
            self._wake.wait(self._pace.refresh_s)
            self._wake.clear()

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()
        self._wake.set()

    def count(self, usage: Callable[[], Usage]) -> None:
        """Count other child processes of this process as part of its cost."""
        self._beside = usage

    def close(self) -> None:
        """End the process that reads; after `run`."""
        self._server.close()

    def refresh(self) -> None:
        """Read what is new; on failure the state grows old, and is left out in the end."""
        try:
            found = self._ask("current", self._seen_s, self._pace.refresh_s)
            if not self._is_of_now(found):
                self._state = self._state_of(found, Samples(), -inf)
                return
            self._count_cores(found)
            self._publish(found)  # a verdict takes long on a node in trouble
            alarms = found.samples.value(f.ALARMS)
            if time.monotonic() >= self._due_s or alarms != self._alarms:
                self._due_s = time.monotonic() + self._pace.judge_s
                self._alarms = alarms
                self._judged = self._ask("judged")
                # What an alarm announces may not be found yet when it begins.
                lasts_s = self._pace.judge_s if found.alarm else self._lasts_s(self._judged)
                self._due_s = time.monotonic() + lasts_s
                if self._is_of_now(self._judged):
                    self._publish(found)
        except Gone:
            raise
        except (SextonError, OSError, RuntimeError) as error:  # RuntimeError: a bug in what reads
            self._failures += 1
            self._print(str(error))
        finally:
            self._tried = True

    def _ask(self, question: str, *arguments: float) -> Answer:
        answer: Answer = self._server.ask(question, arguments, self._stopping.is_set)
        return answer

    def _print(self, message: str) -> None:
        if message != self._last_message:
            self._last_message = message
            with contextlib.suppress(OSError):  # whatever read it has gone
                print(f"sexton: metrics: {printable(message)}", file=sys.stderr, flush=True)

    def _is_of_now(self, found: Answer) -> bool:
        """Is it about this boot, and not ahead of it?"""
        ahead_s = found.mono_s - time.monotonic()
        return found.boot_id == self._boot_id and ahead_s <= self._pace.fresh_s

    def _count_cores(self, found: Answer) -> None:
        if found.kernel is not None:
            before = self._kernel
            self._kernel = found.kernel if before is None else before.plus(found.kernel)
            self._seen_s = found.seen_s

    def _lasts_s(self, judged: Answer) -> float:
        problem = judged.samples.value(f.VERDICT) == Exit.PROBLEM
        window_s = judged.samples.value(f.VERDICT_WINDOW)
        return self._pace.verdict_lasts_s(problem, window_s if isinstance(window_s, float) else 0.0)

    def _publish(self, found: Answer) -> None:
        """Hand out these readings from now on, with the last verdict if it is not too old."""
        samples = found.samples.copy()
        judged = self._judged
        if judged is not None and self._is_of_now(judged):
            oldest_s = found.mono_s - self._lasts_s(judged) - 2 * self._pace.stale_s
            if judged.mono_s >= oldest_s:
                samples.update(judged.samples)
        if self._kernel is not None:
            samples.add(f.CORE_KERNEL, self._kernel)
        samples.add(f.RECORDER, int(found.live))
        samples.add(f.LAST_READING, found.wall_s)
        samples.add(f.PROBLEM, found.problem)
        with self._lock:
            self._add_own(samples)
            self._totals.apply(samples)
            self._state = self._state_of(found, samples, found.mono_s)

    def _state_of(self, found: Answer, samples: Samples, mono_s: float) -> _State:
        late = samples.copy()
        late.put(f.RECORDER, (), 0)
        known = found.wall_s, found.problem, time.monotonic()
        return _State(Page(samples), Page(late), mono_s, *known)

    def _without_readings(self, state: _State | None) -> Samples:
        """What can be said while nothing is read: the recorder is not at work. After a pause in
        which nobody scraped, that is not known either."""
        samples = Samples()
        if self._tried:
            samples.add(f.RECORDER, 0)
            if state is not None:
                samples.add(f.LAST_READING, state.wall_s)
                asked = time.monotonic() - state.asked_s <= self._pace.stale_s
                samples.add(f.PROBLEM, state.problem if asked else None)
        self._add_own(samples)
        return samples

    def _add_own(self, samples: Samples) -> None:
        samples.add(f.BUILD, 1, __version__)
        others = self._server.usage(), self._beside()
        spent_s = time.process_time() + sum(each.cpu_s for each in others)
        self._spent_s = max(spent_s, self._spent_s)  # one that ends is missing for an instant
        samples.add(f.EXPORTER_CPU, self._spent_s)
        samples.add(f.EXPORTER_MEMORY, _resident() + sum(each.bytes for each in others))
        samples.add(f.FAILURES, self._failures)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _resident() -> int:
    """Bytes of this process."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except OSError:  # no file is left to open
        return 0
