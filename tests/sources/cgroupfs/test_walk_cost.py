"""What one read at the root costs this node."""

from __future__ import annotations

import pytest

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.host.runner import Ended
from sexton.model.rows.cgroup import WalkCost
from sexton.sources import cores
from sexton.sources.cgroupfs import walk_cost
from sexton.sources.cgroupfs.estimate import Estimate
from sexton.sources.cgroupfs.walk_cost import WalkCosts, verdict
from sexton.sources.cores import Spared
from tests.sources.cgroupfs.trees import recorded


def test_a_copied_file_is_not_timed(tmp_path):
    with pytest.raises(SourceAbsent, match="only on the node itself"):
        list(WalkCosts(recorded(tmp_path, "6.1", "6.1-v2").host()).collect())


def test_a_stall_is_announced_and_not_caused(monkeypatch, tmp_path):
    monkeypatch.setattr(cores, "run", never)
    row = one(Estimate("memory.numa_stat", "/a", 12, 0.0009, 4.8, 4.9), tmp_path)
    assert row.root_s is None
    assert row.note == (
        "memory.numa_stat at the root: would stall a core for about 4.8 s; not read"
    )


def test_a_cheap_file_is_read_at_the_root_in_a_child(tmp_path):
    (tmp_path / "memory.stat").write_text("cache 0\n" * 50)
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.02, 0.03), tmp_path)
    assert row.root_s is not None
    assert 0 < row.root_s < 2
    assert row.note.startswith("memory.stat read at the root")


def test_a_root_without_the_file_says_so(tmp_path):
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.02, 0.03), tmp_path)
    assert row.root_s is None
    assert "No such file" in row.note


def test_an_estimate_that_settles_the_matter_spares_the_node_a_child(tmp_path):
    (tmp_path / "memory.stat").write_text("cache 0\n")
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.001, 0.001), tmp_path)
    assert row.root_s is None
    assert "too fast to matter" in row.note


def test_an_estimate_by_leaves_alone_is_called_an_upper_bound():
    assert "at most" in verdict(1, 3.0)


def test_an_estimate_that_jitter_may_have_made_too_small_does_not_allow_the_root(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(cores, "run", never)
    row = one(Estimate("memory.stat", "/a", 2, 0.00003, 0.02, 1.4), tmp_path)
    assert row.root_s is None
    assert "an estimated 20 ms, at most 1.4 s; not read" in row.note


def test_the_root_is_read_off_the_cores_of_the_nic(monkeypatch, tmp_path):
    pinned = []

    def run(argv, deadline_s, cpus=None):
        pinned.append(cpus)
        return Ended(0, b"0.01\n", b"")

    monkeypatch.setattr(cores, "run", run)
    for module in (cores, walk_cost):
        spared = Spared(frozenset({1}), "on core 1")
        monkeypatch.setattr(module, "off_the_nic", lambda _, spared=spared: spared)
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.02, 0.02), tmp_path)
    assert pinned == [{1}]
    assert row.note == "memory.stat read at the root on core 1"


def never(*_: object, **__: object) -> None:
    raise AssertionError("the root was read")


def one(guess: Estimate, top) -> WalkCost:
    return WalkCosts(open_host())._row(str(top), guess)
