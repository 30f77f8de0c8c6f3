"""A made-up perf.data is one to perf itself, and what is planted in it is found."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from lab.synthetic.perf_data import Capture, Stall, write_perf_data
from sexton.profile.captures import open_profile
from sexton.profile.spikes import SpikeOptions, find
from sexton.profile.symbols import SymbolOptions
from tests.support.tools import need

TEXT = 0xFFFF_FFFF_8100_0000
NAMES = ("_text", "default_idle", "mem_cgroup_iter", "memcg_stat_show", "vfs_read", "ksys_read")
KERNEL = [(TEXT + number * 0x1000, name) for number, name in enumerate(NAMES)]
KERNEL += [(TEXT + 0x10_0000 + number * 0x100, f"function_{number}") for number in range(200)]
STALL = Stall(3, 31.4, 4.0, "kubelet", ("mem_cgroup_iter", "memcg_stat_show", "vfs_read"))
MADE = Capture(cores=4, seconds=60.0, stacks=400, tasks=20, busy=0.25, stalls=(STALL,))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    path = tmp_path_factory.mktemp("made") / "perf.data"
    return path, write_perf_data(path, MADE, KERNEL)


@pytest.mark.oracle
def test_perf_reads_the_same_samples_out_of_it(made: tuple[Path, int]) -> None:
    need("perf", package="linux-perf")
    path, samples = made
    script = ["perf", "script", "-i", path, "-F", "comm,cpu"]
    lines = subprocess.run(script, capture_output=True, text=True, check=True).stdout.split("\n")
    theirs = Counter(tuple(line.split()) for line in lines if line.strip())
    opened = open_profile([path])
    ours: Counter[tuple[str, ...]] = Counter()
    for profile in opened.profiles():
        for thread, cpu in zip(profile.thread.tolist(), profile.cpu.tolist(), strict=True):
            ours[profile.threads[thread].comm, f"[{cpu:03}]"] += 1
    assert ours == theirs
    assert theirs.total() == samples == 4 * 60 * 97


def test_the_planted_stall_is_the_one_spike(made: tuple[Path, int], tmp_path: Path) -> None:
    table = tmp_path / "kallsyms"
    table.write_text("".join(f"{address:016x} T {name}\n" for address, name in KERNEL))
    opened = open_profile([made[0]], SymbolOptions(kallsyms=str(table), cache=""))
    (spike,) = find(opened, SpikeOptions()).spikes
    assert spike.cpus == (3,)
    planted_ns = int((MADE.start_s + STALL.start_s) * 1e9)
    assert abs(spike.onset_ns - planted_ns) <= 100_000_000
    assert abs(spike.end_ns - planted_ns - 4_000_000_000) <= 200_000_000
    assert spike.grew[0].name == "mem_cgroup_iter"
    assert spike.tasks[0][0] == "kubelet"
