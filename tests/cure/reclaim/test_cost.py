"""The walk is timed where that is safe, and told as an estimate where it is not."""

from __future__ import annotations

import pytest

from sexton.cure.reclaim import cost
from sexton.cure.reclaim.cost import StatRead, cost_of, time_stat_reads, us_saved_per_zombie
from sexton.cure.reclaim.count import NODE, PARENT, Dying, parent_at
from sexton.cure.reclaim.free import _fell, _worth
from sexton.errors import SourceSkipped
from sexton.host.host import open_host
from sexton.sources.cgroupfs.estimate import Estimate
from tests.support.zombies import scratch_cgroup


@pytest.mark.root
def test_a_cheap_walk_is_measured_at_the_parent():
    with scratch_cgroup() as (_, parent):
        (parent / "child").mkdir()
        found = time_stat_reads(open_host(), parent_at(open_host(), f"/{parent.name}"))
    assert [item.file for item in found] == ["memory.stat", "memory.numa_stat"]
    assert found[0].measured
    assert 0 < found[0].seconds < cost.MOST_S


@pytest.mark.root
def test_a_dear_walk_is_not_caused(monkeypatch: pytest.MonkeyPatch):
    dear = Estimate("memory.numa_stat", "/x", 10, 0.001, 4.8, 5.0)
    cheap = Estimate("memory.stat", "/x", 10, 1e-6, 1e-5, 1e-4)
    monkeypatch.setattr(cost, "estimates", lambda *_: (cheap, dear))
    read: list[str] = []

    def run(argv: tuple[str, ...], *_: object, **__: object) -> None:
        read.extend(argv[6:])
        raise SourceSkipped("child", "for the test")

    monkeypatch.setattr(cost, "run", run)
    with scratch_cgroup() as (_, parent):
        found = time_stat_reads(open_host(), parent_at(open_host(), f"/{parent.name}"))
        assert read == [f"{parent}/memory.stat"]
    (numa,) = [stat_read for stat_read in found if stat_read.file == "memory.numa_stat"]
    assert (numa.measured, numa.seconds) == (False, 4.8)
    assert "estimated 4.8 s, which would stall the node" in numa.note


@pytest.mark.root
def test_what_could_not_be_estimated_is_not_read(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise SourceSkipped("memory.stat", "every leaf may hide dead ones")

    monkeypatch.setattr(cost, "estimates", fail)
    monkeypatch.setattr(cost, "run", lambda *_, **__: pytest.fail("it was read"))
    with scratch_cgroup() as (_, parent):
        found = time_stat_reads(open_host(), parent_at(open_host(), f"/{parent.name}"))
    assert all(read.seconds is None and "every leaf" in read.note for read in found)


def test_the_slope_needs_two_measurements_and_somebody_freed():
    before = (StatRead("memory.stat", 0.7, True), StatRead("memory.numa_stat", 4.8, False))
    after = (StatRead("memory.stat", 0.1, True), StatRead("memory.numa_stat", 0.1, True))
    assert us_saved_per_zombie(before, after, 10_000) == {"memory.stat": pytest.approx(60.0)}
    assert us_saved_per_zombie(before, after, 0) == {}
    assert us_saved_per_zombie(before, (StatRead("memory.stat", None, False),), 10) == {}


@pytest.mark.parametrize(
    ("before", "after", "fell"),
    [
        (Dying(100, 400_000, 0, PARENT, ""), Dying(99, 400_000, 0, PARENT, ""), True),
        (Dying(100, 400_000, 0, PARENT, ""), Dying(100, 0, 0, PARENT, ""), False),
        # On the whole node a few come and go: the parent's bytes have to agree.
        (Dying(1000, 400_000, 0, NODE, ""), Dying(990, 400_000, 0, NODE, ""), False),
        (Dying(1000, 400_000, 0, NODE, ""), Dying(990, 360_000, 0, NODE, ""), True),
        (Dying(1000, 400_000, 0, NODE, ""), Dying(1001, 360_000, 0, NODE, ""), False),
        (Dying(1000, None, 0, NODE, ""), Dying(999, None, 0, NODE, ""), False),
        (Dying(1000, None, 0, NODE, ""), Dying(990, None, 0, NODE, ""), True),
        (Dying(None, 400_000, 0, NODE, ""), Dying(None, 300_000, 0, NODE, ""), True),
        (Dying(None, 400_000, 0, NODE, ""), Dying(None, 400_000, 0, NODE, ""), False),
        (Dying(None, None, None, NODE, ""), Dying(None, None, None, NODE, ""), False),
    ],
)
def test_whether_a_pass_freed_some(before: Dying, after: Dying, fell: bool):
    assert _fell(before, after) is fell


def test_a_zombie_is_not_worth_a_megabyte_of_running_cgroups():
    before = Dying(100, 0, 100 << 20, PARENT, "")
    assert _worth(before, Dying(90, 0, 98 << 20, PARENT, ""))
    assert not _worth(before, Dying(99, 0, 98 << 20, PARENT, ""))
    assert _worth(before, Dying(99, 0, None, PARENT, ""))


def test_an_estimate_grows_with_the_number_and_says_how_long_nothing_helps():
    few, many = cost_of(100), cost_of(68_440)
    assert few.most_s < many.most_s
    assert many.least_s < many.most_s
    assert many.hold_s == pytest.approx(68_440 * 220e-6 / 16)
    assert cost_of(0).most_s == 0
