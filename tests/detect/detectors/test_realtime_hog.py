"""A realtime task that holds a core: which core, in which mode, and whose it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sexton.detect.detectors.cpu import realtime_hog
from sexton.detect.detectors.cpu.realtime_hog import detect
from sexton.detect.registry import detector_of
from sexton.host.host import open_host
from sexton.model.finding import Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, ProcessCgroup, Thread
from sexton.model.window import Window
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.support.windows import make_window

FIFO, OTHER = 1, 0


def seen(
    share: float = 1.0, policy: int | None = FIFO, seconds: int = 20, isolated: tuple[int, ...] = ()
) -> Window:
    """Core 1 busy in user mode for that share, by a thread of that policy."""
    return make_window(
        [
            (
                float(at),
                [
                    CoreTimes(0, 0, 0, 0, 1000 * at, 0, 0, 0, 0),
                    CoreTimes(1, round(1000 * share * at), 0, 0, round(1000 * (1 - share) * at),
                              0, 0, 0, 0),
                    Thread(611, 611, "python3", "R", 50, round(1000 * share * at), 0, 1, policy,
                           50 if policy else 0),
                    ProcessCgroup(611, "/system.slice/audio.service", False),
                    Node("n", "6.1", 2, "b", 1.0, None, None, None, None, None, None, None, None,
                         isolated),
                ],
            )
            for at in range(seconds + 1)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "late_s"),
    [(5.0, 0.0), (None, 0.08)],  # a reading in the pause; one whose time was taken too late
)
def test_with_rt_throttling_a_badly_placed_reading_does_not_end_the_hold(
    more: float | None, late_s: float
):
    def used(at: float) -> int:  # 950 ms of each second
        return round(950 * int(at) + 1000 * min(at % 1, 0.95))

    moments = sorted([*(n + 0.94 for n in range(10)), *([more] if more else [])])
    window = make_window(
        [
            (
                at + (late_s if int(at) == 4 else 0.0),
                [
                    CoreTimes(1, used(at), 0, 0, round(1000 * at) - used(at), 0, 0, 0, 0),
                    Thread(611, 611, "python3", "R", 50, used(at), 0, 1, FIFO, 50),
                ],
            )
            for at in moments
        ]
    )
    assert "core 1 was held in user mode for 9.0 s" in detect(window).summary


def test_a_core_held_in_user_mode_is_found_with_its_task_policy_and_unit():
    finding = detect(seen())
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.CRITICAL)
    assert finding.summary == (
        "core 1 was held in user mode for 20.0 s by python3[611] of audio.service"
        " (realtime FIFO 50)"
    )
    assert finding.entities["core"] == ("1",)
    assert finding.entities["unit"] == ("audio.service",)


@pytest.mark.parametrize(
    ("share", "policy", "seconds", "verdict", "severity"),
    [
        (0.95, FIFO, 20, Verdict.PRESENT, Severity.WARNING),  # RT throttling
        (0.88, FIFO, 20, Verdict.PRESENT, Severity.WARNING),  # the same on a slow machine
        (0.82, FIFO, 20, Verdict.ABSENT, Severity.INFO),
        (1.0, FIFO, 4, Verdict.ABSENT, Severity.INFO),
        (1.0, OTHER, 20, Verdict.ABSENT, Severity.INFO),
        (1.0, None, 20, Verdict.UNKNOWN, Severity.INFO),  # an older recording
        (1.0, 6, 20, Verdict.PRESENT, Severity.CRITICAL),
    ],
)
def test_the_limits(
    share: float, policy: int | None, seconds: int, verdict: Verdict, severity: Severity
):
    finding = detect(seen(share, policy, seconds))
    assert (finding.verdict, finding.severity) == (verdict, severity), finding.summary


def test_on_an_isolated_core_it_is_noted_only():
    finding = detect(seen(isolated=(1,)))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert "isolated" in finding.summary


def test_the_core_that_is_held_most_comes_first():
    """Core 0 leaves others a twentieth, as the kernel's throttling does; core 1 leaves nothing."""
    shares = {0: 0.95, 1: 1.0}
    readings = []
    for at in range(21):
        rows: list[Row] = []
        for core, share in shares.items():
            spent, pid = round(1000 * share * at), 600 + core
            rows.append(CoreTimes(core, spent, 0, 0, 1000 * at - spent, 0, 0, 0, 0))
            rows.append(Thread(pid, pid, f"hog{core}", "R", 50, spent, 0, core, FIFO, 50))
        readings.append((float(at), rows))
    finding = detect(make_window(readings))
    assert finding.severity is Severity.CRITICAL
    assert finding.entities["core"] == ("1", "0")


def test_a_hold_with_a_pause_lasts_from_its_first_second_to_its_last():
    """A stall of the second hold has the same cause as one of the first."""
    used = 0
    readings = []
    for at in range(31):
        readings.append(
            (
                float(at),
                [
                    CoreTimes(1, used, 0, 0, 1000 * at - used, 0, 0, 0, 0),
                    Thread(611, 611, "python3", "R", 50, used, 0, 1, FIFO, 50),
                ],
            )
        )
        used += 100 if at == 15 else 1000
    window = make_window(readings)
    finding = detect(window)
    assert finding.summary == (
        "core 1 was held in user mode 2 times for up to 15.0 s by python3[611] (realtime FIFO 50)"
    )
    assert (finding.start, finding.end) == (window.wall(0.0), window.wall(30.0))
    assert detector_of("realtime_hog").spells(finding, window) == [
        window.wall(0.0),
        window.wall(16.0),
    ]


def test_cores_without_threads_are_unknown():
    window = seen()
    window = make_window([(b.mono_s, list(b.rows)) for b in window.batches(CoreTimes) or ()])
    assert detect(window).verdict is Verdict.UNKNOWN


@pytest.fixture
def hog() -> Iterator[int]:
    """A real one, on the last core this process may use, with RT throttling as it is."""
    core = max(os.sched_getaffinity(0))
    code = (
        "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])});"
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2));"
        "print('up', flush=True)\nwhile True: pass"
    )
    argv = [sys.executable, "-c", code, str(core)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.whole
def test_a_real_one_is_found_on_this_machine(hog: int):
    kinds = (CoreTimes, Process, Thread, ProcessCgroup, Node)
    with Sampler(open_host(), sources_of(*kinds)) as sampler:
        window = sampler.run(12.0)
    finding = realtime_hog.detect(window)
    assert finding.verdict is Verdict.PRESENT, finding.summary
    assert f"[{hog}]" in finding.summary
    assert "realtime FIFO 2" in finding.summary


def test_a_realtime_task_that_shares_its_core_with_others_does_not_hold_it():
    window = make_window(
        [
            (
                float(at),
                [
                    CoreTimes(0, 0, 0, 0, 1000 * at, 0, 0, 0, 0),
                    CoreTimes(1, 1000 * at, 0, 0, 0, 0, 0, 0, 0),
                    Thread(611, 611, "audio", "R", 50, 600 * at, 0, 1, FIFO, 50),
                    Thread(700, 700, "batch", "R", 20, 400 * at, 0, 1, OTHER, 0),
                ],
            )
            for at in range(21)
        ]
    )
    assert detect(window).verdict is Verdict.ABSENT
