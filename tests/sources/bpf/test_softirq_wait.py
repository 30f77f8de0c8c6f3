"""The probe on the kernel we run on: it counts as the kernel counts, finds a starved core, knows
what it costs, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed
from sexton.host.host import Host, open_host
from sexton.host.reader import LiveFiles
from sexton.model.row import Row
from sexton.model.rows.cpu import ProbeCost, SoftirqWait
from sexton.sources.bpf import syscalls
from sexton.sources.bpf.program import BUCKETS, VALUE_BYTES, read_tally
from sexton.sources.bpf.softirq_wait import (
    ALARM,
    ONLINE,
    SHORTEST_SAMPLE_S,
    Probe,
    SoftirqWaits,
    possible,
)
from sexton.sources.procfs import softirqs
from sexton.sources.registry import all_sources
from tests.sources.bpf.hold import held_core, program_name

CORES = sorted(os.sched_getaffinity(0))
NEXT_ID, FD_BY_ID = 11, 13


@pytest.fixture
def waits() -> Iterator[SoftirqWaits]:
    opened = SoftirqWaits(open_host())
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def on(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def in_real_time() -> Iterator[None]:
    """Before all that has no priority of its own, so that a busy machine leaves us the core."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def send(packets: int) -> None:
    """Through the loopback, one by one, each received before the next is sent."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
        for _ in range(packets):
            sender.send(b"x")
            receiver.recv(1)


def cost(rows: list[Row]) -> ProbeCost:
    (found,) = [row for row in rows if isinstance(row, ProbeCost)]
    return found


def net_rx(rows: list[Row], core: int) -> SoftirqWait | None:
    found = [
        row
        for row in rows
        if isinstance(row, SoftirqWait) and (row.cpu, row.vector) == (core, "NET_RX")
    ]
    return found[0] if found else None


def programs() -> dict[int, str]:
    """Every BPF program in this kernel: its id and its name."""
    found, at = {}, 0
    while True:
        request = bytearray(struct.pack("=III", at, 0, 0))
        try:
            syscalls.call(NEXT_ID, request)
        except FileNotFoundError:
            return found
        at = struct.unpack_from("=III", request)[1]
        try:
            descriptor = syscalls.call(FD_BY_ID, struct.pack("=III", at, 0, 0))
        except FileNotFoundError:  # gone since
            continue
        found[at] = program_name(descriptor)
        os.close(descriptor)


def programs_of(pid: int) -> set[int]:
    """The programs a process holds."""
    notes = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return {int(found[1]) for note in notes if (found := re.search(r"prog_id:\t(\d+)", note))}


@given(st.text(max_size=30) | st.from_regex(r"[0-9,\-\n ]{0,30}", fullmatch=True))
def test_junk_for_a_list_of_cores_is_cores_or_malformed(content: str):
    with contextlib.suppress(SourceMalformed):
        cores = possible(content)
        assert cores
        assert all(core >= 0 for core in cores)


def test_a_list_may_have_holes():
    assert possible("0,2-3,64\n") == (0, 2, 3, 64)


def test_the_probe_is_opt_in():
    (found,) = [source for source in all_sources() if source.id == "bpf.softirq_wait"]
    assert found.opt_in == "--probe"
    assert "--probe" in found.grant


def test_another_machines_tree_has_no_probe(tmp_path):
    with pytest.raises(SourceAbsent, match="only on the node itself"):
        SoftirqWaits(open_host(str(tmp_path)))


@pytest.mark.root
def test_without_the_right_it_is_denied_and_says_what_is_needed():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            Probe(1)
        except SourceDenied as error:
            os.write(writing, error.detail.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        assert "CAP_BPF and CAP_PERFMON" in answer.read()


@pytest.mark.root
def test_it_counts_about_as_the_kernel_counts(waits: SoftirqWaits):
    core = CORES[-1]

    def kernels() -> int:
        rows = softirqs.parse(LiveFiles().read(softirqs.PATH).decode())
        return next(row.net_rx for row in rows if row.cpu == core)

    assert cost(waits.collect()).watched is False
    before = kernels()
    with on(core):
        send(3000)
    rows, counted = list(waits.collect()), kernels() - before
    row = net_rx(rows, core)
    assert row.waits >= 2500
    assert row.waits == pytest.approx(counted, rel=0.1, abs=50)
    assert row.raises >= row.waits
    assert sum(row.buckets) == row.waits
    assert row.buckets[-1] > 0
    # All waits ended since the first reading: the longest is in the last bucket that is filled.
    # On a quick core that may be the first one, below a microsecond.
    assert min(row.longest_us.bit_length(), BUCKETS - 1) == len(row.buckets) - 1
    assert row.longest_us <= row.total_us
    assert sum(number << max(0, at - 1) for at, number in enumerate(row.buckets) if at) <= (
        row.total_us
    ), "each wait is at least as long as its bucket says"
    assert cost(rows).watched is True


@pytest.mark.alone
@pytest.mark.root
def test_a_starved_core_is_found_there_while_it_waits_and_after(waits: SoftirqWaits):
    if len(CORES) < 2:
        pytest.skip("one core cannot watch itself starve")
    other, starved = CORES[0], CORES[-1]
    with on(other), held_core(starved) as hold:
        waits.collect()
        hold.begin()
        pending = []
        ended = None
        deadline = time.monotonic() + 30
        while ended is None and time.monotonic() < deadline:
            time.sleep(0.2)
            rows = list(waits.collect())
            row = net_rx(rows, starved)
            if row is not None and row.pending_us is not None:
                pending.append(row.pending_us)
            if row is not None and (row.longest_us or 0) >= 1_000_000:
                ended = row
            wait = net_rx(rows, other)
            if wait is not None:
                assert (wait.longest_us or 0) < 1_000_000
                assert (wait.pending_us or 0) < 1_000_000
        held_us = hold.seconds() * 1e6
    if held_us < 1_000_000:
        pytest.skip("this kernel ends a BPF loop too soon to hold a core")
    assert ended is not None, "nothing was found"
    assert ended.longest_us <= held_us
    assert sum(ended.buckets[20:]) == 1
    assert max(pending) >= 500_000, "it was not seen under way"
    assert net_rx(list(waits.collect()), starved).longest_us != ended.longest_us


@pytest.mark.root
def test_a_flood_throttles_it_and_a_trigger_brings_it_back(waits: SoftirqWaits):
    with on(CORES[-1]), in_real_time():  # a busy machine would add seconds without packets
        waits.collect()
        began = time.monotonic()
        while time.monotonic() - began <= SHORTEST_SAMPLE_S:
            send(5000)
        probe_cost = cost(list(waits.collect()))
    assert (probe_cost.mode, probe_cost.watched, probe_cost.method) == (
        "1 s in 10",
        True,
        "run_time_ns",
    )
    assert probe_cost.why.endswith(
        f"of core {CORES[-1]}, at most 0.5 % allowed, in a sampled second"
    )
    assert probe_cost.runs >= 10_000
    assert probe_cost.run_ns > 0
    assert probe_cost.spent_ms > probe_cost.run_ns / 1e6, (
        "with what the kernel's measure leaves out"
    )
    rows = list(waits.collect())
    assert [type(row) for row in rows] == [ProbeCost], "no rows for what was not watched"
    assert cost(rows).watched is False
    waits._host.memo[ALARM] = time.monotonic() + 60
    assert cost(waits.collect()).mode == "on"
    send(100)
    rows = list(waits.collect())
    assert cost(rows).watched is True
    assert any(isinstance(row, SoftirqWait) for row in rows)


@pytest.mark.root
def test_the_recorders_alarm_is_read_from_the_memo(waits: SoftirqWaits):
    waits.collect()
    waits._duty.mode = "off"
    waits.collect()
    assert cost(waits.collect()).watched is False
    waits._host.memo[ALARM] = time.monotonic() + 30
    waits.collect()
    assert cost(waits.collect()).watched is True


@pytest.mark.root
def test_where_the_kernel_cannot_measure_the_cost_is_an_estimate(waits, monkeypatch):
    monkeypatch.setattr(syscalls, "enable_stats", lambda: None)
    monkeypatch.setattr(syscalls, "runs", lambda _: None)
    waits.collect()
    send(2000)
    assert cost(waits.collect()).method == "", "too soon to be a second's cost"
    time.sleep(SHORTEST_SAMPLE_S)
    estimated = cost(waits.collect())
    assert estimated.method == "estimate"
    assert estimated.runs >= 4000
    assert estimated.run_ns >= 2000 * 300


class _Moving(LiveFiles):
    """This machine's files, with cores that come online on request."""

    online = b"0\n"

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        return self.online if path == ONLINE else super().read(path, limit)


