"""The sampling loop: its schedule, its guard and its deadlines."""

from __future__ import annotations

import os
import threading
import time

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceSkipped
from sexton.host.host import Host
from sexton.host.reader import LiveFiles
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NetDevice
from sexton.record import sampler as sampling
from sexton.record.sampler import Sampler
from sexton.sources.registry import Reading, Source
from tests.record.running import wait_until

HOST = Host(LiveFiles(), live=True)


class Counter(Reading):
    """A source that counts how often it was read, opened and closed."""

    def __init__(self, collect=None):
        self.reads = self.opened = self.closed = 0
        self._collect = collect

    def open(self, host):
        self.opened += 1
        return self

    def collect(self):
        self.reads += 1
        if self._collect is not None:
            return self._collect()
        return [VmCounter("reads", self.reads)]

    def close(self):
        self.closed += 1

    def source(self, name="test.counter", period_s=0.05, deadline_s=1.0, grant=""):
        return Source(name, f"/{name}", (VmCounter,), period_s, deadline_s, grant, self.open)


def test_reads_at_the_start_on_schedule_and_at_the_end():
    fast, once = Counter(), Counter()
    with Sampler(HOST, [fast.source("a.fast", 0.1), once.source("b.once", 0)]) as sampler:
        window = sampler.run(0.45)
    # At least at the start and at the end, however busy the machine; never more than is due.
    assert 2 <= fast.reads <= 2 + window.seconds / 0.1
    assert (once.reads, once.opened, once.closed) == (1, 1, 1)
    assert window.states["a.fast"].reads == fast.reads
    assert window.seconds > 0.3


def test_the_seconds_count_from_the_first_readings_however_late_they_are():
    seconds, late_s, read_s = 1.0, 0.25, []

    def slow():
        if slow_one.reads == 1:
            time.sleep(late_s)  # as on a node without CPU time to spare
        return [VmCounter("slow", 1)]

    def fast():
        read_s.append(time.monotonic())
        return [VmCounter("fast", 1)]

    slow_one = Counter(slow)
    sources = [slow_one.source("a.slow", 0.2), Counter(fast).source("b.fast", 0.2)]
    with Sampler(HOST, sources) as sampler:
        sampler.run(seconds)
    assert read_s[-1] - read_s[0] > seconds - late_s / 2


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (SourceAbsent("/x", "gone"), "absent"),
        (SourceDenied("/x", "not yours"), "denied"),
        (SourceMalformed("/x", 3, "junk"), "malformed"),
        (SourceSkipped("/x", "too dear"), "skipped"),
        (ZeroDivisionError("a bug"), "failed"),
    ],
)
def test_a_source_that_fails_is_written_down_and_the_others_go_on(error, state):
    def fail():
        raise error

    broken, healthy = Counter(fail), Counter()
    sources = [broken.source("a.broken", grant="do this"), healthy.source("b.healthy")]
    with Sampler(HOST, sources) as sampler:
        window = sampler.run(0.2)
    assert window.states["a.broken"].state == state
    assert window.states["a.broken"].detail
    assert window.states["b.healthy"].state == "ok"
    assert window.latest(VmCounter)


def test_a_source_that_failed_is_asked_again():
    answers = iter([SourceAbsent("/x")])

    def sometimes():
        error = next(answers, None)
        if error:
            raise error
        return [VmCounter("back", 1)]

    counter = Counter(sometimes)
    with Sampler(HOST, [counter.source(period_s=0.1)]) as sampler:
        window = sampler.run(0.3)
    assert counter.reads > 1
    assert window.states["test.counter"].state == "ok"


def test_a_source_that_blocks_is_left_behind_at_its_deadline():
    reader, writer = os.pipe()  # a real read that never returns

    def block():
        os.read(reader, 1)
        return []

    stuck, healthy = Counter(block), Counter()
    sources = [stuck.source("a.stuck", 0.05, deadline_s=0.1), healthy.source("b.healthy", 0.05)]
    try:
        with Sampler(HOST, sources) as sampler:
            window = sampler.run(0.4)
        assert window.states["a.stuck"].state == "timeout"
        assert stuck.reads == 1, "a stuck source is not asked again while it is stuck"
        assert stuck.closed == 0, "it still holds its reading"
        assert healthy.reads >= 2
    finally:
        os.write(writer, b"x")
        time.sleep(0.05)
        os.close(reader)
        os.close(writer)


