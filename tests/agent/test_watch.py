"""When the recording is judged, and what is said while nothing can be told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sexton.agent import watch as module
from sexton.agent.condition import State
from sexton.agent.result import UNKNOWN, read
from sexton.agent.verdict import Cause, NodeVerdict
from sexton.agent.watch import PACE, Parts, Reading, Recorder, Watch, judged_by, status_reader
from sexton.errors import SourceError
from sexton.model.diagnosis import Exit
from tests.export.live import BOOT, LiveRecording

CAUSE = Cause("cpu_pressure", "cpu_pressure", "", "", "CPU starvation")


class Shown:
    """In the place of a `Reporter`."""

    due_s = float("inf")

    def __init__(self) -> None:
        self.states: list[State] = []
        self.causes: tuple[Cause, ...] = ()

    def see(self, state, causes, now_s):
        self.states.append(state)
        self.causes = causes

    def report(self, now_s):
        """Nothing is due."""


class Scene:
    """A watch whose recorder and judge do what a test wants, by a clock that only tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.now = time.monotonic()
        self.at, self.alarms, self.problem = 0, 0, ""
        self.writes = True
        self.exit, self.age_s, self.boot = Exit.HEALTHY, 1.0, BOOT
        self.failing = ""
        self.judged_at: list[float] = []
        self.shown = Shown()
        self.npd = tmp_path / "npd"
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        recorder = Recorder(self._reading, self.now)
        monkeypatch.setattr(recorder, "_worker", self)
        parts = Parts(recorder, self._judge, self.shown, str(self.npd), BOOT)
        self.watch = Watch(parts, self.now)

    def call(self, name, function):
        """A worker that has answered at once."""
        answer = module.Answer()
        answer.result = function()
        answer.done.set()
        return answer

    def _reading(self) -> Reading:
        return Reading(self.at, self.alarms, self.problem)

    def _judge(self) -> NodeVerdict:
        self.judged_at.append(self.now)
        if self.failing:
            raise SourceError("judging", self.failing)
        causes = (CAUSE,) if self.exit is Exit.PROBLEM else ()
        return NodeVerdict(self.exit, self.boot, self.now - self.age_s, 0.0, 300.0, causes)

    def pass_s(self, seconds: float) -> None:
        end_s = self.now + seconds
        while self.now < end_s:
            self.at += self.writes
            self.watch.step(self.now)
            self.now += 5.0

    @property
    def state(self) -> State:
        return self.shown.states[-1]


@pytest.fixture
def scene(monkeypatch, tmp_path) -> Scene:
    return Scene(monkeypatch, tmp_path)


def test_a_healthy_node_is_judged_every_five_minutes(scene):
    scene.pass_s(3000)
    assert 9 <= len(scene.judged_at) <= 11
    assert scene.state.status == "True"


def test_a_problem_is_judged_every_two_minutes(scene):
    scene.exit = Exit.PROBLEM
    scene.pass_s(3000)
    assert 24 <= len(scene.judged_at) <= 26
    assert (scene.state.status, scene.state.reason) == ("False", "CpuPressure")
    assert scene.shown.causes == (CAUSE,)


def test_an_alarm_is_judged_at_once_but_a_storm_of_them_is_not(scene):
    scene.pass_s(60)
    scene.alarms, scene.exit = 1, Exit.PROBLEM
    scene.pass_s(10)
    assert scene.state.status == "False"
    before = len(scene.judged_at)
    for _ in range(60):
        scene.alarms += 1
        scene.pass_s(5)
    assert len(scene.judged_at) - before <= 300 / 30 + 1


def test_a_recorder_that_stops_writing_is_unknown_and_then_known_again(scene):
    scene.pass_s(60)
    scene.writes = False
    scene.pass_s(PACE.stale_s + 10)
    assert scene.state == ("Unknown", "RecorderStalled", "no new reading for over 1 min")
    assert read(str(scene.npd), BOOT).status == UNKNOWN
    scene.writes = True
    scene.pass_s(15)
    assert scene.state.status == "True"


def test_a_disk_that_is_full_is_unknown_by_name(scene):
    scene.pass_s(60)
    scene.problem = "No space left on device"
    scene.pass_s(PACE.stale_s + 10)
    assert scene.state.reason == "RecorderCannotWrite"
    assert "No space left" in scene.state.message


@pytest.mark.parametrize("change", [{"age_s": 1000.0}, {"age_s": -100.0}, {"boot": "other"}])
def test_readings_of_another_time_or_boot_say_nothing(scene, change):
    for name, value in change.items():
        setattr(scene, name, value)
    scene.pass_s(10)
    assert scene.state.reason == "ReadingsOld"


def test_a_judgement_that_fails_for_a_while_changes_nothing_and_then_is_unknown(scene):
    scene.pass_s(60)
    scene.failing = "did not finish in 180 s; killed"
    scene.alarms = 1
    scene.pass_s(120)
    assert scene.state.status == "True"
    scene.pass_s(900)
    assert scene.state.reason == "JudgementFailed"
    assert len(scene.judged_at) < 60
    scene.failing = ""
    scene.pass_s(310)
    assert scene.state.status == "True"


def test_nothing_is_said_while_the_first_readings_are_taken(scene):
    scene.failing = "nothing is recorded yet"
    scene.pass_s(30)
    assert scene.shown.states == []
    assert not scene.npd.exists()


def test_a_disk_that_hangs_is_unknown_after_a_minute():
    """The status is read by a thread of its own."""
    hang = threading.Event()
    recorder = Recorder(lambda: hang.wait() and Reading(), 0.0)
    began = time.monotonic()
    for now_s in range(0, 90, 5):
        recorder.look(float(now_s))
    assert time.monotonic() - began < 5
    state = recorder.why_unknown(90.0)
    assert state is not None
    assert state.reason == "RecorderStalled"
    hang.set()


def test_a_status_that_is_damaged_or_hostile_is_none(tmp_path):
    place = tmp_path / "status.json"
    for content in ("", "[1]", '{"at": {}, "problem": 7, "alarms": []}', "[" * 100_000):
        place.write_text(content)
        assert status_reader(tmp_path)().problem == ""


def test_a_real_recording_is_judged_by_the_real_command(tmp_path):
    from sexton.agent.companion import JUDGE, part_command

    live = LiveRecording(tmp_path / "recording")
    judge = judged_by(part_command(str(live.directory), JUDGE, []))
    with pytest.raises(SourceError, match="nothing is recorded yet"):
        judge()
    live.write(tuple(float(age) for age in range(20, -1, -1)))
    found = judge()
    live.end()
    assert (found.exit, found.boot_id) == (Exit.CANNOT_TELL, BOOT)
    assert found.unknown
    assert time.monotonic() - found.mono_s < 120


def test_a_judge_that_crashes_or_prints_something_else():
    for command, words in (
        (["sh", "-c", "echo 'sexton: no room' >&2; exit 2"], "no room"),
        (["sh", "-c", "kill -SEGV $$"], "exit -11"),
        (["echo", "hello"], "verdict"),
        (["yes"], "printed more"),
        (["/nowhere"], "not installed"),
    ):
        with pytest.raises(SourceError, match=words):
            judged_by(command)()
