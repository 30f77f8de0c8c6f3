"""Freeing real zombies on the running kernel, beside a neighbour that must not suffer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.neighbour import memory_of, neighbour
from sexton.cure.protected import Rule
from sexton.cure.reclaim import free as freeing
from sexton.cure.reclaim.collateral import read_collateral
from sexton.cure.reclaim.count import parent_at
from sexton.cure.reclaim.free import Limits, free, reclaim_file
from sexton.cure.writer import KILLED, STOPPED, DryWriter, LiveWriter, WriteLimits, WriteResult
from sexton.errors import CommandError
from sexton.host.host import open_host
from sexton.sources.cores import nic_cores
from tests.cure.reclaim.made import zombies
from tests.support.zombies import scratch_cgroup

#: On v1 the dead are counted on the whole node: nobody else may make or free any meanwhile.
pytestmark = [pytest.mark.root, pytest.mark.alone]
NUMBER = 1000
#: Others' cgroups die and are freed on the same node, and v1 counts the whole node.
SLACK = 150
CACHE, ANON = 512 << 20, 16 << 20


def context() -> LiveWriter:
    return LiveWriter(open_host())


class Watched(LiveWriter):
    """The real writer, which remembers its writes' terms."""

    def __init__(self) -> None:
        super().__init__(open_host())
        self.given: list[tuple[str, str, WriteLimits]] = []
        self.result: list[WriteResult] = []

    def write_control(self, path: str, value: str, terms: WriteLimits) -> WriteResult:
        self.given.append((path, value, terms))
        result = super().write_control(path, value, terms)
        self.result.append(result)
        return result


@contextlib.contextmanager
def many_alive() -> Iterator[None]:
    """The price of reading one cgroup's statistics shows in a subtree of many: with the few of a
    bare machine the clock's jitter may be all of it, and the parts stay unread for safety."""
    with scratch_cgroup() as (_, parent):
        for number in range(80):
            (parent / f"alive-{number}").mkdir()
        yield


def test_page_cache_zombies_are_freed_and_the_neighbour_keeps_most_of_its_cache():
    with (
        many_alive(),
        zombies(NUMBER, "page cache") as maker,
        neighbour(maker.parent, CACHE, ANON) as home,
    ):
        before = memory_of(home)
        assert before[0] >= CACHE * 0.9
        lines: list[str] = []
        freed = free(open_host(), maker.path, Limits(seconds=30), context(), lines.append)
        after = memory_of(home)
        assert freed.freed is not None
        assert freed.freed >= NUMBER * 0.9 - SLACK, freed.sentence
        # What the dead of this very parent hold is exact, whatever others do on the node.
        assert freed.before.dying.bytes >= NUMBER * 4096
        assert freed.after.dying.bytes < NUMBER * 4096 / 5, freed.sentence
        (sibling,) = freed.before.siblings
        assert sibling.path == f"{maker.path}/neighbour"
        assert (sibling.file_bytes, sibling.anon_bytes) == pytest.approx(before, rel=0.1)
        (sibling,) = freed.after.siblings
        assert (sibling.file_bytes, sibling.anon_bytes) == pytest.approx(after, rel=0.1)
        assert after[0] >= before[0] / 2, f"{freed.sentence}: it should have stopped before"
        assert freed.lost_file_bytes == pytest.approx(before[0] - after[0], abs=8 << 20)
        if freed.before.swap_free_bytes == 0:
            assert after[1] >= before[1] * 0.95, "anonymous memory cannot go without swap"
        assert lines == [reclaim_pass.sentence for reclaim_pass in freed.rounds]
        assert freed.rounds[0].us_per_zombie is not None
        assert freed.rounds[0].us_per_zombie > 0
        # Timed on both sides, or told why not: on a loaded node nothing may answer in time.
        first, last = freed.rounds[0].reads_before[0], freed.rounds[-1].reads_after[0]
        assert all(
            walk.file == "memory.stat" and (walk.measured or walk.note) for walk in (first, last)
        )
        assert ("memory.stat" in freed.walk_us_per_zombie) == (first.measured and last.measured)
        assert len(freed.experiment) == 2
        assert freed.estimate.least_s is not None
        assert freed.as_json()["freed"] == freed.freed


def test_what_tmpfs_holds_cannot_be_freed_and_it_stops_after_one_round():
    with zombies(NUMBER, "tmpfs") as maker:
        writer = Watched()
        freed = free(open_host(), maker.path, Limits(seconds=30), writer)
        assert freed.after.dying.bytes >= NUMBER * 4096
        assert freed.freed is not None
        assert freed.freed < SLACK
        assert "cannot be reclaimed" in freed.why_stopped, freed.sentence
        assert len(freed.rounds) <= 3
        assert ", 0 left" not in freed.sentence
        # Nothing else was written than the one order, and only to the owning parent.
        file = reclaim_file(open_host(), freed.before.parent)
        assert {path for path, _, _ in writer.given} == {f"{maker.parent}/{file}"}


@pytest.mark.whole
def test_a_thorough_one_frees_all_that_page_cache_holds_at_the_neighbours_expense():
    with zombies(NUMBER, "page cache") as maker, neighbour(maker.parent, CACHE, ANON) as home:
        anon = memory_of(home)[1]
        freed = free(open_host(), maker.path, Limits(seconds=60, thorough=True), context())
        assert freed.after.dying.bytes < 20 * 4096, freed.sentence
        if freed.before.swap_free_bytes == 0:
            assert memory_of(home)[1] >= anon * 0.95


