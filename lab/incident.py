"""Recorded incidents: where they lie, what is expected of them, and what Sexton says of them.

::

    tests/incidents/<scene>-<kernel>-<hierarchy>/
      scene.json        what was played, what of it was injected, and the diagnosis it must get
      recording/        what `lab.compact` left of it
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
from sexton.model.window import Window
from sexton.replay.span import Span, everything
from sexton.replay.window import Replay, window
from sexton.store.recording import Recording

INCIDENTS = Path(__file__).parents[1] / "tests" / "incidents"
SCENE = "scene.json"
RECORDING = "recording"
#: Entities that `sexton why` can be asked about, the most telling first.
_SUBJECTS = (("job", "{}"), ("nic", "{}"), ("core", "core {}"), ("unit", "{}"), ("cgroup", "{}"))
_WIDTH = "88"


@dataclass(frozen=True)
class Expected:
    """What a scene's author knows to be true: `root` is `None` where nothing is wrong, `named` are
    words that the evidence of its problems must have."""

    root: str | None
    chain: tuple[str, ...]
    present: tuple[str, ...]
    absent: tuple[str, ...]
    exit: int
    named: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Expected:
        chain, present, absent, named = (
            tuple(document.get(name, ())) for name in ("chain", "present", "absent", "named")
        )
        return cls(document.get("root"), chain, present, absent, int(document["exit"]), named)

    @property
    def known(self) -> frozenset[str]:
        """Findings that are no false alarm here."""
        root = () if self.root is None else (self.root,)
        return frozenset((*root, *self.chain, *self.present))


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
    def place(self) -> tuple[str, str, str]:
        """Scene, kernel and hierarchy, as its name has them."""
        scene, kernel, hierarchy = self.name.rsplit("-", 2)
        return scene, kernel, hierarchy

    @cached_property
    def replay(self) -> Replay:
        return replayed(self.recording)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return judged(self.replay.window)


def incidents(root: Path = INCIDENTS) -> list[Incident]:
    """All there are, by name."""
    return [_known(path.parent) for path in sorted(root.glob(f"*/{SCENE}"))]


@cache
def _known(path: Path) -> Incident:
    """Each but once: its diagnosis is asked for by many."""
    return Incident(path)


def replayed(path: Path, span: Span | None = None) -> Replay:
    """A recording as the window that `sexton diagnose --from` judges."""
    recording = Recording(path)
    return window(recording, everything(recording) if span is None else span)


def judged(found: Window) -> Diagnosis:
    """What Sexton says of it."""
    return diagnose(found)


def top_cause(diagnosis: Diagnosis) -> str | None:
    """The cause a reader would take away: the root of the first chain, else the gravest problem;
    `None` where there is none."""
    if diagnosis.exit is not Exit.PROBLEM:
        return None
    if diagnosis.chains:
        return diagnosis.chains[0].root
    return next((finding.id for finding in diagnosis.findings if finding.is_problem), None)


def strength(diagnosis: Diagnosis) -> str:
    """How sure the top chain is; empty where there is none."""
    if diagnosis.exit is not Exit.PROBLEM or not diagnosis.chains:
        return ""
    return diagnosis.chains[0].strength.value


def false_alarms(diagnosis: Diagnosis, expected: Expected) -> list[str]:
    """Problems that the scene did not make."""
    return [
        finding.id
        for finding in diagnosis.findings
        if finding.is_problem and finding.id not in expected.known
    ]


def wrongs(diagnosis: Diagnosis, expected: Expected) -> Iterator[str]:
    """What is not as the scene's author knows it to be; nothing where all is right."""
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
        if _verdict(known, name) is Verdict.PRESENT and not of_before(known[name], diagnosis):
            yield f"{name} is present: {known[name].summary}"
    said = " ".join(_words(finding) for finding in diagnosis.findings if finding.is_problem)
    for name in expected.named:
        if name not in said:
            yield f"{name} is not named"


def _words(finding: Finding) -> str:
    items = (f"{item.what} {item.value}" for item in finding.evidence)
    return " ".join((finding.summary, *items))


def of_before(finding: Finding, diagnosis: Diagnosis) -> bool:
    """Is it no more than a note, about a time before the recording began? The kernel's log reaches
    back further than a scene, and what it tells of another hour is not the scene's."""
    over = finding.end is not None and finding.end < diagnosis.start
    return over and not finding.is_problem


def _verdict(known: Mapping[str, Finding], name: str) -> Verdict | None:
    return known[name].verdict if name in known else None


def _in_order(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Do they all occur, in this order? A chain may know more steps between."""
    rest = iter(found)
    return all(name in rest for name in wanted)


def subject(incident: Incident) -> str:
    """What `sexton why` is asked about: what the scene says, else what the top chain ends with,
    else core 0."""
    if "why" in incident.scene:
        return str(incident.scene["why"])
    diagnosis = incident.diagnosis
    last = diagnosis.chains[0].symptom if diagnosis.chains else top_cause(diagnosis)
    entities = diagnosis.by_id[last].entities if last is not None else {}
    for kind, words in _SUBJECTS:
        if entities.get(kind):
            return words.format(entities[kind][0])
    return "core 0"


def surfaces(incident: Incident) -> dict[str, str]:
    """What every surface says of an incident, by the name of its golden file.

    By the real command line, in this process: the same words at any time, on any machine.
    """
    source = ("--from", f"{incident.name}/{RECORDING}")
    made = {
        "diagnosis.txt": _typed(incident.path.parent, "diagnose", *source),
        "diagnosis.json": _typed(incident.path.parent, "diagnose", *source, "--json"),
    }
    if has_why():
        made["why.txt"] = _typed(incident.path.parent, "why", subject(incident), *source)
    return made


def has_why() -> bool:
    """Does this version know the command?"""
    from sexton.cli.main import VERBS

    return "why" in VERBS


def _typed(directory: Path, *arguments: str) -> str:
    """The output of one command, with the status it ended with."""
    from sexton.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with _anywhere(directory), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    assert status in (0, 1, 3), f"{' '.join(arguments)}: {err.getvalue()}"
    assert not err.getvalue(), err.getvalue()
    return out.getvalue()


@contextlib.contextmanager
def _anywhere(directory: Path) -> Iterator[None]:
    """Nothing of the machine, the hour or the terminal shows: no CPU time, UTC, one width."""
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
