"""The daemon around the sampling loop: writes readings to disk and raises alarms.

One thread samples and decides, one writes (`sexton.store.writer`), one waits for slow sources
(`sexton.record.sampler`). Nothing here blocks on the node: not on a disk, not on D-Bus, not on a
program. Companions (stacks, ring, shipping) run beside the loop and are called once a second.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sexton import __version__
from sexton.detect.registry import settings_in_force
from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.row import Row, table
from sexton.model.rows.cpu import Interrupt, ProbeCost
from sexton.model.rows.net import NicQueue
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.text import printable
from sexton.model.window import Batch
from sexton.record import budget as budgets
from sexton.record.budget import Budget, Spent
from sexton.record.companions import Companion, Guarded, Place, make_in_time
from sexton.record.sampler import Sampler
from sexton.record.schedule import CLOSER, EVERY_S, recorded_sources
from sexton.record.sealing import ChildSealer
from sexton.record.side_files import Note, SideFileWriter
from sexton.record.triggers import Pinning, Raised, Triggers
from sexton.sources.registry import Source
from sexton.store.layout import Lock, prepare
from sexton.store.retention import Limits
from sexton.store.writer import SEGMENT_S, Writer

FLUSH_S = 5.0
JUDGE_S = 10.0
#: How long tables are read every second after an alarm.
CLOSER_S = 60.0
_CLOCK_JUMP_S = 1.0
_ROWS_A_MINUTE = 50_000
_PROBE = "bpf.softirq_wait"
_PAUSED = {
    "perf.decode": "stack decoding paused; samples kept",
    "perf.stacks": "stack sampling paused",
    "tracefs.ring": "event ring paused",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of ``sexton record``."""

    directory: Path
    limits: Limits
    seconds: float | None = None
    probe: bool = True
    trace: bool = True
    cpu_percent: float | None = None
    memory_bytes: int = budgets.MEMORY_BYTES
    segment_s: float = SEGMENT_S
    flush_s: float = FLUSH_S
    #: Files of the configuration, which is read once at the start.
    config_files: tuple[str, ...] = ()
    #: The private key that sealed segments are signed with; only the children read it.
    sign_key: str = ""


@dataclass(slots=True)
class _Clock:
    """Times of the next actions (monotonic seconds)."""

    beat: float
    flush: float
    judge: float
    offset: float = field(default_factory=lambda: time.time() - time.monotonic())


