"""When the recorder starts the child that seals, and when it tries again."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sexton.errors import SourceAbsent
from sexton.record import sealing
from sexton.record.sealing import ChildSealer
from sexton.store.layout import prepare
from sexton.store.retention import Limits
from sexton.store.sealer import Outcome
from tests.support.recordings import simple, write_open

FULL = Outcome(error=errno.ENOSPC, why="No space left on device")


class Child:
    """A child that has ended with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def status(self) -> int:
        return 0

    def stderr(self) -> str:
        return json.dumps(asdict(self._outcome))

    def stop(self, patience_s: float) -> None:
        del patience_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sealing, "time", made)
    return made


def attempts(sealer: ChildSealer, clock: Clock, seconds: int) -> list[float]:
    """Flush once a second; when a child was started."""
    began, found = clock.now_s, []
    for _ in range(seconds):
        clock.now_s += 1.0
        sealer.done()
        if sealer._began_s == clock.now_s:
            found.append(clock.now_s - began)
    return found


def test_a_seal_that_a_full_disk_refused_is_tried_again_soon_and_then_less_often(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [FULL] * 8
    monkeypatch.setattr(sealing, "start", lambda *_: Child(outcomes.pop(0)))
    prepare(tmp_path)
    sealer = ChildSealer(tmp_path, Limits(3600.0, 1 << 30))
    sealer.start(7)
    found = attempts(sealer, clock, 200)
    assert found == [6.0, 17.0, 38.0, 79.0, 140.0]
    outcomes[:] = [Outcome(sealed=1), FULL, FULL]
    attempts(sealer, clock, 70)
    assert attempts(sealer, clock, 200) == [], "sealed: nothing waits"
    sealer.start(8)
    assert attempts(sealer, clock, 8) == [6.0], "a success makes the wait short again"


def test_where_no_child_can_be_started_it_is_tried_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise SourceAbsent("python", "not installed")

    monkeypatch.setattr(sealing, "start", refuse)
    prepare(tmp_path)
    sealer = ChildSealer(tmp_path, Limits(3600.0, 1 << 30))
    sealer.start(7)
    assert attempts(sealer, clock, 20) == [5.0, 15.0]


def test_at_the_end_what_is_open_is_sealed_by_a_real_child(tmp_path: Path) -> None:
    write_open(tmp_path, [simple(100.0)], 1)
    (done,) = ChildSealer(tmp_path, Limits(1e12, 1 << 30)).finish()
    assert (done.sealed, done.error, done.why) == (1, 0, "")


def test_a_key_that_has_become_unusable_costs_the_signature_and_not_the_minutes(
    tmp_path: Path,
) -> None:
    write_open(tmp_path, [simple(100.0)], 1)
    key = str(tmp_path / "gone.pem")
    (done,) = ChildSealer(tmp_path, Limits(1e12, 1 << 30), key).finish()
    assert (done.sealed, done.error) == (1, 0)
    assert done.notes == [f"not signed: {key}: No such file or directory"]
    assert list((tmp_path / "open").iterdir()) == []
