"""Waits of a NIC queue's poll that its driver told of in the kernel log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sexton.detect import kernel_log, nics
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.waits import GRAVE, WAIT
from sexton.model.window import Window


class ToldWait(NamedTuple):
    """One log line about a queue that NAPI did not serve."""

    line: Line
    nic: str | None
    seconds: float
    scheduled: int | None

    @property
    def queue(self) -> int | None:
        return self.line.number("queue")

    @property
    def is_recent(self) -> bool:
        return self.line.age_s is None or self.line.age_s <= DAY_S


def told_waits(window: Window) -> list[ToldWait]:
    """Every wait told of, in the log's order."""
    lines = kernel_log.lines(window, ("nic_starved", "nic_reset"))
    name = nics.namer(window, lines)
    found: list[ToldWait] = []
    for line in lines:
        napi_us = line.number("napi_us")
        if napi_us is not None:
            found.append(ToldWait(line, name(line), napi_us / 1e6, line.number("napi_scheduled")))
        elif line.text("reason") == "SUSPECTED_POLL_STARVATION" and not _follows(line, found):
            # The driver says so only past its limit; how long in all was in a line now gone.
            found.append(ToldWait(line, name(line), GRAVE.value, 1))
    # Some formats say whether NAPI was scheduled, others of the same stall do not.
    told = {(each.nic, each.queue): each.scheduled for each in found if each.scheduled is not None}
    return [
        ToldWait(each.line, each.nic, each.seconds, told.get((each.nic, each.queue)))
        if each.scheduled is None
        else each
        for each in found
    ]


def _follows(line: Line, found: Sequence[ToldWait]) -> bool:
    """Is it the second sentence about a wait that was just told of?"""
    if not found or found[-1].seconds < WAIT.value:
        return False
    before = found[-1].line.age_s
    return before is None or line.age_s is None or before - line.age_s <= WAIT.value
