"""Kernel stacks by perf: the text form, and a real capture."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.model.stack import StackCount
from sexton.record.sampler import Sampler, default_sources
from sexton.sources.host import open_host
from sexton.sources.perf.stacks import parse
from tests.support.fixtures import kernel_text
from tests.support.tools import need

TEXT = kernel_text("perf.stacks", "6.18")


def test_a_real_capture_names_the_functions_that_a_busy_task_was_in():
    busy = [row for row in parse(TEXT) if row.comm == "dd"]
    assert any("read_zero" in row.frames for row in busy)
    assert all(row.second_mono == 1948 for row in busy)


def test_idle_is_left_out_but_interrupt_work_that_broke_into_idle_is_kept():
    rows = [row for row in parse(TEXT) if row.comm == "swapper"]
    assert not any(row.frames[0] == "pv_native_safe_halt" for row in rows)
    assert any("handle_softirqs" in row.frames and "do_idle" in row.frames for row in rows)


def test_per_core_threads_stay_apart():
    text = "".join(
        f"ksoftirqd/{n}  {n}/{n} [{n:03}]  10.000001:\n\tffffffff81360012 net_rx_action\n\n"
        for n in (12, 13)
    )
    assert [(row.comm, row.cpu) for row in parse(text)] == [
        ("ksoftirqd/12", 12),
        ("ksoftirqd/13", 13),
    ]


@given(st.integers(0, len(TEXT)), st.text(max_size=30))
def test_junk_is_rows_or_malformed_and_never_a_crash(cut, junk):
    with contextlib.suppress(SourceMalformed):
        list(parse(TEXT[:cut] + junk + TEXT[cut:]))


def test_perf_is_not_started_unless_asked_for():
    assert all(each.id != "perf.stacks" for each in default_sources())
    assert any(each.id == "perf.stacks" for each in default_sources("--stacks"))


@pytest.mark.root
def test_a_live_capture_catches_a_task_in_the_kernel_and_leaves_nothing_behind(
    tmp_path, monkeypatch
):
    need("perf", package="linux-perf")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    burner = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=4k"], stderr=-3)
    try:
        chosen = [each for each in default_sources("--stacks") if each.id == "perf.stacks"]
        with Sampler(open_host(), chosen) as sampler:
            window = sampler.run(1.5)
    finally:
        burner.kill()
        burner.wait()
    rows = window.latest(StackCount)
    assert rows, window.states
    caught = [row for row in rows if row.pid == burner.pid]
    assert sum(row.samples for row in caught) > 5
    assert any("vfs_read" in row.frames for row in caught)
    assert os.listdir(tmp_path) == []
