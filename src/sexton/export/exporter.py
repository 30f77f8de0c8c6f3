"""Keeps the metrics of one recording up to date while somebody scrapes them.

A thread refreshes them: the last readings every `Pace.refresh_s`, the verdict every `Pace.judge_s`
and after an alarm. A scrape only hands out what is there. It never waits: for a disk, for a source,
or for the thread. What is too old is left out, because an old value looks like a new one: then only
the recorder's state remains. Nobody scraping means no work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from math import inf
from pathlib import Path
from typing import NamedTuple

from sexton import __version__
from sexton.errors import SextonError
from sexton.explorer.tiles.processes import ForkServer, Gone
from sexton.export import families as f
from sexton.export.exposition import Page, Totals
from sexton.export.samples import Counts, Samples
from sexton.export.work import Answer, MetricsWork
from sexton.model.text import printable

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Pace(NamedTuple):
    """How often, and after how long what was read is too old (seconds).

    After `idle_s` without a scrape nothing is refreshed until the next one.
    """

    refresh_s: float = 15.0
    judge_s: float = 60.0
    fresh_s: float = 30.0
    stale_s: float = 60.0
    idle_s: float = 600.0


class _State(NamedTuple):
    """The page of one refresh, and the last reading in it."""

    page: Page
    mono_s: float
    wall_s: float


class Exporter:
    """Metrics of one recording. Create it before threads are started: it forks."""

    def __init__(self, directory: Path, pace: Pace = Pace()) -> None:  # noqa: B008 - immutable
        self._pace = pace
        self._boot_id = _boot_id()
        self._server = ForkServer(MetricsWork(directory))
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._totals = Totals()
        self._kernel: Counts | None = None
        self._seen_s = -inf
        self._judged: Answer | None = None
        self._alarms: object = None
        self._due_s = -inf
        self._spent_s = self._served_s = 0.0
        self._failures = 0
        self._said = ""
        self._state: _State | None = None
        self._asked = False
        self._scraped_s = time.monotonic()

    def scrape(self, accept: str, gzipped: bool) -> tuple[bytes, str]:
        """The metrics as they are known now, and their content type."""
        now = time.monotonic()
        idle = now - self._scraped_s > self._pace.idle_s
        self._scraped_s = now
        if idle:
            self._wake.set()
        state = self._state
        if state is None or now - state.mono_s > self._pace.stale_s:
            return Page(self._without_readings(state)).body(accept, gzipped)
        return state.page.body(accept, gzipped)

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

    def close(self) -> None:
        """End the process that reads; after `run`."""
        self._server.close()

    def refresh(self) -> None:
        """Read what is new; on failure the state grows old, and is left out in the end."""
        try:
            found = self._ask("current", self._seen_s, self._pace.refresh_s)
            alarms = found.samples.value(f.ALARMS)
            if time.monotonic() >= self._due_s or alarms != self._alarms:
                self._due_s = time.monotonic() + self._pace.judge_s
                self._alarms = alarms
                self._judged = self._ask("judged")
        except Gone:
            raise
        except (SextonError, RuntimeError) as error:  # RuntimeError: a bug in what reads
            self._failures += 1
            self._say(str(error))
            return
        finally:
            self._asked = True
        self._state = self._combined(found)

    def _ask(self, question: str, *arguments: float) -> Answer:
        answer: Answer = self._server.ask(question, arguments, self._stopping.is_set)
        self._spent_s += answer.spent_s
        self._served_s = answer.served_s
        return answer

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            print(f"sexton: metrics: {printable(words)}", file=sys.stderr, flush=True)

    def _combined(self, found: Answer) -> _State:
        samples = found.samples
        judged = self._judged
        same_boot = judged is not None and judged.boot_id == found.boot_id
        if judged is not None and same_boot:
            patience_s = self._pace.judge_s + 2 * self._pace.stale_s
            if found.mono_s - judged.mono_s <= patience_s:
                samples.update(judged.samples)
        if found.kernel is not None:
            before = self._kernel
            self._kernel = found.kernel if before is None else before.plus(found.kernel)
            self._seen_s = found.seen_s
        if self._kernel is not None:
            samples.add(f.CORE_KERNEL, self._kernel)
        # Of another boot: no reading of it is fresh.
        mono_s = found.mono_s if found.boot_id == self._boot_id else -inf
        fresh = time.monotonic() - mono_s <= self._pace.fresh_s
        samples.add(f.RECORDER, int(found.live and fresh))
        samples.add(f.LAST_READING, found.wall_s)
        self._add_own(samples)
        self._totals.apply(samples)
        return _State(Page(samples), mono_s, found.wall_s)

    def _without_readings(self, state: _State | None) -> Samples:
        """What can be said while nothing is read: the recorder is not at work."""
        samples = Samples()
        if state is not None or self._asked:
            samples.add(f.RECORDER, 0)
        if state is not None:
            samples.add(f.LAST_READING, state.wall_s)
        self._add_own(samples)
        return samples

    def _add_own(self, samples: Samples) -> None:
        samples.add(f.BUILD, 1, __version__)
        own_s = time.process_time()
        samples.add(f.EXPORTER_CPU, own_s + self._spent_s + self._served_s)
        samples.add(f.EXPORTER_MEMORY, _resident("self") + _resident(self._server.pid))
        samples.add(f.FAILURES, self._failures)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _resident(pid: int | str) -> int:
    """Its resident bytes; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
