"""Every recorded incident as if nothing had been read for 15 s: no false alarm, no all-clear."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cut import without_readings
from lab.incident import Incident, false_alarms, incidents
from sexton.detect.registry import all_detectors
from sexton.explain.diagnosis import diagnose
from sexton.model.finding import Verdict

LONG_S = 15.0
EVERY = incidents()


@pytest.mark.whole
@pytest.mark.parametrize(
    "incident", [one for one in EVERY if one.expected.exit == 0], ids=lambda incident: incident.name
)
def test_a_healthy_node_is_healthy_if_nothing_was_read_for_15_s(incident: Incident):
    """A suspended node, a stopped recorder: its counters are those of a healthy node."""
    seen = incident.replay.window
    for part in (0.2, 0.35, 0.5, 0.65, 0.8):
        middle = seen.start_mono + part * seen.seconds
        found = diagnose(without_readings(seen, middle - LONG_S / 2, middle + LONG_S / 2))
        assert false_alarms(found, incident.expected) == []
        assert found.exit == incident.diagnosis.exit


@pytest.mark.whole
@pytest.mark.parametrize(
    "incident", [one for one in EVERY if one.expected.exit == 1], ids=lambda incident: incident.name
)
def test_what_happened_while_nothing_was_read_is_not_ruled_out(incident: Incident):
    seen = incident.replay.window
    problems = {one.id for one in incident.diagnosis.findings if one.is_problem}
    for start in _worst(incident):
        cut = without_readings(seen, start, start + LONG_S)
        found = diagnose(cut)
        assert false_alarms(found, incident.expected) == []
        known = found.by_id
        for check in all_detectors():
            if check.id not in problems or known[check.id].verdict is not Verdict.ABSENT:
                continue
            assert check.ruled_out is None or not check.ruled_out(cut), known[check.id].summary
            assert known[check.id].missing, known[check.id].summary


def _worst(incident: Incident) -> Iterator[float]:
    """Where each problem began, and its middle."""
    seen = incident.replay.window
    for finding in incident.diagnosis.findings:
        if finding.is_problem and finding.start is not None and finding.end is not None:
            yield seen.mono(finding.start) - 1
            yield seen.mono((finding.start + finding.end) / 2) - LONG_S / 2


def test_what_the_recorder_could_not_read_of_a_node_without_memory_is_told_by_its_counters():
    (incident,) = [one for one in EVERY if one.name == "oom_node-6.1-v2"]
    known = incident.diagnosis.by_id
    pressed, held = known["memory_pressure"], known["saturated_core"]
    assert pressed.evidence[1].number == pytest.approx(8.7, abs=0.1)
    assert held.entities["core"] == ("0",)
    assert any("core 1 spent 88 % of it" in lack.what for lack in held.missing)
    said = " ".join(incident.diagnosis.against)
    assert "CPU starvation" not in said
    assert "memory pressure" not in said
    assert incident.diagnosis.chains[0].findings == ("memory_pressure", "oom_kills")
