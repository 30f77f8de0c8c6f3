"""The reporter's process: has the recording judged, and keeps the condition and the result file.

Three things may hang or fail, and none of them may keep the others waiting for long: the disk with
the recording (read in a thread that can be abandoned, and by a child with a deadline), the
judgement, and the API server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from sexton.agent import result
from sexton.agent.condition import State, state_of, unknown
from sexton.agent.reporter import Reporter, say
from sexton.agent.verdict import Cause, NodeVerdict, from_json
from sexton.cluster.pacing import BackOff
from sexton.errors import SourceError
from sexton.export.pace import Pace
from sexton.export.recorder import read_status
from sexton.host import runner
from sexton.model.diagnosis import Exit
from sexton.record.sampler import Answer, Worker

#: As for metrics, but a node in trouble is judged every two minutes: each verdict loads what it
#: needs anew, so that the agent is small otherwise.
PACE = Pace(judge_s=120.0)
#: How often to look, and how soon an alarm may have the recording judged again.
_LOOK_S, _ALARM_S = 5.0, 30.0
#: A judgement takes a second of CPU time, at nice 15 on a node that may be starved.
_JUDGE_MOST_S = 180.0
_MOST_BYTES = 64 << 10
#: A result counts for as long as the verdict stands, and this.
_SPARE_S = 60.0 + _JUDGE_MOST_S
_STARTING_S = 60.0
#: How often a state that lasts is shown again: the result file has an end.
_LASTING_S = 60.0


class Reading(NamedTuple):
    """The recorder's status: it writes one every five seconds."""

    at: object = None
    alarms: object = None
    problem: str = ""


class Recorder:
    """Whether the recorder goes on, by its status: one that does not change is old, whatever the
    clocks say. Reading it may hang with the disk."""

    def __init__(self, read: Callable[[], Reading], now_s: float) -> None:
        self._read = read
        self._worker = Worker()
        self._asked: Answer | None = None
        self.reading = Reading()
        self._changed_s = self._fine_s = now_s

    def look(self, now_s: float) -> None:
        if self._asked is not None and self._asked.done.is_set():
            found, self._asked = self._asked.result, None
            if isinstance(found, Reading):
                if found.at != self.reading.at:
                    self._changed_s = now_s
                    if not found.problem:
                        self._fine_s = now_s
                self.reading = found
        if self._asked is None:
            self._asked = self._worker.call("status", self._read)

    def why_unknown(self, now_s: float) -> State | None:
        """Why its readings are too old to say anything; `None` if they are not."""
        if now_s - self._changed_s > PACE.stale_s:
            minutes = int((now_s - self._changed_s) / 60)
            return unknown("RecorderStalled", f"no new reading for {_minutes(minutes)}")
        if now_s - self._fine_s > PACE.stale_s:
            return unknown("RecorderCannotWrite", f"nothing is recorded: {self.reading.problem}")
        return None


def _minutes(number: int) -> str:
    """In steps, since the text of a condition is not to change each minute."""
    step = max((each for each in (1, 5, 15, 60, 240, 1440) if each <= number), default=1)
    return f"over {step} min"


def status_reader(directory: Path) -> Callable[[], Reading]:
    def read() -> Reading:
        found = read_status(directory)
        problem = found.get("problem")
        return Reading(
            found.get("at"), found.get("alarms"), problem if isinstance(problem, str) else ""
        )

    return read


class Parts(NamedTuple):
    """What a `Watch` works with. `reporter`: `None` if nothing is reported to an API server;
    `npd`: the result file, empty for none."""

    recorder: Recorder
    judge: Callable[[], NodeVerdict]
    reporter: Reporter | None
    npd: str
    boot_id: str


