"""What a task used is one number: verdict, `top` and `why` say the same of the same seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sexton.cli.load import worst_tasks
from sexton.detect.detectors.cpu.saturated_core import detect
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.task import Process, Thread
from sexton.model.window import Batch, Window
from sexton.replay.signals import signals_of
from sexton.replay.span import everything
from sexton.series.tasks import TaskStep, cpu_ms, kernel_ms, task_steps, used
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, write_sealed

OLD_MS, BORN_MS = 10, 100_200


def thread(used_ms: int, start_ms: int = OLD_MS, tid: int = 9) -> Thread:
    return Thread(7, tid, "walker", "R", start_ms, used_ms // 4, used_ms - used_ms // 4, 5)


def process(used_ms: int | None, pid: int = 7, start_ms: int = OLD_MS) -> Process:
    times = (used_ms or 0, 0)
    return Process(pid, 1, "walker", "R", start_ms, *times, 5, 2, False, used_ms, used_ms)


def core(system_ms: int, idle_ms: int) -> CoreTimes:
    return CoreTimes(5, 0, 0, system_ms, idle_ms, 0, 0, 0, 0)


def batch(mono_s: float, *rows: Row, follows: bool = True) -> Batch:
    return Batch(mono_s, WALL_S + mono_s, rows, follows)


def read(*used: tuple[Thread, ...]) -> dict[type[Row], list[Batch]]:
    """Two readings, two seconds apart, in which core 5 was in the kernel."""
    return {
        CoreTimes: [batch(100.0, core(0, 1000)), batch(102.0, core(2000, 1000))],
        Thread: [batch(100.0 + 2 * at, *rows) for at, rows in enumerate(used)],
    }


def verdict(window: Window) -> float | None:
    shares = (item.number for item in detect(window).evidence if "walker" in item.what)
    return next(shares, None)


def top(window: Window) -> float | None:
    load = worst_tasks(window).get(5)
    return None if load is None else 100 * load.share


def why(directory: Path, batches: dict[type[Row], list[Batch]]) -> float | None:
    write_sealed(directory, [batches], 1)
    recording = Recording(directory)
    for signal in signals_of(recording, everything(recording)):
        if (signal.about, signal.name) == ("walker", "time on core 5"):
            return None if np.isnan(signal.value[-1]) else float(signal.value[-1])
    return None


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        ((thread(500),), (thread(2300),), 90.0),
        ((thread(0, tid=1),), (thread(0, tid=1), thread(1800, BORN_MS)), 90.0),
        ((thread(0, tid=1),), (thread(0, tid=1), thread(9000)), None),
        ((thread(5000),), (thread(1800),), None),
        ((thread(5000),), (thread(1800, BORN_MS),), 90.0),
    ],
    ids=["seen twice", "started meanwhile", "not read before", "went back", "number used again"],
)
def test_verdict_top_and_why_agree(
    before: tuple[Thread, ...], after: tuple[Thread, ...], percent: float | None, tmp_path: Path
):
    batches = read(before, after)
    window = Window(batches)
    found = (verdict(window), top(window), why(tmp_path, batches))
    if percent is None:
        assert found == (None, None, None)
    else:
        assert found == pytest.approx((percent,) * 3, abs=0.01)


def test_a_task_counts_from_its_start_over_the_whole_step():
    (step,) = task_steps([batch(100.0), batch(102.0, thread(1000, BORN_MS))])
    assert (step.before, step.amount, step.seconds, step.percent) == (None, 1000.0, 2.0, 50.0)


def test_steps_add_up_and_unknown_ones_are_not_seconds():
    rows = [batch(0.0, thread(100)), batch(2.0), batch(4.0, thread(900)), batch(6.0, thread(1900))]
    (mine,) = used(task_steps(rows)).values()
    assert (mine.amount, mine.seconds, mine.percent) == (1000.0, 2.0, 50.0)


def test_a_gap_is_stepped_over_only_for_those_who_add_up():
    rows = [batch(0.0, thread(100)), batch(60.0, thread(700), follows=False)]
    assert not list(task_steps(rows))
    (step,) = task_steps(rows, over_gaps=True)
    assert step.amount == 600


def test_of_two_readings_at_one_moment_the_later_counts():
    rows = [batch(0.0, thread(1)), batch(2.0, thread(2)), batch(2.0, thread(5))]
    assert [step.amount for step in task_steps(rows)] == [4.0]


def test_what_is_counted_is_the_callers():
    rows = [batch(0.0, process(None)), batch(2.0, process(8)), batch(4.0, process(12))]

    def faults(counted) -> list[TaskStep[Process]]:
        return list(task_steps(rows, counted))

    assert [step.amount for step in faults(lambda row: row.minor_faults)] == [4.0]
    assert [step.amount for step in faults(cpu_ms)] == [8.0, 4.0]
    assert [step.amount for step in faults(kernel_ms)] == [0.0, 0.0]


def test_moments_that_are_not_exact_in_binary_are_still_the_reading_before():
    rows = [batch(at + 0.03, thread(100 * at)) for at in range(6)]
    assert len(list(task_steps(rows))) == 5
