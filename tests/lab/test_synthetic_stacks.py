"""Made-up stacks: they agree with the core times they were made from, and hold what was planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.synthetic import Plan, write
from sexton.model.profile import Kind
from sexton.model.rows.cpu import CoreTimes
from sexton.profile.heat import heat_of
from sexton.profile.recorded import recorded_pieces
from sexton.store.recording import Recording
from sexton.store.verify import verify

PLAN = Plan(
    cores=6, hours=240 / 3600, processes=60, cgroups=60, units=40, queues=6, stack_hertz=50,
    stack_nodes=3000, plant=("zombie_walk",), walks_at=(100.0,),
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("stacks") / "r"
    return write(place, PLAN, compacted=False)


def test_every_core_is_sampled_all_the_time_and_the_recording_is_whole(made):
    pieces = recorded_pieces(made.directory)
    assert [len(piece.profile()) for piece in pieces] == [6 * 120 * 50] * 2
    assert made.rows["samples"] == 6 * 240 * 50
    heat = pieces[0].heat()
    assert set(heat.samples.tolist()) == {50}
    assert verify(made.directory).whole
    profile = pieces[0].profile()
    assert (np.diff(profile.time_ns) >= 0).all()
    again = heat_of(profile)
    assert again.cells.tolist() == heat.cells.tolist()


def test_the_planted_walk_is_in_the_stacks_of_its_core_and_seconds(made):
    (planted,) = made.of("zombie_walk")
    core = int(planted.entities["core"])
    for piece in recorded_pieces(made.directory):
        profile = piece.profile()
        names = profile.tree.frames.names
        leaf = np.array([name.startswith(("mem_cgroup_", "css_next")) for name in names])
        walk = leaf[profile.tree.frame[profile.node]]
        inside = (profile.time_ns >= planted.start[0] * 1e9) & (
            profile.time_ns < planted.end[0] * 1e9
        )
        held = inside & (profile.cpu == core)
        assert (walk == held).all()
        comms = {profile.threads[item].comm for item in profile.thread[held].tolist()}
        assert comms <= {"kubelet"}


def test_busy_and_kernel_shares_follow_the_core_times(made):
    segment = Recording(made.directory).segments[1]
    heat = recorded_pieces(made.directory)[1].heat()
    times = segment.table(CoreTimes, ("cpu", "idle_ms", "iowait_ms"))
    for cpu in range(6):
        mine = times.filter(np.asarray(times.column("cpu")) == cpu)
        idle = [sum(item) for item in zip(*(mine.column(n).to_pylist()
                for n in ("idle_ms", "iowait_ms")), strict=True)]  # fmt: skip
        share = 1 - (idle[-1] - idle[0]) / 1000 / (len(idle) - 1)
        sampled = heat.busy[heat.cpu == cpu].sum() / heat.samples[heat.cpu == cpu].sum()
        assert sampled == pytest.approx(share, abs=0.03)


def test_trees_are_in_pre_order_and_hold_only_what_was_sampled(made):
    profile = recorded_pieces(made.directory)[0].profile()
    tree = profile.tree
    assert tree.frame[0] == 0
    assert (np.diff(tree.depth) <= 1).all()
    assert (tree.depth[1:] >= 1).all()
    kinds = tree.frames.kinds[tree.frame]
    assert ((kinds == Kind.TASK) == (tree.depth == 1)).all()
    own = np.bincount(profile.node, minlength=len(tree))
    assert (tree.totals(own) > 0).all()


def test_the_same_plan_makes_the_same_samples(made, tmp_path: Path):
    again = write(tmp_path / "again", PLAN, compacted=False)
    one, other = recorded_pieces(made.directory)[1], recorded_pieces(again.directory)[1]
    assert one.annex.manifest["tables"] == other.annex.manifest["tables"]
