"""`why` of a recording: the comparison beside the diagnosis says the same as after it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sexton.model.aligned import Aligned
from sexton.model.why import Why
from sexton.replay import query
from sexton.replay.child import Child
from sexton.replay.query import Question, boot_of, why_in
from sexton.replay.span import everything
from sexton.store.recording import Recording

INCIDENT = Path(__file__).parents[1] / "incidents" / "whole_chain-6.1-v2" / "recording"


def _why(what: str, beside: bool, recording: Recording | None = None) -> Why:
    recording = recording or Recording(INCIDENT)
    span = everything(recording)
    found, _ = why_in(recording, Question(what, span, boot_of(recording, span)), beside=beside)
    return replace(found, diagnosis=replace(found.diagnosis, cost=None))


@pytest.mark.parametrize("what", ["core 1", "lab-agent.service", "lab-walker", "saturated_core"])
def test_a_comparison_beside_the_diagnosis_says_the_same(what: str):
    assert _why(what, beside=True) == _why(what, beside=False)


def test_the_comparison_is_made_in_the_other_process(monkeypatch: pytest.MonkeyPatch):
    here = os.getpid()
    made = query.aligned_in

    def elsewhere(*arguments: Any) -> Aligned:
        assert os.getpid() != here
        return made(*arguments)

    monkeypatch.setattr(query, "aligned_in", elsewhere)
    assert _why("core 1", beside=True).aligned is not None


def test_damage_that_only_the_comparison_meets_is_reported(monkeypatch: pytest.MonkeyPatch):
    made = query.aligned_in

    def damaged(recording: Recording, *arguments: Any) -> Aligned:
        recording.problems.append("thread.parquet: damaged")
        return made(recording, *arguments)

    monkeypatch.setattr(query, "aligned_in", damaged)
    recording = Recording(INCIDENT)
    _why("core 1", True, recording)
    assert recording.problems == ["thread.parquet: damaged"]


def test_a_comparison_whose_process_is_killed_is_made_after_the_diagnosis(
    monkeypatch: pytest.MonkeyPatch,
):
    class Killed(Child[object]):
        def __init__(self, _: object) -> None:
            super().__init__(lambda: os.kill(os.getpid(), signal.SIGKILL))

    monkeypatch.setattr(query, "Child", Killed)
    assert _why("core 1", beside=True) == _why("core 1", beside=False)