@pytest.mark.whole
def test_the_order_is_killed_at_the_deadline_and_no_process_stays():
    # A quick machine walks a thousand in 23 ms.
    with zombies(4 * NUMBER, "tmpfs") as maker:
        writer = Watched()
        # One bite without end, which nothing but the deadline would call off.
        limits = Limits(seconds=0.05, stall_s=60, round_s=60, first_s=60)
        freed = free(open_host(), maker.path, limits, writer)
        if freed.before.parent.version == 1:
            assert writer.result[0].how == KILLED, writer.result
            assert freed.why_stopped == "deadline of 0.05 s reached"
        assert len(freed.rounds) == 1
        assert not _orders_under_way()


def _orders_under_way() -> list[str]:
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        if b"signal.SIG_DFL" in line and int(stat.rpartition(b")")[2].split()[1]) == os.getpid():
            found.append(pid)
    return found


@pytest.mark.whole
def test_a_reason_to_stop_calls_the_order_off(monkeypatch: pytest.MonkeyPatch):
    # A quick machine is through with its walk before a tenth of a second is over.
    monkeypatch.setattr(freeing, "_REASON_EVERY_S", 0.0)
    with zombies(3 * NUMBER, "tmpfs") as maker:
        writer = Watched()
        limits = Limits(
            30, stall_s=30, first_s=30, stop_if=lambda: "a NIC reset" if writer.given else None
        )
        freed = free(open_host(), maker.path, limits, writer)
        assert freed.why_stopped == "a NIC reset"
        if freed.before.parent.version == 1:
            assert [result.how for result in writer.result] == [STOPPED]


def test_a_reason_to_stop_that_is_there_before_gives_no_order():
    with zombies(20, "tmpfs") as maker:
        writer = Watched()
        freed = free(open_host(), maker.path, Limits(stop_if=lambda: "a NIC reset"), writer)
        assert (freed.why_stopped, freed.rounds, writer.given) == ("a NIC reset", (), [])


def test_it_runs_off_the_cores_that_serve_the_nic():
    host = open_host()
    with zombies(20, "tmpfs") as maker:
        writer = Watched()
        free(host, maker.path, Limits(seconds=5, stall_s=0.1), writer)
        serving = nic_cores(host)
        spare = os.sched_getaffinity(0) - serving
        for _, _, terms in writer.given:
            if serving and spare:
                assert terms.cpus == frozenset(spare)
            else:
                assert terms.cpus is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kubelet.service", "the node leaves its cluster"),
        ("kubepods.slice", "pods run here"),
        ("docker-0f0f0f0f0f0f.scope", "containers run here"),
        ("precious.service", "bills the tenants"),
    ],
)
def test_a_parent_of_protected_units_or_pods_is_refused_unless_accepted(name: str, why: str):
    with zombies(20, "page cache") as maker:
        (maker.parent / "deep").mkdir()
        (maker.parent / "deep" / name).mkdir()
        writer = Watched()
        rules = (Rule("precious*", "bills the tenants"),)
        limits = Limits(seconds=5, protected=rules)
        with pytest.raises(CommandError, match=why) as refused:
            free(open_host(), maker.path, limits, writer)
        assert f"{maker.path}/deep/{name}" in str(refused.value)
        assert "--accept-collateral" in str(refused.value)
        assert writer.given == []
        accepted = Limits(seconds=5, protected=rules, accept_collateral=True)
        freed = free(open_host(), maker.path, accepted, writer)
        assert freed.rounds
        assert [cgroup.path for cgroup in freed.before.protected] == [f"{maker.path}/deep/{name}"]


def test_what_is_no_parent_is_refused():
    host = open_host()
    for path, why in (
        ("/", "whole node"),
        ("/never-was", "cgroup no longer exists"),
        ("/../etc", "not a cgroup path"),
        ("relative", "not a cgroup path"),
        ("//", "not a cgroup path"),
    ):
        with pytest.raises(CommandError, match=why):
            free(host, path, Limits(), context())


@pytest.mark.parametrize(
    "name", ["\x1b[2J<script>", b"\xff\xfe".decode("utf-8", "surrogateescape"), "a b';$(x)"]
)
def test_a_parent_of_any_name_is_freed_and_shown_safely(name: str):
    with zombies(30, "page cache") as maker:
        (maker.parent / name).mkdir()
        lines: list[str] = []
        limits = Limits(seconds=5, stall_s=0.1)
        found = read_collateral(open_host(), maker.path)
        assert [sibling.path for sibling in found.siblings] == [f"{maker.path}/{name}"]
        freed = free(open_host(), f"{maker.path}/{name}", limits, context(), lines.append)
        assert freed.before.siblings == ()
        assert "\x1b" not in "".join((freed.sentence, *lines))


def test_an_empty_parent_needs_no_order():
    with scratch_cgroup() as (layout, parent):
        (parent / "z").mkdir()
        writer = Watched()
        limits = Limits(seconds=5, target=10**9, accept_collateral=True)
        freed = free(open_host(), f"/{parent.name}", limits, writer)
        assert writer.given == []
        assert freed.why_stopped == "enough were freed"
        assert layout.version == parent_at(open_host(), f"/{parent.name}").version


def test_a_dry_run_gives_no_order():
    with zombies(20, "tmpfs") as maker:
        dry = DryWriter()
        freed = free(open_host(), maker.path, Limits(seconds=2, rounds=1), dry)
        file = reclaim_file(open_host(), freed.before.parent)
        assert dry.actions[0].path == f"{maker.parent}/{file}"
        assert freed.after.dying.bytes >= 20 * 4096
