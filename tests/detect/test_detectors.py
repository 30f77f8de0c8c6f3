"""Every fixture of every detector, each against what it expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.detect.registry import all_detectors
from sexton.model.finding import Finding, Verdict
from tests.support.fixtures import FIXTURES
from tests.support.windows import load_window

DETECTORS = {detector.id: detector for detector in all_detectors()}
CASES = sorted((FIXTURES / "detectors").glob("*/*.json"))
_KNOWN = {"verdict", "severity", "summary_has", "summary_lacks", "entities"}
_KNOWN |= {"missing_has", "evidence_has", "start", "end"}


def _name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", CASES, ids=_name)
def test_a_fixture_gives_the_finding_it_expects(path: Path):
    window, expect = load_window(path)
    assert expect.keys() <= _KNOWN, f"{path.name} expects something that is not checked"
    finding = DETECTORS[path.parent.name].run(window)
    assert finding.id == path.parent.name
    assert finding.verdict == expect["verdict"], finding.summary
    if "severity" in expect:
        assert finding.severity == expect["severity"], finding.summary
    for words in expect.get("summary_has", []):
        assert words in finding.summary
    for words in expect.get("summary_lacks", []):
        assert words not in finding.summary
    for kind, names in expect.get("entities", {}).items():
        assert list(finding.entities.get(kind, ())) == names, kind
    lacking = " | ".join(f"{need.what} {need.grant}" for need in finding.missing)
    for words in expect.get("missing_has", []):
        assert words in lacking
    text = " | ".join(f"{evidence.what}: {evidence.value}" for evidence in finding.evidence)
    for words in expect.get("evidence_has", []):
        assert words in text
    for name in ("start", "end"):
        if name in expect:
            assert getattr(finding, name) == pytest.approx(expect[name])
    _reads_well(finding)


def _reads_well(finding: Finding) -> None:
    assert finding.summary
    assert "\n" not in finding.summary
    assert not finding.summary.endswith("."), finding.summary
    if finding.verdict in (Verdict.PRESENT, Verdict.ABSENT):
        assert finding.evidence, "a verdict without a number it rests on"
    for evidence in finding.evidence:
        assert evidence.wrong_if, f"{evidence.what}: what would make it misleading?"
        assert all(
            (evidence.what, evidence.value, evidence.normal, evidence.unit, evidence.source)
        ), evidence
    if finding.verdict is Verdict.UNKNOWN:
        assert finding.missing, "unknown, without what is missing"