def test_a_source_that_was_stuck_to_the_end_is_closed_once_it_answers():
    reader, writer = os.pipe()
    stuck = Counter(lambda: os.read(reader, 1) and [])
    try:
        with Sampler(HOST, [stuck.source("a.stuck", 0.05, deadline_s=0.1)]) as sampler:
            sampler.run(0.2)
        assert stuck.closed == 0
        os.write(writer, b"x")
        sampling.close_abandoned()
        assert (stuck.reads, stuck.closed) == (1, 1)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_source_that_blocks_while_it_closes_is_left_behind_and_the_others_are_closed(monkeypatch):
    monkeypatch.setattr(sampling, "_PATIENCE_S", 0.2)
    reader, writer = os.pipe()
    stuck, healthy = Counter(), Counter()
    monkeypatch.setattr(stuck, "close", lambda: os.read(reader, 1), raising=False)
    try:
        with Sampler(HOST, [stuck.source("a.stuck", 1), healthy.source("b.healthy", 1)]) as sampler:
            sampler.run(0.1)
        assert healthy.closed == 1
        assert "sexton-source a.stuck" in [thread.name for thread in threading.enumerate()]
    finally:
        os.write(writer, b"x")
        wait_until(
            lambda: "sexton-source a.stuck" not in [part.name for part in threading.enumerate()]
        )
        os.close(reader)
        os.close(writer)


def test_an_empty_reading_is_not_an_absent_one():
    empty = Counter(list)
    with Sampler(HOST, [empty.source()]) as sampler:
        window = sampler.run(0.1)
    assert window.latest(VmCounter) == ()
    assert window.latest(NetDevice) is None
    assert window.why_missing(VmCounter).state == "ok"


def test_a_slow_source_is_waited_for_in_a_snapshot_where_nothing_hangs():
    """On a busy machine an archive of many processes was judged without them, called stuck in the
    kernel, and its process was left behind."""
    slow = Counter(lambda: [VmCounter("late", 1)] if time.sleep(0.2) is None else [])
    host = Host(LiveFiles(), live=False)
    with Sampler(host, [slow.source("a.slow", deadline_s=0.01)]) as sampler:
        window = sampler.replay([(LiveFiles(), (10.0, 1000.0))])
    assert (window.states["a.slow"].state, slow.closed) == ("ok", 1)


def test_replay_reads_each_snapshot_once_with_its_own_time():
    counter = Counter()
    with Sampler(Host(LiveFiles(), live=False), [counter.source(period_s=0)]) as sampler:
        window = sampler.replay([(LiveFiles(), (10.0, 1000.0)), (LiveFiles(), (20.0, 1010.0))])
    batches = window.batches(VmCounter)
    assert [(b.mono_s, b.wall_s, b.rows[0].value) for b in batches] == [
        (10.0, 1000.0, 1),
        (20.0, 1010.0, 2),
    ]
    assert window.seconds == 10


def test_forget_keeps_the_newest_batch_of_each_kind():
    counter = Counter()
    with Sampler(HOST, [counter.source(period_s=0.05)]) as sampler:
        sampler.run(0.2)
        sampler.forget(time.monotonic() + 100)
        assert len(sampler.window().batches(VmCounter)) == 1


def test_what_a_reading_left_out_is_the_detail_of_its_state():
    class Cut(Reading):
        def collect(self):
            self.note = "only 3 of 9 entries were read"
            return []

    source = Source("x.y", "/x", (VmCounter,), 0.0, 1.0, "", Cut)
    with Sampler(Host(LiveFiles(), live=True), [source]) as sampler:
        (state,) = sampler.run(0.0).states.values()
    assert (state.state, state.detail) == ("ok", "only 3 of 9 entries were read")
