"""Kernel events for tests, made by the catalogue from lines as drivers really print them."""

from __future__ import annotations

from collections.abc import Iterable

from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.records import LogLine
from tests.support.windows import EPOCH

PAUSED = (
    "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: {scheduled}"
)
NOT_CALLED = (
    "ena 0000:20:03.0 eth0: napi handler hasn't been called for a long time but is scheduled"
)
TRIGGER = "ena 0000:20:03.0 eth0: Trigger reset is on"
DONE = (
    "ena 0000:20:03.0: Device reset completed successfully, "
    "Driver info: Elastic Network Adapter (ENA) v2.11.0g"
)
#: One reset as the incident's nodes logged it.
RESET = (PAUSED.format(scheduled=1), NOT_CALLED, TRIGGER, DONE)


def events(messages: Iterable[str], mono_s: float | None) -> list[KernelEvent]:
    """Lines said a tenth of a second apart from that moment on; undated for `None`."""
    recogniser = Recogniser()
    made = []
    for turn, message in enumerate(messages):
        at = None if mono_s is None else mono_s + turn / 10
        line = LogLine(
            None if at is None else int(at * 1e6), None if at is None else EPOCH + at, message, 0
        )
        event = recogniser.event(line)
        assert event is not None, f"the catalogue does not know {message!r}"
        made.append(event)
    return made


def log(oldest_s: float = 0.0, lost: int = 0) -> KernelLog:
    """A log that was read and begins at that second since boot."""
    return KernelLog(1000, int(oldest_s * 1e6), lost, "/dev/kmsg")
