"""Kernel stacks by perf: a real capture's, and one taken live."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceError
from sexton.host.host import open_host
from sexton.model.rows.trace import StackCount
from sexton.profile.perf import kallsyms
from sexton.profile.perf.raw import KernelFacts, KernelSymbol
from sexton.record.sampler import Sampler
from sexton.sources.perf.stacks import MOST_FRAMES, counted
from sexton.sources.registry import enabled_sources
from tests.support.captures import Sample, raw_of
from tests.support.fixtures import kernel_text
from tests.support.tools import need

#: A capture as perf script printed it: samples with the addresses and their names.
TEXT = kernel_text("perf.stacks", "6.18")
_HEADER = re.compile(r"(.+?)\s+(\d+)/(\d+)\s+\[(\d+)\]\s+(\d+)\.(\d+):\s*")


def captured():
    """The capture as addresses, and a kallsyms that has their names."""
    samples, names = [], {}
    for block in TEXT.strip("\n").split("\n\n"):
        header, *frames = block.split("\n")
        comm, pid, tid, cpu, second, micro = _HEADER.fullmatch(header.strip()).groups()
        frames = [frame.split() for frame in frames]
        names.update((int(address, 16), name) for address, name in frames)
        chain = tuple((0, int(address, 16)) for address, _ in frames)
        time_ns = int(second) * 10**9 + int(micro) * 1000
        samples.append(Sample(time_ns, int(cpu), int(pid), int(tid), comm, chain))
    lines = [f"{address:016x} T {name}\n" for address, name in sorted(names.items())]
    return raw_of(samples), "".join(lines).encode()


RAW, KALLSYMS = captured()
ROWS = list(counted(RAW, kallsyms.parse(KALLSYMS)))


def test_a_real_capture_names_the_functions_that_a_busy_task_was_in():
    busy = [row for row in ROWS if row.comm == "dd"]
    assert any("read_zero" in row.frames for row in busy)
    assert all(row.second_mono == 1948 for row in busy)


def test_idle_is_left_out_but_interrupt_work_that_broke_into_idle_is_kept():
    rows = [row for row in ROWS if row.comm == "swapper"]
    assert not any(row.frames[0] == "pv_native_safe_halt" for row in rows)
    assert any("handle_softirqs" in row.frames and "do_idle" in row.frames for row in rows)


def test_per_core_threads_stay_apart():
    at = ((0, 0xFFFFFFFF81360012),)
    raw = raw_of([Sample(10**10, n, n, n, f"ksoftirqd/{n}", at) for n in (12, 13)])
    rows = counted(raw, kallsyms.parse(b"ffffffff81360000 T net_rx_action\n"))
    assert [(row.comm, row.cpu, row.frames) for row in rows] == [
        ("ksoftirqd/12", 12, ("net_rx_action",)),
        ("ksoftirqd/13", 13, ("net_rx_action",)),
    ]


def test_only_the_kernel_part_counts_and_no_more_of_it_than_any_real_path_has():
    deep = tuple((0, 0xFFFFFFFF81360000 + index) for index in range(500))
    raw = raw_of(
        [Sample(0, 0, 7, 7, "a", (*deep, (1, 0x400000))), Sample(0, 0, 7, 7, "b", ((1, 0x400000),))]
    )
    (row,) = counted(raw, kallsyms.parse(b"ffffffff81360000 T dive\n"))
    assert row.frames == ("dive",) * MOST_FRAMES


def test_a_bpf_program_that_came_while_perf_looked_on_has_its_name():
    program = KernelSymbol(0xFFFFFFFFC0001000, 0xFFFFFFFFC0001100, "bpf_prog_ab12_count")
    samples = [Sample(0, 0, 7, 7, "a", ((0, program.start + 5), (0, program.end)))]
    raw = raw_of(samples, kernel=KernelFacts(ksymbols=[program]))
    (row,) = counted(raw, None)
    assert row.frames == ("bpf_prog_ab12_count", "[unknown]")


@given(st.integers(0, len(KALLSYMS)), st.binary(max_size=40))
def test_junk_is_rows_or_an_error_and_never_a_crash(cut, junk):
    with contextlib.suppress(SourceError):
        list(counted(RAW, kallsyms.parse(KALLSYMS[:cut] + junk + KALLSYMS[cut:])))


def test_perf_is_not_started_unless_requested():
    assert all(source.id != "perf.stacks" for source in enabled_sources())
    assert any(source.id == "perf.stacks" for source in enabled_sources("--stacks"))


@pytest.mark.root
def test_a_live_capture_catches_a_task_in_the_kernel_and_leaves_nothing_behind(
    tmp_path, monkeypatch
):
    need("perf", package="linux-perf")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    burner = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=4k"], stderr=-3)
    try:
        chosen = [source for source in enabled_sources("--stacks") if source.id == "perf.stacks"]
        with Sampler(open_host(), chosen) as sampler:
            window = sampler.run(3.0)
    finally:
        burner.kill()
        burner.wait()
    rows = window.latest(StackCount)
    assert rows, window.states
    caught = [row for row in rows if row.pid == burner.pid]
    assert sum(row.samples for row in caught) > 5
    assert any("vfs_read" in row.frames for row in caught)
    assert os.listdir(tmp_path) == []
