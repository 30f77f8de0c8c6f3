"""v2's bites against a made-up kernel: how they grow, when they end, and what they never do.

Whether a real kernel answers so is for `lab.freeing`, which runs on memory of either version.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.cure.reclaim.collateral import read_collateral, refusals
from sexton.cure.reclaim.cost import estimate_cost
from sexton.cure.reclaim.free import Limits, free
from sexton.errors import CommandError
from tests.cure.reclaim.made import FakeKernel

PARENT = "/system.slice"


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    return FakeKernel(root=tmp_path, dying=5000)


def sizes(kernel: FakeKernel) -> list[int]:
    return [int(bite.split()[0]) for bite in kernel.bites]


def test_reclaim_passes_grow_until_no_zombie_is_left(kernel: FakeKernel):
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert (freed.freed, freed.after.dying.number) == (5000, 0)
    assert freed.why_stopped == "none left"
    assert sizes(kernel)[:3] == [1 << 20, 2 << 20, 4 << 20]
    assert max(sizes(kernel)) <= 5000 * 4096 / 2
    assert all(bite.endswith(" swappiness=0") for bite in kernel.bites)
    assert freed.before.dying.scope == "below the parent"
    assert freed.rounds[0].us_per_zombie == pytest.approx(20)


def test_a_kernel_without_swappiness_gets_an_order_without_it(kernel: FakeKernel):
    kernel.knows_swappiness = False
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert freed.freed == 5000
    assert kernel.bites[0] == f"{1 << 20} swappiness=0"
    assert all(bite.isdecimal() for bite in kernel.bites[1:])


def test_it_stops_after_three_passes_that_freed_nothing(kernel: FakeKernel):
    kernel.dying, kernel.stuck = 0, 5000
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert sizes(kernel) == [1 << 20, 2 << 20, 4 << 20]
    assert freed.freed == 0
    assert "3 reclaim passes freed nothing" in freed.why_stopped
    assert "cannot be reclaimed" in freed.why_stopped


def test_inodes_that_hold_zombies_are_handed_over_before_the_first_pass(kernel: FakeKernel):
    kernel.dying, kernel.held_by_inodes = 0, 5000
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert freed.freed == 5000
    assert len([action for action in kernel.actions if "cgroup" in action.verb]) == 1


def test_nothing_is_made_where_nothing_is_left_or_pressure_is_high(kernel: FakeKernel):
    free(kernel.build().host, PARENT, Limits(stop_if=lambda: "pressure"), kernel)
    kernel.dying = 0
    kernel.show()
    free(kernel.host, PARENT, Limits(), kernel)
    assert kernel.actions == []


def test_a_pass_is_futile_only_if_no_inode_was_dirty_before_it(kernel: FakeKernel):
    kernel.dying, kernel.stuck = 0, 5000
    free(kernel.build().host, PARENT, Limits(), kernel)
    made = [action for action in kernel.actions if action.verb == "make and remove cgroup"]
    assert len(made) == 1 + len(kernel.bites)
    assert {action.path.rpartition("/")[0] for action in made} == {f"/sys/fs/cgroup{PARENT}"}


def test_a_mixture_is_freed_as_far_as_it_goes(kernel: FakeKernel):
    kernel.stuck = 700
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert (freed.freed, freed.after.dying.number) == (5000, 700)
    assert "700 left below the parent" in freed.sentence


def test_passes_that_free_nothing_at_first_are_made_larger(kernel: FakeKernel):
    kernel.lazy = 2  # pages that must grow old first
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert freed.freed == 5000
    assert sizes(kernel)[2] > sizes(kernel)[0]


def test_no_more_is_reclaimed_than_the_zombies_can_hold(kernel: FakeKernel):
    kernel.dying = 10
    free(kernel.build().host, PARENT, Limits(target=-1), kernel)
    assert sum(sizes(kernel)) <= 2 * 10 * 4096 + (32 << 20)
    kernel.bites.clear()
    kernel.dying = 100_000
    kernel.show()
    freed = free(kernel.host, PARENT, Limits(most_bytes=3 << 20), kernel)
    assert sum(sizes(kernel)) == 3 << 20
    assert freed.why_stopped == "requested as much as the zombies can hold"


def test_enough_is_enough(kernel: FakeKernel):
    freed = free(kernel.build().host, PARENT, Limits(target=4800), kernel)
    assert len(kernel.bites) == 1
    assert freed.why_stopped == "enough were freed"


def test_rounds_are_counted(kernel: FakeKernel):
    kernel.dying = 200_000
    kernel.build()
    limits = Limits(rounds=2, most_pass_bytes=1 << 20)
    freed = free(kernel.host, PARENT, limits, kernel)
    assert len(freed.rounds) == 2
    assert freed.freed == 16 * 256
    assert freed.why_stopped == "limit of 2 rounds reached"


def test_memory_of_running_cgroups_is_read_before_and_after(kernel: FakeKernel):
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    (before,), (after,) = freed.before.siblings, freed.after.siblings
    assert before.path == "/system.slice/a.service"
    assert freed.before.swap_free_bytes == 800 << 10
    assert before.total_bytes - after.total_bytes == (64 << 20) - kernel.live_file > 0


def test_it_stops_when_running_cgroups_lose_too_much(kernel: FakeKernel):
    kernel.dying, kernel.living_pay, kernel.live_file = 50_000, 1, 512 << 20
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert "running cgroups lost" in freed.why_stopped
    lost = (512 << 20) - kernel.live_file
    assert (520 << 20) // 20 < lost < 2 * (520 << 20) // 20
    assert freed.freed > 0
    assert freed.after.dying.number > 0


def test_a_thorough_one_goes_on(kernel: FakeKernel):
    kernel.dying, kernel.living_pay, kernel.live_file = 50_000, 1, 512 << 20
    freed = free(kernel.build().host, PARENT, Limits(thorough=True), kernel)
    assert freed.after.dying.number == 0


def test_a_thorough_one_ends_when_the_kernel_has_nothing_left(kernel: FakeKernel):
    kernel.stuck = 50
    freed = free(kernel.build().host, PARENT, Limits(thorough=True), kernel)
    assert freed.after.dying.number == 50
    assert "nothing more to reclaim" in freed.why_stopped


def test_a_kernel_without_the_file_says_so(kernel: FakeKernel):
    kernel.build()
    (kernel.root / "sys/fs/cgroup/system.slice/memory.reclaim").unlink()
    with pytest.raises(CommandError, match=r"no memory.reclaim \(added in 5.19\)"):
        free(kernel.host, PARENT, Limits(), kernel)
    assert kernel.bites == []


def test_protected_neighbours_are_refused(kernel: FakeKernel):
    kernel.build()
    home = kernel.root / "sys/fs/cgroup/system.slice/containerd.service"
    home.mkdir()
    (refusal,) = refusals(read_collateral(kernel.host, PARENT))
    assert refusal.override == "--accept-collateral"
    assert "every container depends on it" in refusal.reason
    with pytest.raises(CommandError, match=r"containerd\.service"):
        free(kernel.host, PARENT, Limits(), kernel)
    assert kernel.bites == []


def test_the_estimate_is_printed_before_anything_is_done(kernel: FakeKernel):
    kernel.dying = 68_440
    found = read_collateral(kernel.build().host, PARENT)
    guess = estimate_cost(found)
    assert guess.dying == 68_440
    assert guess.least_s == pytest.approx(2.96, abs=0.01)
    assert guess.hold_s == pytest.approx(0.94, abs=0.01)
    assert guess.most_s > guess.least_s
    assert "68,440" in guess.sentence
    assert "longest uninterruptible step" in guess.sentence
    assert kernel.bites == []
