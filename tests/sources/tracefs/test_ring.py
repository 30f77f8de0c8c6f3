"""The event ring: the text of three kernels, and a real ring on the running one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.model.rows.trace import TraceEvent
from sexton.sources.tracefs import ring as module
from sexton.sources.tracefs.instance import remove_stale
from sexton.sources.tracefs.ring import EVENT_NS, EVENTS, EventRing, events
from tests.kernel.conftest import tracefs, until  # noqa: F401 - a fixture
from tests.support.fixtures import kernel_text, kernels

KERNELS = [path.stem for path in kernels("tracefs.ring")]
HEAD = b"   kworker/0:1-17      [000] d..2.     8.617498: "
HOLDER = """
import signal
from sexton.host.host import open_host
from sexton.sources.tracefs.ring import EventRing
ring = EventRing(open_host())
ring.arm()
print(ring.path, flush=True)
signal.pause()
"""
PINNED = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
with open("/proc/self/comm", "wb") as comm:
    comm.write(bytes.fromhex(sys.argv[2]))
for _ in range(5):
    before = time.monotonic_ns()
    time.sleep(0.02)
    print(before, time.monotonic_ns(), flush=True)
sys.stdin.read()
"""


def parse(text: bytes) -> Iterator[TraceEvent]:
    """One core's events in the order of the text; text without a head is skipped."""
    return (TraceEvent(*fields) for fields in module._fields(iter([text])))


def content(kernel: str) -> bytes:
    return kernel_text("tracefs.ring", kernel).encode("utf-8", "surrogateescape")


