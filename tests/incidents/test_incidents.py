"""Every recorded incident against what its scene's author knows, and against its reviewed words.

`python -m lab.golden --update` rewrites the words for review; what a scene expects is changed by
hand alone. `make golden` shows all differences at once.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lab.accuracy import PAGE, hidden, left_out, page
from lab.compact import MAX_BYTES, MAX_BYTES_ALL, incident_name, size_of
from lab.incident import (
    INCIDENTS,
    Incident,
    false_alarms,
    golden_outputs,
    incidents,
    mismatches,
    top_cause,
)
from sexton.store.verify import verify

EVERY = incidents()
#: What a machine must not leave in a committed file.
PRIVATE = re.compile(rb"/wor[k]/|/home/(?!user)|/Users/|[0-9a-f]{2}(:[0-9a-f]{2}){5}")

#: Its unit had no cgroup with CPU time, and processes were read too rarely: nobody is named.
NAMELESS = "cpu_starved-5.10-v1"

each_incident = pytest.mark.parametrize("incident", EVERY, ids=lambda incident: incident.name)


@each_incident
def test_the_top_cause_is_the_one_that_was_made_and_what_is_not_there_is_not_found(
    incident: Incident,
):
    assert [*mismatches(incident.diagnosis, incident.expected)] == []
    assert top_cause(incident.diagnosis) == incident.expected.root


@each_incident
def test_nothing_is_alarmed_about_that_the_scene_did_not_make(incident: Incident):
    assert false_alarms(incident.diagnosis, incident.expected) == []


@each_incident
def test_the_scene_expects_all_that_its_recording_shows(incident: Incident):
    """An expectation that leaves out what is there makes it easy to be right."""
    expected = incident.expected
    chains = [chain.findings for chain in incident.diagnosis.chains[:1]]
    assert chains in ([], [expected.chain])
    problems = {finding.id for finding in incident.diagnosis.findings if finding.is_problem}
    assert problems <= {*expected.present, *expected.chain}
    assert bool(expected.named) == (expected.exit == 1) or incident.name == NAMELESS


@each_incident
def test_every_surface_says_what_was_reviewed(incident: Incident):
    for name, now in golden_outputs(incident).items():
        wanted = (incident.path / name).read_text("utf-8")
        text = "\n".join(
            difflib.unified_diff(wanted.splitlines(), now.splitlines(), "reviewed", "now", "", "")
        )
        assert not text, f"{incident.name}/{name}: if this is better, make golden-update\n{text}"


@each_incident
def test_every_surface_tells_the_same_verdict(incident: Incident):
    document = json.loads((incident.path / "diagnosis.json").read_text("utf-8"))
    text = (incident.path / "diagnosis.txt").read_text("utf-8")
    words = {0: "HEALTHY", 1: "SICK", 3: "CANNOT TELL"}
    assert document["exit"] == incident.expected.exit
    assert text.startswith(words[incident.expected.exit])
    assert [chain["root"] for chain in document["chains"]][:1] == [
        chain.root for chain in incident.diagnosis.chains[:1]
    ]


@pytest.mark.whole
@each_incident
def test_without_one_source_the_verdict_is_weaker_and_never_another(incident: Incident):
    became, overreached = hidden(incident)
    assert overreached == ()
    assert became.total() > 0


@each_incident
def test_a_recording_is_whole_small_and_called_as_it_is(incident: Incident):
    assert verify(incident.recording).troubles == []
    assert size_of(incident.recording) <= MAX_BYTES
    assert incident.name == incident_name(incident.scene)
    assert {path.name for path in incident.recording.iterdir()} == {"segments"}


@each_incident
def test_a_recording_tells_nothing_of_the_machine_it_was_made_on(incident: Incident):
    node = incident.replay.window.node
    assert node is not None
    assert (node.hostname, node.machine, node.vendor) == ("node", None, None)
    for path in (file for file in incident.path.rglob("*") if file.is_file()):
        found = PRIVATE.search(_texts(path))
        assert found is None, f"{path.name}: {found}"


def _texts(path: Path) -> bytes:
    """What a file says; of a table its texts, since Parquet compresses them."""
    if path.suffix != ".parquet":
        return path.read_bytes()
    table = pq.read_table(path)
    names = [field.name for field in table.schema if "string" in str(field.type)]
    return str(table.select(names).to_pylist()).encode()


def test_there_are_sixty_recordings_and_twenty_of_them_are_healthy():
    """What docs/accuracy.md says is about at least so many."""
    assert len(EVERY) >= 60
    assert sum(item.expected.exit == 0 for item in EVERY) >= 20


def test_all_recordings_together_are_small():
    assert sum(size_of(item.recording) for item in EVERY) <= MAX_BYTES_ALL


def test_a_golden_file_lies_beside_every_recording_and_none_without_one():
    names = {"scene.json", "recording", "diagnosis.txt", "diagnosis.json"}
    names |= {"why.txt"}
    for path in (
        path for path in INCIDENTS.iterdir() if path.is_dir() and path.name[0] not in "._"
    ):
        assert {file.name for file in path.iterdir()} >= names, path.name


def test_what_was_left_out_is_not_taken_in_as_well_and_says_why():
    assert not {name["name"] for name in left_out()} & {item.name for item in EVERY}
    assert all(name["why"] and name["cause"] in ("seen", "supposed") for name in left_out())


@pytest.mark.whole
def test_the_page_on_accuracy_is_what_the_recordings_give():
    now = page(EVERY)
    before = Path(PAGE).read_text("utf-8")
    text = "\n".join(
        difflib.unified_diff(before.splitlines(), now.splitlines(), "page", "now", "", "")
    )
    assert not text, f"python -m lab.accuracy --update\n{text}"
