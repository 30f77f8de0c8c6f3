"""Ages of log lines, how far back a log goes, and which lines belong together."""

from __future__ import annotations

import pytest

from sexton.detect import kernel_log
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.model.window import Window
from tests.support.log import DONE, RESET, TRIGGER, events, log
from tests.support.windows import EPOCH, make_window

NOW = 864_000.0


def event(mono_s: float | None, wall_s: float | None) -> KernelEvent:
    mono_us = None if mono_s is None else int(mono_s * 1e6)
    return KernelEvent("p", "nic_reset", "m", mono_us, wall_s, {"queue": 5, "nic": "eth0"})


def window(*rows: KernelEvent | KernelLog) -> Window:
    return make_window([(NOW, rows)])


@pytest.mark.parametrize(
    ("logged", "age"),
    [
        (event(NOW - 100, None), 100),
        (event(NOW - 100, EPOCH + NOW - 50), 50),  # a journal's wall time outlives boots
        (event(NOW + 30, None), 0),  # the log's clock runs a little fast
        (event(NOW + 3600, None), None),  # another boot's
        (event(None, None), None),
        (event(None, EPOCH + NOW + 5), 0),
    ],
)
def test_a_lines_age(logged, age):
    (line,) = kernel_log.lines(window(log(), logged), ["nic_reset"])
    assert line.age_s == (None if age is None else pytest.approx(age))


def test_fields_come_as_what_they_are():
    (line,) = kernel_log.lines(window(event(NOW, None)), ["nic_reset"])
    assert (line.number("queue"), line.number("nic"), line.number("cpu")) == (5, None, None)
    assert (line.text("queue"), line.text("nic"), line.text("cpu")) == ("5", "eth0", None)


def test_lines_come_oldest_first_and_only_of_the_families_asked_for():
    logged = [event(NOW - 10, None), event(NOW - 90, None)]
    ages = [line.age_s for line in kernel_log.lines(window(*logged), ["nic_reset"])]
    assert ages == [pytest.approx(90), pytest.approx(10)]
    assert kernel_log.lines(window(*logged), ["oom"]) == []


@pytest.mark.parametrize(
    ("read", "words", "covers"),
    [
        (log(0.0), "since boot", True),
        (log(0.0, lost=3), "in the last 10 d 0 h", False),
        (log(NOW - 3600), "in the last 1 h 0 min", False),
        (log(NOW - 90_000), "in the last 1 d 1 h", True),
        (KernelLog(5, None, 0, "/var/log/kern.log"), "in an undated log", False),
    ],
)
def test_how_far_back_a_log_reaches(read, words, covers):
    reach = kernel_log.reach(window(read))
    assert reach is not None
    assert (reach.words, reach.covers_a_day) == (words, covers)


def test_a_log_never_read_has_no_reach_and_says_what_is_missing():
    empty = make_window([])
    assert kernel_log.reach(empty) is None
    assert not kernel_log.was_read(empty)
    assert len(kernel_log.lacking(empty)) == 1
    assert kernel_log.lacking(window(log())) == ()


def bursts(*logged: KernelEvent) -> list[int]:
    lines = kernel_log.lines(window(*logged), ["nic_reset", "nic_starved"])
    return [len(burst.lines) for burst in kernel_log.bursts(lines, lambda line: "eth0", 10)]


def test_lines_close_together_are_one_and_far_apart_two():
    assert bursts(*events(RESET, NOW - 100)) == [4]
    assert bursts(*events(RESET, NOW - 100), *events(RESET, NOW - 50)) == [4, 4]


def test_what_comes_after_the_end_is_the_next():
    assert bursts(*events([TRIGGER, DONE, TRIGGER, DONE], NOW - 100)) == [2, 2]


def test_undated_lines_are_counted_by_the_commonest_sentence():
    assert bursts(*events([TRIGGER, DONE, TRIGGER, DONE, TRIGGER], None)) == [2, 2, 1]
