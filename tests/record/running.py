"""A recorder that runs beside a test, and sources of the test's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sexton.host.host import open_host
from sexton.model.row import Row
from sexton.record.companions import Companion
from sexton.record.recorder import Options, Recorder
from sexton.sources import registry
from sexton.sources.registry import Source
from sexton.store.recording import Recording
from sexton.store.retention import Limits


def options(directory: Path, **changed: Any) -> Options:
    """Small segments and quick flushes, so that a test sees many of each; nothing is shed for its
    cost, which beside a busy neighbour is anything."""
    usual = {"probe": False, "segment_s": 2.0, "flush_s": 0.3, "cpu_percent": 100.0}
    given: dict[str, Any] = {**usual, **changed}
    return Options(directory, given.pop("limits", Limits(3600.0, 1 << 30)), **given)


@contextmanager
def recording(
    options: Options, sources: Sequence[Source] | None = None, companions: Sequence[Companion] = ()
) -> Iterator[Recorder]:
    """A recorder at work in a thread; stopped and sealed on the way out."""
    recorder = Recorder(open_host(), options, companions, sources)
    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.stopping.set()
        thread.join(30)
        recorder.close()


def wait_until(is_so: Callable[[], object], most_s: float = 180.0) -> None:
    """Fails where it does not come to be; the patience is for a machine that others keep busy."""
    end = time.monotonic() + most_s
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.05)


def wait_for_reads(recorder: Recorder, name: str, more: int) -> None:
    """Until a source was read so many times more, however long that takes here."""
    before = reads_of(recorder, name)
    wait_until(lambda: reads_of(recorder, name) >= before + more)


def state_of(recorder: Recorder, name: str) -> str:
    """How a source does."""
    return next(state.state for state in recorder._sampler.states() if state.id == name)


def reads_of(recorder: Recorder, name: str) -> int:
    """How often a source was read."""
    return next(state.reads for state in recorder._sampler.states() if state.id == name)


def every(directory: Path, kind: type[Row]) -> list[Any]:
    """All rows of one kind in a recording, in order."""
    found = Recording(directory)
    assert found.problems == []
    return [
        row for segment in found.segments for batch in segment.batches(kind) for row in batch.rows
    ]


def moments(directory: Path, kind: type[Row]) -> list[float]:
    """When a kind was read, on the monotonic clock."""
    return [
        batch.mono_s for segment in Recording(directory).segments for batch in segment.batches(kind)
    ]


class Reading(registry.Reading):
    """A source's reading that does what the test wants."""

    def __init__(self, collect: Callable[[], list[Row]]) -> None:
        self._collect = collect

    def collect(self) -> list[Row]:
        return self._collect()

    def close(self) -> None:
        pass


def source(
    name: str, kind: type[Row], collect: Callable[[], list[Row]], **changed: float
) -> Source:
    """A source of the test's own, read ten times a second."""
    period_s, deadline_s = changed.get("period_s", 0.1), changed.get("deadline_s", 1.0)
    return Source(
        name, f"/{name}", (kind,), period_s, deadline_s, "", lambda _host: Reading(collect)
    )