@contextmanager
def sleeper(core: int, comm: bytes) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """A process of ours on one core, which has just slept: its pid, and when it slept."""
    command = [sys.executable, "-c", PINNED, str(core), comm.hex()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as child:
        lines = [child.stdout.readline().split() for _ in range(5)]
        yield child.pid, [(int(start), int(end)) for start, end in lines]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_event_of_a_real_ring_is_read_in_its_order(kernel):
    text = content(kernel)
    rows = list(parse(text))
    assert len(rows) == len(re.findall(rb"\d\.\d{6}: \w+: ", text)) > 150
    assert {row.event for row in rows} <= {name.partition("/")[2] for name in EVENTS}
    assert all(earlier.mono_ns <= later.mono_ns for earlier, later in pairwise(rows))
    assert len({row.cpu for row in rows}) == 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_names_made_to_break_the_text_come_through_whole(kernel):
    rows = list(parse(content(kernel)))
    forged = [row for row in rows if row.comm == "a -1 [0] .... 1"]
    broken = [row for row in rows if row.comm.rstrip("\n") == "a\nb: c"]
    assert forged
    assert broken
    for row in forged + broken:
        assert row.pid > 1
    for row in rows:
        if row.event == "sched_switch":
            assert re.search(r" next_pid=\d+ next_prio=\d+$", row.detail)
        if row.event == "sched_wakeup":
            assert re.search(r" pid=\d+ .*target_cpu=\d+$", row.detail)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_running_thread_of_a_switch_is_the_one_that_was_switched_from(kernel):
    for row in parse(content(kernel)):
        if row.event == "sched_switch":
            assert row.detail.startswith(f"prev_comm={row.comm} prev_pid={row.pid} ")


@given(st.lists(st.integers(1, 400), min_size=1))
def test_pieces_of_any_size_give_the_same_events(sizes):
    text, at, pieces = content("6.18"), 0, []
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    assert [TraceEvent(*field) for field in module._fields(iter(pieces))] == list(parse(text))


@given(st.sampled_from(KERNELS), st.integers(0, 30_000), st.binary(max_size=60))
def test_junk_is_rows_and_never_a_crash(kernel, cut, junk):
    good = content(kernel)
    for text in (good[:cut] + junk + good[cut:], good[:cut], junk):
        for row in parse(text):
            assert 0 <= row.cpu < 100_000
            row.detail.encode("utf-8", "surrogateescape")


@given(st.binary(min_size=1, max_size=15).filter(lambda name: b"\0" not in name))
def test_no_name_of_15_bytes_can_forge_an_event_or_hide_one(name):
    switch = b"sched_switch: prev_comm=%b prev_pid=17 prev_prio=120 prev_state=S ==> next_comm=%b "
    line = name.rjust(16) + b"-17      [000] d..2.     8.000001: " + switch % (name, name)
    text = (line + b"next_pid=18 next_prio=120\n") * 3
    rows = list(parse(text))
    assert [(row.pid, row.event) for row in rows] == [(17, "sched_switch")] * 3
    assert {os.fsencode(row.comm) for row in rows} == {name}
    assert all(row.detail.endswith("next_pid=18 next_prio=120") for row in rows)


def test_what_the_kernel_says_between_events_belongs_to_none():
    text = (
        b"# tracer: nop\n#\n" + HEAD + b"napi_poll: x\nCPU:0 [LOST 55 EVENTS]\n" + HEAD + b"y: z\n"
    )
    assert [(row.event, row.detail) for row in parse(text)] == [("napi_poll", "x"), ("y", "z")]


def test_another_hosts_tree_has_no_ring(tmp_path):
    with pytest.raises(SourceAbsent, match="only on the node itself"):
        EventRing(open_host(str(tmp_path)))


@pytest.mark.root
@pytest.mark.parametrize("comm", [b"plain", b"a: b\n[0] 1.0: x"])
def test_a_sleep_of_ours_is_in_the_dump_with_its_core_pid_name_and_time(comm):
    core = max(os.sched_getaffinity(0))
    with EventRing(open_host()) as ring:
        ring.arm()
        with sleeper(core, comm) as (pid, sleeps):
            rows = dump(ring, 60)
        assert ring.state(None).mode == "on"
        ours = [row for row in rows if row.pid == pid and row.event == "sched_switch"]
        # Beside a busy neighbour a ring holds less than a second.
        oldest_ns = min(row.mono_ns for row in rows if row.cpu == core)
        kept = [(start_ns, end_ns) for start_ns, end_ns in sleeps if start_ns > oldest_ns]
        assert sleeps[-1] in kept
        for start_ns, end_ns in kept:
            went = [
                row
                for row in ours
                if start_ns - 1000 <= row.mono_ns <= end_ns and " prev_state=S " in row.detail
            ]
            assert went, "each sleep is a switch away from us"
            assert {row.cpu for row in went} == {core}
            assert {os.fsencode(row.comm) for row in went} == {comm}
    woken = [row for row in rows if row.event == "sched_wakeup" and f" pid={pid} " in row.detail]
    assert woken
    assert all(earlier.mono_ns <= later.mono_ns for earlier, later in pairwise(rows))


def dump(ring: EventRing, seconds: float) -> list[TraceEvent]:
    """The newest seconds of all cores; the ring is stopped meanwhile."""
    since_ns = ring.hold() - int(seconds * 1e9)
    try:
        return [TraceEvent(*fields) for fields in events(ring.path, since_ns)]
    finally:
        ring.release()


def make_events() -> None:
    """Switches, wake-ups and softirqs, whatever else the machine does."""
    subprocess.run(["true"], check=True)


@pytest.mark.root
def test_only_the_newest_seconds_are_dumped():
    with EventRing(open_host()) as ring:
        ring.arm()
        make_events()
        since_ns = time.monotonic_ns()
        make_events()
        rows = dump(ring, (time.monotonic_ns() - since_ns) / 1e9)
        assert rows
        assert rows[0].mono_ns >= since_ns
        assert dump(ring, 60)[0].mono_ns < since_ns


@pytest.mark.root
def test_network_softirqs_are_seen_and_others_are_not():
    program = (
        "import socket\ns = socket.socket(2, 2)\n"
        "for _ in range(50): s.sendto(b'x', ('127.0.0.1', 9))"
    )
    with EventRing(open_host()) as ring:
        ring.arm()
        subprocess.run([sys.executable, "-c", program], check=True)
        softirqs = [row for row in dump(ring, 60) if row.event.startswith("softirq_")]
    assert {row.event for row in softirqs} == {"softirq_raise", "softirq_entry", "softirq_exit"}
    assert all(re.match(r"vec=[23] ", row.detail) for row in softirqs)


@pytest.mark.root
def test_a_paused_ring_grows_no_more_and_costs_nothing_until_it_is_resumed():
    with EventRing(open_host()) as ring:
        ring.arm()
        assert ring.rate() is None
        assert until(lambda: (ring.rate() or 0) > 0)
        ring.pause("enough")
        before = [stats for _, stats in sorted(ring._instance.stats())]
        held = [line for stats in before for line in stats.split("\n") if "entries" in line]
        make_events()
        after = [stats for _, stats in sorted(ring._instance.stats())]
        assert held == [line for stats in after for line in stats.split("\n") if "entries" in line]
        assert len(dump(ring, 60)) > 0, "what it held stays"
        with open(f"{ring.path}/events/sched/sched_switch/enable") as enabled:
            assert enabled.read().startswith("0")
        assert ring.state(None).mode == "paused"
        ring.rate()
        make_events()
        assert ring.rate() == 0
        ring.resume("a trigger")
        assert until(lambda: (ring.rate() or 0) > 0)


@pytest.mark.root
def test_over_its_budget_it_thins_then_pauses_and_comes_back_for_a_trigger(monkeypatch):
    monkeypatch.setattr(module, "MOST_PERCENT", 0.0)
    with EventRing(open_host()) as ring:
        assert ring.arm().mode == "on"
        assert until(lambda: "without scheduler events" in ring.tend().reason)
        assert ring.state(None).mode == "on", "softirqs and polls are still kept"
        for name, enabled in (("sched/sched_switch", "0"), ("irq/softirq_raise", "1")):
            with open(f"{ring.path}/events/{name}/enable") as file:
                assert file.read().startswith(enabled)
        assert until(lambda: ring.tend().mode == "paused")
        state = ring.state(100_000.0)
        assert "off until the next alarm" in state.reason
        assert state.estimated_percent == EVENT_NS / 100
        ring.resume("nic_reset", grace_s=3600)
        assert until(lambda: (ring.tend().estimated_percent or 0) > 0), "over the limit"
        assert ring.tend().mode == "on"


@pytest.mark.root
def test_scheduler_events_come_back_when_their_time_is_over(monkeypatch):
    monkeypatch.setattr(module, "MOST_PERCENT", 0.0)
    with EventRing(open_host()) as ring:
        ring.arm()
        assert until(lambda: "without scheduler events" in ring.tend().reason)
        monkeypatch.setattr(module, "MOST_PERCENT", 100.0)
        ring._thin_until_s = 1e-9
        assert ring.tend().reason == "armed"
        with open(f"{ring.path}/events/sched/sched_switch/enable") as file:
            assert file.read().startswith("1")


@pytest.mark.root
def test_the_buffer_is_a_share_of_32_mb_and_overwrites():
    with EventRing(open_host()) as ring:
        ring.arm()
        with open(f"{ring.path}/buffer_size_kb") as size:
            cores = len(os.listdir(f"{ring.path}/per_cpu"))
            assert int(size.read()) >= module.buffer_kb(cores)
        with open(f"{ring.path}/trace_clock") as clock:
            assert "[mono]" in clock.read()


@pytest.mark.root
def test_what_a_killed_recorder_left_is_removed_at_the_next_start(tracefs):  # noqa: F811
    instances = f"{tracefs}/instances"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    try:
        name = os.path.basename(holder.stdout.readline().strip())
        remove_stale(open_host(), instances)
        assert name in os.listdir(instances), "its process lives"
        with pytest.raises(OSError, match="busy"):
            os.rmdir(f"{instances}/{name}")
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert name in os.listdir(instances)
    with EventRing(open_host()) as ring:
        ring.arm()
        assert name not in os.listdir(instances)
        own = os.path.basename(ring.path)
        assert own in os.listdir(instances)
    assert own not in os.listdir(instances)


@pytest.mark.root
def test_no_descriptor_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    with EventRing(open_host()) as ring:
        ring.arm()
        dump(ring, 10)
    assert len(os.listdir("/proc/self/fd")) == before


class _Emptied:
    """An instance whose cores wrote this much at each look."""

    def __init__(self, *written: dict[int, int]) -> None:
        self._written = iter(written)

    def stats(self):
        for core, number in next(self._written).items():
            yield core, f"entries: {number}\noverrun: 0\n"


@pytest.mark.parametrize(
    ("then", "is_known"), [({0: 150, 1: 10}, True), ({0: 100, 1: 90}, True), ({0: 3, 1: 2}, False)]
)
def test_a_ring_that_was_emptied_has_no_rate(then, is_known):
    ring = EventRing(open_host())
    ring._instance = _Emptied({0: 100, 1: 90}, then)
    assert ring.rate() is None
    assert (ring.rate() is not None) is is_known
    ring._instance = None
