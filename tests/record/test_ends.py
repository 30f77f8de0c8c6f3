"""How the sampler ends, and what it says would grant a source."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed
from sexton.host.host import ON_THE_NODE, Host
from sexton.host.reader import LiveFiles
from sexton.model.row import Row
from sexton.model.rows.memory import VmCounter
from sexton.record import sampler as sampling
from sexton.record.sampler import Sampler
from sexton.sources.registry import Reading, Source

HOST = Host(LiveFiles(), live=True)


class Slow:
    """A source that takes its time to open, as a trace instance does."""

    def __init__(self, _host: Host) -> None:
        self.open = True
        OPENED.append(self)
        STARTED.set()
        assert GO_ON.wait(60)

    def collect(self) -> Iterable[Row]:
        return []

    def close(self) -> None:
        self.open = False


OPENED: list[Slow] = []
STARTED, GO_ON = threading.Event(), threading.Event()


class Interrupted(threading.Event):
    """Ctrl-C comes while the main thread waits for the opening."""

    def wait(self, timeout: float | None = None) -> bool:
        assert STARTED.wait(60)
        raise KeyboardInterrupt


def test_what_is_being_opened_when_we_are_interrupted_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source("test.slow", "/slow", (VmCounter,), 1.0, 5.0, "", Slow)
    sampler = Sampler(HOST, [source])
    plain = sampling.Answer
    with monkeypatch.context() as patched:
        patched.setattr(sampling, "Answer", lambda: plain(done=Interrupted()))
        with pytest.raises(KeyboardInterrupt):
            sampler.run(1)
    assert OPENED[0].open
    threading.Timer(0.1, GO_ON.set).start()
    sampler.close()
    assert not OPENED[0].open


def granted(error: SourceError, grant: str) -> str:
    def opened(_host: Host) -> Reading:
        raise error

    with Sampler(HOST, [Source("t.x", "/x", (VmCounter,), 1.0, 1.0, grant, opened)]) as sampler:
        return sampler.run(0).states["t.x"].grant


@pytest.mark.parametrize(
    ("error", "grant"),
    [
        (SourceAbsent("/x"), "mount it"),
        (SourceAbsent("/x", grant=""), ""),
        (SourceAbsent("/x", grant="build it"), "build it"),
        (SourceMalformed("/x", 1, "junk"), ""),
    ],
)
def test_a_failure_may_know_better_what_would_help(error: SourceError, grant: str) -> None:
    assert granted(error, "mount it") == grant


@pytest.mark.parametrize(("user", "grant"), [(1000, "sudo sexton diagnose"), (0, ON_THE_NODE)])
def test_root_is_not_told_to_become_root(
    monkeypatch: pytest.MonkeyPatch, user: int, grant: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert granted(SourceDenied("/x"), "") == grant


def test_what_only_the_node_can_tell_is_granted_on_the_node() -> None:
    with pytest.raises(SourceAbsent) as caught:
        Host(LiveFiles(), live=False).require_live("/x")
    assert caught.value.grant == ON_THE_NODE
