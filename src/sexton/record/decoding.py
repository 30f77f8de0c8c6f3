"""Decodes the files that perf has closed, in a child process of the lowest priority.

A file that perf has closed waits until the segment of its minutes is sealed. Then
``python -m sexton.record.decode_child`` reads it, resolves symbols, seals heat and stacks into that
segment (`sexton.store.annex`) and deletes the file. Files that wait together go to one child.

- One child at a time, nice 19, with a deadline and limits on memory (enforced by itself and by us)
  and CPU time; it dies with us. What it had begun is then removed by the next recorder, and the
  file is still there.
- A file that cannot be decoded is kept, reported once, and does not delay the others. The next
  recorder tries it again.
- If more files wait than one child takes, the newest go first. Their number is in the status; the
  limit on perf's files bounds them on disk.
- A child's cost is spread over the minutes whose samples it decodes, since the budget looks at
  single minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import SourceError
from sexton.host.runner import ChildOptions, Running, module_command, start
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.model.text import count, printable
from sexton.record.budget import exclude_child_cpu
from sexton.record.decode_child import MEMORY_BYTES, Request
from sexton.record.stacks import NO_COST, ChildCost, Closed, Rotation, closed_in, cost_of
from sexton.store.annex import annex_name, home_of
from sexton.store.layout import ASIDE
from sexton.store.pins import Pin

if TYPE_CHECKING:
    from sexton.record.companions import Place

NICE = 19
_CHILD_OPTIONS = ChildOptions(nice=NICE, private=True, keep_stderr=True, dies_with_parent=True)
_CHILD = "sexton.record.decode_child"
#: The first words of a child's lines.
_WORDS = ("done", "waits", "gone", "failed")
#: The symbol cache may take 1/32 of the recording's bytes.
_CACHE_SHARE, _LEAST_CACHE = 32, 8 << 20
_LOOK_S = 5.0
#: For one child; a busy node leaves little CPU to the lowest priority.
_DEADLINE_S = 600.0
#: Our own limit, if the child's did not work.
_MOST_BYTES = MEMORY_BYTES + (64 << 20)
#: Until the next child: after a failure, and if a segment was still open.
_LATER_S, _WAIT_S = 300.0, 60.0
#: What one child is given at most: files and bytes.
_MOST_FILES, _MOST_RAW = 12, 384 << 20
#: After this many failed children a file is not tried again.
_MOST_TRIES = 3
#: With more waiting files than this a note is recorded.
_BEHIND = 20


class Pace(NamedTuple):
    """When files are decoded.

    A file is due when the segment that holds most of its minutes is sealed, and after `patience_s`
    in any case. Closing takes at most `close_s` for the rest.
    """

    patience_s: float = 900.0
    close_s: float = 12.0


@dataclass(slots=True)
class Counts:
    """For the status: files, and bytes before and after."""

    decoded: int = 0
    failed: int = 0
    samples: int = 0
    raw_bytes: int = 0
    kept_bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    last_error: str = ""


@dataclass(slots=True)
class _Batch:
    """One child and its files."""

    child: Running
    files: dict[str, Closed]
    began_s: float
    cost: ChildCost = NO_COST


@dataclass(slots=True)
class _Waiting:
    """Since when a file is known, and how many children failed on it."""

    since_s: float
    tries: int = 0
    failed: bool = False


class Decoding:
    """The companion that decodes what `Stacks` has recorded."""

    name = "perf.decode"
    outlasts = True  # the last file's segment is sealed after perf has ended
    may_hang = False

    def __init__(self, place: Place, pace: Pace = Pace()) -> None:  # noqa: B008 - immutable
        self.counts = Counts()
        self._place = place
        self._pace = pace
        self._folder = os.path.join(os.path.realpath(place.directory), "stacks")
        self._segment_s = Rotation.for_cores(os.cpu_count() or 1).segment_s
        self._known: dict[str, _Waiting] = {}
        self._batch: _Batch | None = None
        self._notes: list[str] = []
        self._looked_s = 0.0
        self._not_before_s = 0.0
        self._resting = self._behind_noted = False
        #: (from, to, CPU seconds): counted evenly between the two.
        self._owed: list[tuple[float, float, float]] = []
        self._spent_s = 0.0

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:  # noqa: ARG002 - a companion's
        if self._batch is not None:
            self._tend(now_s)
        elif now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            waiting = self._look(now_s)
            if not self._resting and now_s >= self._not_before_s:
                self._begin(now_s, self._due(now_s, waiting))
        notes, self._notes = self._notes, []
        return [RecorderNote("stacks", words) for words in notes]

    def alarmed(self, pin: Pin) -> None:
        """No effect: files are decoded as soon as possible."""

    def cost(self) -> tuple[float, int]:
        now_s = time.monotonic()
        batch = self._batch
        if batch is not None:
            self._measure(batch)
        owed = 0.0
        for debt in list(self._owed):
            begin, end, cpu_s = debt
            if now_s >= end:
                self._owed.remove(debt)
                self._spent_s += cpu_s
            else:
                owed += cpu_s * max(now_s - begin, 0.0) / (end - begin)
        return self._spent_s + owed, 0 if batch is None else batch.cost.rss_bytes

    def rest(self) -> None:
        self._resting = True
        self._give_up()

    def wake(self) -> None:
        self._resting = False

    def close(self) -> None:
        """Decode what is left, for some seconds; the next recorder does the rest."""
        end_s = time.monotonic() + self._pace.close_s
        began = self._resting
        while (now_s := time.monotonic()) < end_s:
            if self._batch is not None:
                self._tend(now_s)
                time.sleep(0.05)
            elif began:
                break
            else:
                began = True
                self._begin(now_s, self._last(now_s))
        self._give_up()
        self._look(time.monotonic())

    def status(self) -> dict[str, Any]:
        busy_s = 0.0 if self._batch is None else time.monotonic() - self._batch.began_s
        cpu_s = self._spent_s + sum(cpu_s for _, _, cpu_s in self._owed)
        more = {"busy_s": round(busy_s, 1), "cpu_s": round(cpu_s, 2), "resting": self._resting}
        return {**asdict(self.counts), **more}

    # Which files, and when.

    def _look(self, now_s: float) -> list[Closed]:
        """Files that are waiting and have not failed, newest first."""
        found = {os.path.basename(file.path): file for file in closed_in(self._folder)}
        self._known = {
            name: self._known.get(name) or _Waiting(now_s) for name in found
        }  # files that are gone are forgotten
        waiting = [value for name, value in found.items() if not self._known[name].failed]
        self.counts.waiting = len(waiting)
        self.counts.waiting_bytes = sum(value.bytes for value in waiting)
        if len(waiting) > _BEHIND and not self._behind_noted:
            self._behind_noted = True
            self._notes.append(f"{count(len(waiting), 'file')} waiting to be decoded, newest first")
        elif len(waiting) <= _BEHIND // 2:
            self._behind_noted = False
        return waiting[::-1]

    def _due(self, now_s: float, waiting: list[Closed]) -> list[Closed]:
        """The files for one child."""
        chosen: list[Closed] = []
        for file in waiting:
            if not self._has_home(now_s, file):
                continue
            chosen.append(file)
            if len(chosen) == _MOST_FILES or sum(one.bytes for one in chosen) > _MOST_RAW:
                break
        return chosen

    def _has_home(self, now_s: float, file: Closed) -> bool:
        """Whether its segment is sealed: checked here, since starting a child is expensive."""
        request = self._request(now_s, file)
        if not request.patient or not request.boot_id:
            return True
        span = (request.start_s, request.end_s)
        home = home_of(self._place.directory, request.boot_id, span)
        return home.path is not None and not home.waits

    def _last(self, now_s: float) -> list[Closed]:
        """All waiting files: at the end they do not wait for their segments any more."""
        waiting = self._look(now_s)
        for name in self._known:
            self._known[name].since_s = now_s - self._pace.patience_s
        return waiting

    # The child.

    def _begin(self, now_s: float, files: list[Closed]) -> None:
        if not files:
            return
        requests = [self._request(now_s, file) for file in files]
        cache = str(max(self._place.most_bytes // _CACHE_SHARE, _LEAST_CACHE))
        arguments = [str(self._place.directory), json.dumps(requests), cache]
        arguments += filter(None, [self._place.sign_key])
        try:
            child = start(module_command(_CHILD, *arguments), _CHILD_OPTIONS)
        except SourceError as error:
            self.counts.last_error = printable(str(error))
            self._not_before_s = now_s + 60.0
            return
        self._batch = _Batch(child, {os.path.basename(file.path): file for file in files}, now_s)

    def _request(self, now_s: float, file: Closed) -> Request:
        name = os.path.basename(file.path)
        patient = now_s - self._known[name].since_s < self._pace.patience_s
        boot_id = "" if file.mono_end_s is None else self._place.boot_id
        end_s = file.mono_end_s or 0.0
        return Request(name, boot_id, end_s - self._segment_s, end_s, patient)

    def _tend(self, now_s: float) -> None:
        batch = self._batch
        assert batch is not None
        self._measure(batch)
        status = batch.child.status()
        said = batch.child.stderr()
        if status is not None:
            self._end(now_s, said, "" if status == 0 else f"ended with {status}")
        elif now_s - batch.began_s > _DEADLINE_S:
            self._end(now_s, said, f"not finished after {_DEADLINE_S:.0f} s; killed")
        elif batch.cost.rss_bytes > _MOST_BYTES:
            self._end(now_s, said, f"used {batch.cost.rss_bytes >> 20} MB of memory; killed")

    def _measure(self, batch: _Batch) -> None:
        """CPU time and anonymous memory: the libraries it maps are shared with us."""
        with contextlib.suppress(SourceError):  # it has exited: keep the last reading
            batch.cost = cost_of(self._place.host, batch.child.pid, "RssAnon")

    def _end(self, now_s: float, said: str, why: str) -> None:
        """Count its report on each file; if it died, blame the file it was decoding."""
        batch = self._batch
        assert batch is not None
        batch.child.stop(patience_s=0.5)
        self._batch = None
        exclude_child_cpu(batch.cost.cpu_s)
        span_s = self._segment_s * max(len(batch.files), 1)
        self._owed.append((now_s, now_s + span_s, batch.cost.cpu_s))
        reported: dict[str, str] = {}
        disk = False
        for line in said.splitlines():
            word, _, rest = line.partition(" ")
            name, _, detail = rest.partition(" ")
            if word in _WORDS and name in batch.files:
                reported[name] = word
                disk = disk or (word == "waits" and bool(detail))
                self._count(word, batch.files[name], detail)
        unreported = [name for name in batch.files if name not in reported]
        for name in unreported:
            shutil.rmtree(f"{self._folder}/{ASIDE}{annex_name(name)}", ignore_errors=True)
        if why and unreported:
            last = said.strip().rpartition("\n")[2]
            if last and last.partition(" ")[0] not in _WORDS:
                why = f"{why}: {printable(last)[:200]}"
            self._blame(unreported[0], batch.files[unreported[0]], why)
        self._look(now_s)
        if why or disk:  # a child that dies, a disk that is full: not every minute
            self._not_before_s = now_s + _LATER_S
        elif "waits" in reported.values():
            self._not_before_s = now_s + _WAIT_S

    def _count(self, word: str, file: Closed, detail: str) -> None:
        name = os.path.basename(file.path)
        if word == "done":
            samples, _, size = detail.partition(" ")
            self.counts.decoded += 1
            self.counts.raw_bytes += file.bytes
            self.counts.samples += int(samples) if samples.isdecimal() else 0
            self.counts.kept_bytes += int(size) if size.isdecimal() else 0
        elif word == "failed":
            self._fail(name, detail)
        elif detail:
            self.counts.last_error = printable(detail)

    def _blame(self, name: str, file: Closed, why: str) -> None:
        known = self._known.setdefault(name, _Waiting(file.mono_end_s or 0.0))
        known.tries += 1
        self.counts.last_error = why
        if known.tries >= _MOST_TRIES:
            self._fail(name, why)

    def _fail(self, name: str, why: str) -> None:
        self._known.setdefault(name, _Waiting(0.0)).failed = True
        self.counts.failed += 1
        self.counts.last_error = printable(why)
        self._notes.append(f"{name} not decoded, kept as perf wrote it: {printable(why)}")

    def _give_up(self) -> None:
        """End the child if one is running; its partial output is removed, its file stays."""
        batch = self._batch
        if batch is None:
            return
        self._measure(batch)
        self._end(time.monotonic(), batch.child.stderr(), "")