@pytest.mark.root
def test_a_core_that_comes_online_is_measured_anew():
    files = _Moving()
    opened = SoftirqWaits(Host(files, live=True))
    try:
        opened.collect()
        with on(CORES[-1]):
            send(50)
        rows = list(opened.collect())
        assert cost(rows).watched is True
        assert net_rx(rows, CORES[-1]) is None, "an offline core has no row"
        files.online = LiveFiles().read(ONLINE)
        assert [type(row) for row in opened.collect()] == [ProbeCost]
        assert net_rx(list(opened.collect()), CORES[-1]).waits >= 50
    finally:
        opened.close()


@pytest.mark.root
def test_a_raise_noted_before_a_rest_is_forgotten_after_it():
    cpus = len(possible(LiveFiles().read("/sys/devices/system/cpu/possible").decode()))
    probe = Probe(cpus)
    try:
        stale = struct.pack(f"={VALUE_BYTES // 8}Q", 1, 1, *[0] * (VALUE_BYTES // 8 - 2))
        syscalls.update(probe._waits, stale * cpus)
        assert read_tally(probe.read(), 0, 0).raised_ns == 1
        probe.attach()
        assert all(read_tally(probe.read(), cpu, 0).raised_ns != 1 for cpu in range(cpus))
        assert read_tally(probe.read(), 0, 0).raises >= 1, "and nothing else is"
    finally:
        probe.close()


@pytest.mark.root
def test_after_kill_9_nothing_of_it_is_left_in_the_kernel():
    script = (
        "from sexton.sources.bpf.softirq_wait import SoftirqWaits\n"
        "from sexton.host.host import open_host\n"
        "waits = SoftirqWaits(open_host())\n"
        "waits.collect()\n"
        "print('watching', flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "watching\n"
        its, there = programs_of(child.pid), programs()
        child.send_signal(signal.SIGKILL)
    assert sorted(there[item] for item in its) == ["sexton_entry", "sexton_raise"]
    deadline = time.monotonic() + 60
    while its & programs().keys() and time.monotonic() < deadline:
        time.sleep(0.05)  # the kernel frees a program a grace period after its last user
    assert not its & programs().keys()