class Watch:
    """Call `step` until the process ends."""

    def __init__(self, parts: Parts, now_s: float) -> None:
        self._parts = parts
        self._back_off = BackOff()
        self._stands_until_s = now_s + _STARTING_S
        self._due_s = now_s
        self._judged_s = -inf
        self._alarms: object = None
        self._verdict: State | None = None
        self._causes: tuple[Cause, ...] = ()
        self._lasts_s = PACE.judge_s
        self._shown: State | None = None
        self._shown_s = -inf
        self._said = ""

    def step(self, now_s: float) -> float:
        """Do what is due; returns when to come back, at the latest."""
        self._parts.recorder.look(now_s)
        stalled = self._parts.recorder.why_unknown(now_s)
        if stalled is not None:
            if stalled != self._shown or now_s - self._shown_s >= _LASTING_S:
                self._show(stalled, (), now_s)
        elif self._is_due(now_s):
            self._judge(now_s)
        elif self._verdict is not None and self._verdict != self._shown:
            self._show(self._verdict, self._causes, now_s)  # the recorder goes on again
        reporter = self._parts.reporter
        if reporter is not None:
            reporter.report(time.monotonic())
        due_s = inf if reporter is None else reporter.due_s
        return min(now_s + _LOOK_S, max(due_s, now_s + 0.1))

    def _is_due(self, now_s: float) -> bool:
        reading = self._parts.recorder.reading
        if self._alarms is None:
            self._alarms = reading.alarms
        soon = now_s - self._judged_s >= _ALARM_S and not self._back_off.failures
        if soon and reading.alarms != self._alarms:
            return True
        return now_s >= self._due_s

    def _judge(self, now_s: float) -> None:
        self._judged_s = now_s
        self._alarms = self._parts.recorder.reading.alarms
        try:
            found = self._parts.judge()
            state = self._state_of(found, time.monotonic())
        except SourceError as error:
            self._due_s = time.monotonic() + self._back_off.failed()
            if now_s - self._stands_until_s < 0:  # or its first readings take a few seconds
                return
            self._say(str(error))
            self._verdict, self._causes = unknown("JudgementFailed", str(error)), ()
        else:
            self._back_off.succeeded()
            self._said = ""
            problem = found.exit is Exit.PROBLEM
            self._lasts_s = PACE.verdict_lasts_s(problem, found.seconds)
            self._due_s = now_s + self._lasts_s
            self._stands_until_s = self._due_s + _SPARE_S
            self._verdict, self._causes = state, found.causes if problem else ()
        self._show(self._verdict, self._causes, now_s)

    def _state_of(self, verdict: NodeVerdict, now_s: float) -> State:
        """Of now and of this boot, or unknown."""
        age_s = now_s - verdict.mono_s
        if verdict.boot_id != self._parts.boot_id or not -PACE.fresh_s <= age_s <= (
            PACE.stale_s + _JUDGE_MOST_S
        ):
            return unknown("ReadingsOld", "the last reading is not of now")
        return state_of(verdict)

    def _show(self, state: State, causes: tuple[Cause, ...], now_s: float) -> None:
        self._shown, self._shown_s = state, now_s
        if self._parts.npd:
            self._write(state)
        if self._parts.reporter is not None:
            self._parts.reporter.see(state, causes, now_s)

    def _write(self, state: State) -> None:
        lasts_s = self._lasts_s + _SPARE_S
        try:
            result.write(self._parts.npd, result.result_of(state), lasts_s, self._parts.boot_id)
        except OSError as error:
            self._say(f"{self._parts.npd}: {error.strerror or error}")

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            say(words)


def judged_by(command: Sequence[str]) -> Callable[[], NodeVerdict]:
    """A judge that runs this command, which prints a `NodeVerdict` as JSON."""

    def judge() -> NodeVerdict:
        try:
            ended = runner.run(command, _JUDGE_MOST_S, _MOST_BYTES)
        except SourceError as error:
            raise SourceError("judging", error.detail) from None
        if ended.status != 0:
            said = ended.errors.decode("utf-8", "replace").strip().split("\n")[-1]
            why = said.removeprefix("sexton: ") or f"exit {ended.status}"
            raise SourceError("judging", why)
        return from_json(ended.output)

    return judge


def run(parts: Parts, wait: Callable[[float], Any] = time.sleep) -> None:
    """Until the process is ended."""
    watch = Watch(parts, time.monotonic())
    while True:
        until_s = watch.step(time.monotonic())
        wait(max(0.0, until_s - time.monotonic()))
