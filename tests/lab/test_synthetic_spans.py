"""Recordings made up on purpose: repeatable, with gaps, boots and jumps, and by command."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.synthetic import Plan, write
from lab.synthetic.__main__ import main
from sexton.explain.diagnosis import diagnose
from sexton.model.finding import Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir
from sexton.model.rows.cpu import CoreTimes, Interrupt
from sexton.model.rows.net import NicCounter
from sexton.model.rows.task import ProcessCgroup
from sexton.store.recording import Recording
from sexton.store.schema import MONO
from tests.support.synthetic import CHAIN, INCIDENT, counters, made, small, window_of


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_equal_seeds_give_equal_bytes_and_others_do_not(tmp_path: Path):
    plan = small(*INCIDENT, hours=0.07)
    one, two = (write(tmp_path / name, plan) for name in ("one", "two"))
    other = write(tmp_path / "other", small(*INCIDENT, hours=0.07, seed=9))
    assert contents(one.directory) == contents(two.directory)
    assert contents(one.directory) != contents(other.directory)
    assert one.planted == two.planted


def test_a_recording_is_not_written_over_another(tmp_path: Path):
    write(tmp_path, small(hours=0.02))
    with pytest.raises(FileExistsError):
        write(tmp_path, small(hours=0.02))


def test_a_gap_is_a_gap_and_counters_go_on(tmp_path: Path):
    generated = write(tmp_path, small(*INCIDENT, gaps=((200.0, 120.0),), seed=3))
    segments = Recording(tmp_path).segments
    holes = [after.start[0] - before.end[0] for before, after in pairwise(segments)]
    assert [round(hole) for hole in holes if hole > 2] == [121]
    assert [planted.cause for planted in generated.planted].count("gap") == 1
    for values in counters(window_of(segments), CoreTimes, "idle_ms").values():
        assert (np.diff(values) >= 0).all()
        assert max(np.diff(values)) > 20_000


def test_a_reboot_starts_every_counter_and_the_clock_anew(tmp_path: Path):
    generated = write(tmp_path, small("crash_loop", reboot_at=240.0))
    segments = Recording(tmp_path).segments
    boots = [segment.boot_id for segment in segments]
    assert tuple(dict.fromkeys(boots)) == generated.boots
    assert len(generated.boots) == 2
    first = segments[boots.index(generated.boots[1])]
    assert first.start[0] < 40 < 600_000 < segments[0].start[0]
    assert all(a.start[1] < b.start[1] for a, b in pairwise(segments))
    census = first.batches(CgroupCensus)[0].rows[0]
    assert census.dying < 60
    found = first.table(CoreTimes, [MONO, "idle_ms"])
    assert found is not None
    assert max(found.column("idle_ms").to_pylist()) < 400_000


def test_a_jump_of_the_wall_clock_leaves_the_monotonic_one(tmp_path: Path):
    write(tmp_path, small(jumps=((300.0, -3.0),)))
    batches = [
        batch for segment in Recording(tmp_path).segments for batch in segment.batches(CoreTimes)
    ]
    mono = np.diff([batch.mono_s for batch in batches])
    wall = np.diff([batch.wall_s for batch in batches])
    assert mono.min() > 0.9
    assert sorted(np.rint(wall).tolist())[0] == -3 * 3600 + 1
    assert (np.rint(wall) == 1).sum() == len(wall) - 1


def test_more_walks_than_twice_a_day_can_be_asked_for(tmp_path: Path):
    generated = write(tmp_path, small(*INCIDENT, hours=0.15, walks=2))
    assert len(generated.of("zombie_walk")) == len(generated.of("nic_reset")) == 2
    found = diagnose(window_of(Recording(tmp_path).segments))
    assert CHAIN in {chain.findings for chain in found.chains}
    assert "2 times while watched" in found.by_id["nic_resets"].summary


def test_a_walk_comes_when_it_was_asked_for(tmp_path: Path):
    generated = write(tmp_path, small("zombie_walk", walks_at=(123.4,), start=1e9))
    (walk,) = generated.of("zombie_walk")
    assert walk.start == (698_000 + 123.4, 1e9 + 123.4)
    with pytest.raises(ValueError, match="nothing is recorded"):
        write(tmp_path / "other", small("zombie_walk", walks_at=(999.0,)))


def test_processes_live_in_directories_that_are_there():
    window = made(small("healthy")).window
    homes = {row.path for row in window.latest(ProcessCgroup) or ()}
    assert len(homes) > 10
    counted = (window.batches(CgroupDir) or ())[-12]
    assert homes <= {row.path for row in counted.rows}


def test_several_nics_have_queues_of_their_own(tmp_path: Path):
    write(tmp_path, small("healthy", nics=2, hours=0.04))
    window = window_of(Recording(tmp_path).segments)
    assert {row.nic for row in window.latest(NicCounter) or ()} == {"eth0", "eth1"}
    irqs = [row.irq for row in window.latest(Interrupt) or ()]
    assert len(set(irqs)) == len(irqs) == 10
    assert diagnose(window).by_id["nic_resets"].verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"plant": ("gremlins",)}, "gremlins"),
        ({"cores": 0}, "at least one core"),
        ({"hours": 0}, "and second are required"),
        ({"plant": INCIDENT, "walk_s": 4.0}, "the driver waits 5 s"),
        ({"processes": 3}, "40 processes"),
    ],
)
def test_what_cannot_be_made_is_refused(wrong: dict[str, Any], why: str):
    with pytest.raises(ValueError, match=why):
        Plan(**wrong)


def test_the_command_tells_what_it_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = (
        "--cores 4 --queues 4 --hours 0.1 --processes 50 --cgroups 50 --units 40 --json"
        " --plant zombie_walk --gap-at 1:1 --start 2026-11-15T10:00:00+00:00"
    )
    assert main([str(tmp_path / "node"), *arguments.split()]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [item["cause"] for item in document["planted"]] == ["gap", "zombie_walk"]
    assert document["planted"][0]["start"][1] == 1_794_736_860
    assert document["rows"]["core_times"] == 4 * 300
    assert main([str(tmp_path / "node"), *arguments.split()]) == 2
    assert "already" in capsys.readouterr().err
