"""Recorded incidents: their directories, the expected diagnosis, and Sexton's diagnosis.

::

    tests/incidents/<scene>-<kernel>-<hierarchy>/
      scene.json        what was played, what was injected, the expected diagnosis
      recording/        the recording, made small by `lab.compact`
      diagnosis.txt     golden: `sexton diagnose --from recording`
      diagnosis.json    golden: the same with --json
      why.txt           golden: `sexton why SUBJECT --from recording`
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sexton.explain.diagnosis import diagnose
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Finding, Verdict
from sexton.replay.span import Span, everything
from sexton.replay.window import Replay, window
from sexton.store.recording import Recording

INCIDENTS = Path(__file__).parents[1] / "tests" / "incidents"
SCENE = "scene.json"
RECORDING = "recording"
#: Subjects for `sexton why`, most specific first.
_SUBJECTS = (("job", "{}"), ("nic", "{}"), ("core", "core {}"), ("unit", "{}"), ("cgroup", "{}"))
_WIDTH = "88"


@dataclass(frozen=True)
class Expected:
    """The correct diagnosis of a scene. `root` is `None` if nothing is wrong; `named` lists strings
    that the problems' evidence must contain; `possible` are findings that are true of the scene but
    not always caught."""

    root: str | None
    chain: tuple[str, ...]
    present: tuple[str, ...]
    absent: tuple[str, ...]
    exit: int
    named: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Expected:
        chain, present, absent, named, possible = (
            tuple(document.get(name, ()))
            for name in ("chain", "present", "absent", "named", "possible")
        )
        status = int(document["exit"])
        return cls(document.get("root"), chain, present, absent, status, named, possible)

    @property
    def known(self) -> frozenset[str]:
        """Findings that do not count as false alarms in this scene."""
        root = () if self.root is None else (self.root,)
        return frozenset((*root, *self.chain, *self.present, *self.possible))


@dataclass(frozen=True)
class Incident:
    """One directory of `tests/incidents`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def recording(self) -> Path:
        return self.path / RECORDING

    @cached_property
    def scene(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.path / SCENE).read_text("utf-8"))
        return document

    @property
    def expected(self) -> Expected:
        return Expected.read(self.scene["expected"])

    @property
    def key(self) -> tuple[str, str, str]:
        """Scene, kernel and hierarchy, from the directory's name."""
        scene, kernel, hierarchy = self.name.rsplit("-", 2)
        return scene, kernel, hierarchy

    @cached_property
    def replay(self) -> Replay:
        return replayed(self.recording)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.replay.window)


def incidents(root: Path = INCIDENTS) -> list[Incident]:
    """All recorded incidents, by name."""
    return [_cached(path.parent) for path in sorted(root.glob(f"*/{SCENE}"))]


@cache
def _cached(path: Path) -> Incident:
    """One object per incident, because several tests use its cached diagnosis."""
    return Incident(path)


def replayed(path: Path, span: Span | None = None) -> Replay:
    """A recording as the window that `sexton diagnose --from` judges."""
    recording = Recording(path)
    return window(recording, everything(recording) if span is None else span)


def top_cause(diagnosis: Diagnosis) -> str | None:
    """The cause a reader would take away: the root of the first chain, else the most severe
    problem; `None` if there is no problem."""
    if diagnosis.exit is not Exit.PROBLEM:
        return None
    if diagnosis.chains:
        return diagnosis.chains[0].root
    return next((finding.id for finding in diagnosis.findings if finding.is_problem), None)


def strength(diagnosis: Diagnosis) -> str:
    """Strength of the top chain; empty if there is no chain."""
    if diagnosis.exit is not Exit.PROBLEM or not diagnosis.chains:
        return ""
    return diagnosis.chains[0].strength.value


def false_alarms(diagnosis: Diagnosis, expected: Expected) -> list[str]:
    """Problems found that the scene did not cause."""
    return [
        finding.id
        for finding in diagnosis.findings
        if finding.is_problem and finding.id not in expected.known
    ]


