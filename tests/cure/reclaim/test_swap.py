"""What of the living is out on swap: weighed before and after, shown, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.cure.reclaim.collateral import read_collateral
from sexton.cure.reclaim.cost import estimate_cost
from sexton.cure.reclaim.free import Limits, free
from sexton.cure.remedies import reclaim_zombies
from sexton.cure.remedies.reclaim_zombies import Reason
from sexton.host.host import Host, open_host
from tests.cure.reclaim.made import FakeKernel

PARENT = "/system.slice"
NONE = "Filename Type Size Used Priority\n"


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    return FakeKernel(root=tmp_path, dying=5000)


def risk(host: Host) -> str:
    found = read_collateral(host, PARENT)
    return reclaim_zombies.propose("1", found, estimate_cost(found), Reason(False)).risk_why


def test_what_went_to_swap_is_in_the_sentence_the_lines_and_the_journal(kernel: FakeKernel):
    kernel.swapped, kernel.swaps = 4096, 1 << 20
    freed = free(kernel.build().host, PARENT, Limits(), kernel)
    assert freed.swapped_bytes == kernel.swapped - 4096 > 0
    assert "of it to swap" in freed.sentence
    assert "in swap 4.0 KiB before, " in freed.running_cgroups
    assert freed.details[0] == freed.running_cgroups
    siblings = freed.as_json()["siblings"]
    assert siblings["swap_before_bytes"] == 4096
    assert siblings["swap_after_bytes"] == kernel.swapped


def test_where_nothing_was_done_nothing_is_said_to_be_lost(kernel: FakeKernel):
    freed = free(kernel.build().host, PARENT, Limits(stop_if=lambda: "a NIC reset"), kernel)
    assert (freed.rounds, freed.running_cgroups) == ((), "")
    assert "lost" not in freed.sentence


def test_the_plan_shows_what_is_out_on_swap_and_how_much_is_free(kernel: FakeKernel):
    kernel.swapped = 3 << 20
    text = risk(kernel.build().host)
    assert "8 live" not in text
    assert "could lose 64.0 MiB of cache, 5.0 MiB anonymous" in text
    assert "3.0 MiB already in swap, 800.0 KiB of swap free" in text


def test_swap_that_is_full_is_not_called_none(kernel: FakeKernel):
    kernel.build()
    (kernel.root / "proc/swaps").write_text(f"{NONE}/swap file 1000 1000 -2\n")
    assert "0 B of swap free" in risk(kernel.host)
    (kernel.root / "proc/swaps").write_text(NONE)
    assert "no swap" in risk(kernel.host)


def test_what_the_kernel_does_not_account_is_unknown_unless_there_is_no_swap(kernel: FakeKernel):
    kernel.swapped = None
    assert read_collateral(kernel.build().host, PARENT).swap_bytes is None
    assert "unknown already in swap" in risk(kernel.host)
    assert "in swap unknown before" in free(kernel.host, PARENT, Limits(), kernel).running_cgroups
    (kernel.root / "proc/swaps").write_text(NONE)
    assert read_collateral(kernel.host, PARENT).swap_bytes == 0


V1 = "cache 9\nrss 5\n{}total_cache 4096\ntotal_rss 8192\ntotal_shmem 0\n{}"


@pytest.mark.parametrize(
    ("own", "whole", "swap"), [("swap 7\n", "total_swap 20480\n", 20487), ("", "", None)]
)
def test_on_v1_a_parents_own_pages_are_kept_apart_from_its_childrens(
    tmp_path: Path, own, whole, swap
):
    memory = tmp_path / "sys/fs/cgroup/memory"
    for path, content in {
        "proc/1/mountinfo": "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t3\t1\n",
        "proc/swaps": f"{NONE}/swap file 1000 200 -2\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    for place in (memory, memory / "p", memory / "p/a.service"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "memory.usage_in_bytes").write_text("8192\n")
        (place / "memory.stat").write_text(V1.format(own, whole))
    found = read_collateral(open_host(str(tmp_path)), "/p", split=True)
    assert found.swap_bytes == swap