class Recorder:
    """Records one node into one directory. Use as a context manager."""

    def __init__(
        self,
        host: Host,
        options: Options,
        companions: Sequence[Callable[[Place], Companion]] = (),
        sources: Sequence[Source] | None = None,
    ) -> None:
        self.options = options
        self.host = host
        host.lasting = True
        self.stopping = threading.Event()
        #: Why requested companions are unavailable.
        self.refused: list[str] = []
        prepare(options.directory)
        self._lock: Lock | None = Lock(options.directory)
        self._triggers = Triggers()
        self._budget = Budget(options.cpu_percent, options.memory_bytes)
        self._alarm_until = 0.0
        self._alarms = 0
        self._nic_irqs: frozenset[str] = frozenset()
        self._kernel_s = 0.0
        self._recent: list[Note] = []
        self._began_s = time.monotonic()
        sealer = ChildSealer(options.directory, options.limits, options.sign_key)
        left = sealer.take_over()
        self.boot_id = text(host.files, "/proc/sys/kernel/random/boot_id").strip()
        self._pinning = Pinning(self.boot_id)
        self._side_files = SideFileWriter(options.directory, options.config_files)
        chosen = recorded_sources(probe=options.probe, trace=options.trace)
        self._sources = tuple(chosen if sources is None else sources)
        self._writer = Writer(
            options.directory, self._header(), options.limits, options.segment_s, sealer
        )
        self._sampler = Sampler(host, self._sources, self._keep)
        for words in left:
            self._note("taken over", words)
        self._companions: list[Companion] = []
        try:
            self._accompany(companions)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything, seal what was read, and release the lock."""
        for companion in self._companions:
            if not companion.outlasts:
                companion.close()
        self._sampler.close()
        self._pass_on()
        whole = self._writer.close(self._sampler.states())
        for companion in self._companions:
            if companion.outlasts:
                companion.close()
        self._status("stopped" if whole else "stopped; the last minutes could not be written")
        self._side_files.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def problem(self) -> str:
        """Why nothing can be written now; empty if it can."""
        return self._writer.written.problem

    def run(self, tick: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Run until `stopping` is set or the time is over; `tick` gets the status at a flush."""
        gc.collect()
        gc.freeze()  # imported modules stay: no need to scan them again
        gc.set_threshold(_ROWS_A_MINUTE)  # rows make no cycles; an occasional collection is enough
        now = time.monotonic()
        end_s = float("inf") if self.options.seconds is None else now + self.options.seconds
        clock = _Clock(now + EVERY_S, now + self.options.flush_s, now + JUDGE_S)
        while not self.stopping.is_set() and time.monotonic() < end_s:
            self._sampler.read_due(time.monotonic())
            now = time.monotonic()
            if now >= clock.beat:
                self._beat(now, clock)
            if now >= clock.flush:
                clock.flush = now + self.options.flush_s
                self._writer.flush(self._sampler.states())
                status = self._status("recording")
                if tick is not None:
                    tick(status)
            if now >= clock.judge:
                clock.judge = now + JUDGE_S
                self._judge()
            wake = min(self._sampler.next_due_s, clock.beat, clock.flush, end_s)
            self.stopping.wait(max(0.0, wake - time.monotonic()))
        self._take(self._side_files.last_marks(), time.monotonic())

    def _accompany(self, wanted: Sequence[Callable[[Place], Companion]]) -> None:
        node, limits = os.uname().nodename, self.options.limits
        options = self.options
        place = Place(
            self.host, options.directory, node, self.boot_id, limits.most_bytes, options.sign_key
        )
        for make in wanted:
            try:
                may_hang = getattr(make, "may_hang", False)
                made = make_in_time(make, place) if may_hang else make(place)
                self._companions.append(Guarded(made))
            except (SourceError, OSError) as error:
                # Sources name `diagnose` in their advice.
                grant = (getattr(error, "grant", "") or "").replace("diagnose", "record")
                grant = f"; {grant}" if grant else ""
                self.refused.append(printable(f"{error}{grant}"))
                self._note("source", str(error))

    def _header(self) -> dict[str, Any]:
        return {
            "boot_id": self.boot_id,
            "host": os.uname().nodename,
            "sexton": __version__,
            "recorder_start": round(time.time() - (time.monotonic() - self._began_s), 3),
            "providers": {
                table(kind): source.id for source in self._sources for kind in source.rows
            },
            "periods": {source.id: source.period_s for source in self._sources},
            "config": settings_in_force().document,
        }

    def _keep(self, kind: type[Row], batch: Batch[Any]) -> None:
        """Called with every reading of the sampler."""
        if kind is NicQueue:
            self._nic_irqs = frozenset(str(row.irq) for row in batch.rows)
        elif kind is Interrupt and self._nic_irqs:
            rows = tuple(row for row in batch.rows if row.irq in self._nic_irqs)
            batch = Batch(batch.mono_s, batch.wall_s, rows)
        elif kind is ProbeCost and batch.rows:
            self._kernel_s = max(self._kernel_s, (batch.rows[-1].spent_ms or 0.0) / 1000)
        self._writer.append(kind, batch)
        for raised in self._triggers.feed(kind, batch):
            self._alarm(raised)

    def _beat(self, now: float, clock: _Clock) -> None:
        clock.beat = max(clock.beat + EVERY_S, now)
        offset = time.time() - time.monotonic()
        if abs(offset - clock.offset) >= _CLOCK_JUMP_S:
            self._note("clock", f"the wall clock moved by {offset - clock.offset:+,.1f} s")
            clock.offset = offset
        self._take(self._side_files.marks(), now)
        self._side_files.look()
        for words in self._side_files.problems():
            self._note("disk", words)
        for path in self._side_files.changed():
            self._note("config", f"{path} changed; restart the recorder to apply it")
        for pin in self._side_files.pinned():  # shipping looks for its file
            for companion in self._companions:
                companion.alarmed(pin)
        self._pass_on()
        self._look_closer(now)
        for companion in self._companions:
            for row in companion.beat(now, now < self._alarm_until):
                if isinstance(row, RecorderNote):
                    self._note(row.kind, row.detail)
                else:
                    self._append(row)

    def _take(self, marks: Sequence[str], now: float) -> None:
        for mark in marks:
            self._append(Mark(mark))
            self._alarm(Raised("mark", mark, mark, now))

    def _pass_on(self) -> None:
        """Record the notes of the writer."""
        while self._writer.written.notes:
            self._note(*self._writer.written.notes.popleft())

    def _look_closer(self, now: float) -> None:
        """While an alarm is active, read tables every second; afterwards on schedule."""
        wanted = EVERY_S if now < self._alarm_until else None
        given_up = {name for _, name in self._budget.given_up}
        for source in self._sources:
            if source.id in CLOSER and source.id not in given_up:
                self._sampler.pace(source.id, wanted or source.period_s)

    def _alarm(self, raised: Raised) -> None:
        now = raised.mono_s
        self._alarm_until = now + CLOSER_S
        self.host.memo["alarm_until"] = self._alarm_until
        placed = self._pinning.place(raised)
        pin = placed.pin
        if placed.is_news:
            self._alarms += 1
            self._append(Alarm(raised.kind, raised.about, raised.detail, pin.start_s, pin.end_s))
        if placed.is_first:
            self._sampler.read_now(CLOSER)
        if placed.is_moved:
            self._side_files.pin(pin)
            for companion in self._companions:
                companion.alarmed(pin)

    def _judge(self) -> None:
        costs = {companion.name: companion.cost() for companion in self._companions}
        children_s = budgets.waited_children_s() + sum(cpu for cpu, _ in costs.values())
        rss = budgets.own_rss() + sum(rss for _, rss in costs.values())
        spent = Spent(time.process_time(), children_s, self._kernel_s, rss)
        written = self._writer.written
        self._append(
            RecorderCost(
                cpu_ms=round(spent.own_s * 1000),
                children_cpu_ms=round(spent.children_s * 1000),
                kernel_ms=round(spent.kernel_s * 1000) if self.options.probe else None,
                rss_bytes=budgets.own_rss(),
                children_rss_bytes=sum(rss for _, rss in costs.values()),
                written_bytes=written.bytes,
                held_bytes=self._writer.held_bytes,
            )
        )
        cpu_by_source = self._sampler.costs()
        cpu_by_source.update((name, cpu) for name, (cpu, _) in costs.items())
        if _PROBE in cpu_by_source:  # what it costs is the kernel's time
            cpu_by_source[_PROBE] += self._kernel_s
        now = time.monotonic()
        closely = now - self._alarm_until < budgets.OVER_S and self._alarms > 0
        times = budgets.CLOSER_TIMES if closely else 1.0
        verdict = self._budget.judge(now, spent, cpu_by_source, times)
        if verdict is None:
            heavy = {name: rss for name, (_, rss) in costs.items()}
            verdict = self._budget.judge_memory(now, spent.rss_bytes, heavy)
        if verdict is None:
            return
        words = {
            "slow": "read less often",
            "rest": "paused",
            "restore": "resumed",
            "report": "over its limit",
        }
        about = f"{verdict.source} {words[verdict.action]}"
        if verdict.action == "rest":
            about = _PAUSED.get(verdict.source, about)
        said = f"{about}: {verdict.why}"
        kinds = {"restore": "restored", "report": "over"}
        self._note(kinds.get(verdict.action, "shed"), said)
        self._apply(verdict, said)

    def _apply(self, verdict: budgets.Verdict, words: str) -> None:
        for companion in self._companions:
            if companion.name == verdict.source:
                companion.wake() if verdict.action == "restore" else companion.rest()
                return
        period = next(
            (source.period_s for source in self._sources if source.id == verdict.source), None
        )
        if period is None:
            return
        if verdict.action == "slow":
            self._sampler.pace(verdict.source, budgets.slower(period))
        elif verdict.action == "rest":
            self._sampler.rest(verdict.source, words)
        else:
            self._sampler.wake(verdict.source)
            self._sampler.pace(verdict.source, period)

    def _append(self, row: Row) -> None:
        self._writer.append(type(row), Batch(time.monotonic(), time.time(), (row,)))

    def _note(self, kind: str, words: str) -> None:
        self._append(RecorderNote(kind, words))
        self._recent = [*self._recent[-49:], Note(time.time(), kind, printable(words))]

    def _status(self, state: str) -> dict[str, Any]:
        written = self._writer.written
        share = self._budget.share
        states: dict[str, list[str]] = {}
        for source_state in self._sampler.states():
            states.setdefault(source_state.state, []).append(source_state.id)
        status = {
            "schema": "sexton.recorder/1",
            "state": state,
            "pid": os.getpid(),
            "since": round(time.time() - (time.monotonic() - self._began_s), 3),
            "at": round(time.time(), 3),
            "cpu_percent_of_a_core": None if share is None else round(share, 2),
            "cpu_limit_percent": self._budget.percent,
            "rss_bytes": budgets.own_rss(),
            "held_bytes": self._writer.held_bytes,
            "written_bytes": written.bytes,
            "segments_sealed": written.segments,
            "lost_rows": written.lost_rows + written.refused_rows + written.dropped_rows,
            "problem": written.problem,
            "alarm": time.monotonic() < self._alarm_until,
            "alarms": self._alarms,
            "shed": [{"source": name, "how": how} for how, name in self._budget.given_up],
            "sources": {name: sorted(ids) for name, ids in sorted(states.items())},
            "companions": {companion.name: companion.status() for companion in self._companions},
            "notes": [note._asdict() for note in self._recent[-20:]],
        }
        self._side_files.show(status)
        return status