def mismatches(diagnosis: Diagnosis, expected: Expected) -> Iterator[str]:
    """Differences from the expected diagnosis; none if it is right."""
    if int(diagnosis.exit) != expected.exit:
        yield f"exit {int(diagnosis.exit)}, expected {expected.exit}"
    top = top_cause(diagnosis)
    if top != expected.root:
        yield f"top cause {top}, expected {expected.root}"
    if len(expected.chain) > 1:
        findings = diagnosis.chains[0].findings if diagnosis.chains else ()
        if not _in_order(expected.chain, findings):
            yield f"chain {' > '.join(findings) or 'none'}, expected {' > '.join(expected.chain)}"
    known = diagnosis.by_id
    for name in expected.present:
        if _verdict(known, name) is not Verdict.PRESENT:
            yield f"{name} is {_verdict(known, name)}, expected present"
    for name in expected.absent:
        if _verdict(known, name) is Verdict.PRESENT and not predates_recording(
            known[name], diagnosis
        ):
            yield f"{name} is present: {known[name].summary}"
    text = " ".join(_finding_text(finding) for finding in diagnosis.findings if finding.is_problem)
    for name in expected.named:
        if name not in text:
            yield f"{name} is not named"


def _finding_text(finding: Finding) -> str:
    items = (f"{item.what} {item.value}" for item in finding.evidence)
    return " ".join((finding.summary, *items))


def predates_recording(finding: Finding, diagnosis: Diagnosis) -> bool:
    """Is it only a note (severity info) about the time before the recording? The kernel log goes
    back further than the scene."""
    over = finding.end is not None and finding.end < diagnosis.start
    return over and not finding.is_problem


def _verdict(known: Mapping[str, Finding], name: str) -> Verdict | None:
    return known[name].verdict if name in known else None


def _in_order(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Do all occur in this order? The chain may have further steps in between."""
    rest = iter(found)
    return all(name in rest for name in wanted)


def subject(incident: Incident) -> str:
    """Subject for `sexton why`: the one in scene.json, else the end of the top chain, else core
    0."""
    if "why" in incident.scene:
        return str(incident.scene["why"])
    diagnosis = incident.diagnosis
    last = diagnosis.chains[0].symptom if diagnosis.chains else top_cause(diagnosis)
    entities = diagnosis.by_id[last].entities if last is not None else {}
    for kind, template in _SUBJECTS:
        if entities.get(kind):
            return template.format(entities[kind][0])
    return "core 0"


def golden_outputs(incident: Incident) -> dict[str, str]:
    """Output of each command for an incident, by the name of its golden file.

    Runs the real CLI in this process, so that the output is the same at any time on any machine.
    """
    source = ("--from", f"{incident.name}/{RECORDING}")
    made = {
        "diagnosis.txt": _cli_output(incident.path.parent, "diagnose", *source),
        "diagnosis.json": _cli_output(incident.path.parent, "diagnose", *source, "--json"),
    }
    made["why.txt"] = _cli_output(incident.path.parent, "why", subject(incident), *source)
    return made


def _cli_output(directory: Path, *arguments: str) -> str:
    """Standard output of one command."""
    from sexton.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with (
        _fixed_environment(directory),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = main(arguments)
    assert status in (0, 1, 3), f"{' '.join(arguments)}: {err.getvalue()}"
    assert not err.getvalue(), err.getvalue()
    return out.getvalue()


@contextlib.contextmanager
def _fixed_environment(directory: Path) -> Iterator[None]:
    """Hide the machine, the time zone and the terminal: no CPU time, UTC, one width."""
    before = Path.cwd()
    nothing = SimpleNamespace(ru_utime=0.0, ru_stime=0.0, ru_maxrss=0)
    collecting = gc.isenabled()
    with (
        patch.dict(os.environ, {"TZ": "UTC", "COLUMNS": _WIDTH, "LC_ALL": "C.UTF-8"}),
        patch("resource.getrusage", lambda _: nothing),
    ):
        time.tzset()
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(before)
            if collecting:
                gc.enable()
    time.tzset()
