"""The tour: made from the recording's own diagnosis, and true to it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from sexton.errors import CommandError
from sexton.explorer.server import tour as module
from sexton.explorer.server.tour import INCIDENT, Scene, read_cure, read_injected, scene_of, tour
from sexton.explorer.tiles.view import View
from sexton.model.diagnosis import Diagnosis
from tests.support.cli import SEXTON, sexton

INCIDENTS = Path(__file__).parents[2] / "incidents"
MOST_SHIPPED = 3_000_000


def scene_at(name: str) -> Scene:
    return scene_of(View.open(INCIDENTS / name / "recording"))


@pytest.fixture(scope="module")
def shipped() -> Scene:
    return scene_of(View.open(INCIDENT / "recording"), read_injected())


@pytest.fixture(scope="module")
def steps(shipped: Scene) -> list[dict]:
    return tour(shipped, read_cure())["steps"]


def test_it_begins_with_the_average_alone_a_point_a_minute(shipped: Scene, steps: list[dict]):
    first = steps[0]
    assert first["id"] == "average"
    assert first["view"]["open"] == ["average"]
    assert first["view"]["grain"] == module.MINUTE_LEVEL
    assert (first["view"]["from"], first["view"]["to"]) == (
        shipped.diagnosis.start,
        shipped.diagnosis.end,
    )


def test_the_shipped_average_is_flat_and_a_core_is_not(shipped: Scene, steps: list[dict]):
    minutes = [minute for minute in shipped.minutes if minute is not None]
    assert len(minutes) >= 2
    assert max(minutes) - min(minutes) < 10
    assert f"between {min(minutes):.0f} and {max(minutes):.0f} %" in steps[0]["text"][1]
    held = shipped.diagnosis.by_id["saturated_core"]
    assert held.end - held.start > 5


def test_the_second_step_unfolds_the_cores_over_the_same_time(steps: list[dict]):
    first, second = steps[0]["view"], steps[1]["view"]
    assert second["open"] == ["average", "cores"]
    assert second["grain"] is None
    assert (first["from"], first["to"]) == (second["from"], second["to"])
    assert "core 1 is in the kernel" in steps[1]["text"][0]


def test_it_walks_the_best_chain_back_link_by_link(shipped: Scene, steps: list[dict]):
    chain = shipped.diagnosis.chains[0]
    walked = [step["id"] for step in steps[2:-1]]
    assert walked == list(reversed(chain.findings))
    assert [step["view"]["link"] for step in steps[2:-1]] == [
        chain.findings.index(name) for name in walked
    ]
    for step, link in zip(steps[2:-2], reversed(chain.links), strict=True):
        assert link.sentence in step["text"][1]
        assert link.strength.value in step["text"][1]


def test_every_step_looks_at_the_time_its_finding_names(shipped: Scene, steps: list[dict]):
    for step in steps[2:-1]:
        finding = shipped.diagnosis.by_id[step["id"]]
        chosen = step["view"]["select"]
        if chosen is not None:
            assert chosen[0] == finding.start
            assert step["view"]["from"] < finding.start < step["view"]["to"]
        assert step["view"]["from"] >= shipped.diagnosis.start
        assert step["view"]["to"] <= shipped.diagnosis.end


def test_every_step_opens_lanes_that_the_recording_has(shipped: Scene, steps: list[dict]):
    for step in steps:
        assert step["view"]["open"], step["id"]
        assert set(step["view"]["open"]) <= set(shipped.lanes)


def test_a_step_shows_its_cause_on_the_same_axis(shipped: Scene, steps: list[dict]):
    chain = shipped.diagnosis.chains[0].findings
    shown = 0
    for step in steps[2:-2]:
        cause = shipped.diagnosis.by_id[chain[step["view"]["link"] - 1]]
        if step["view"]["select"] is not None and cause.end - cause.start < 60:
            assert step["view"]["from"] < cause.start <= cause.end < step["view"]["to"]
            shown += 1
    assert shown == 4


def test_no_step_opens_a_lane_that_stays_at_nothing(shipped: Scene, steps: list[dict]):
    assert set(shipped.quiet) == {"nics", "nic_faults"}
    assert {lane for step in steps for lane in step["view"]["open"]}.isdisjoint(shipped.quiet)
    assert set(shipped.quiet) <= set(tour(shipped)["after"]["open"])


def test_a_fact_says_nothing_that_the_sentences_said(steps: list[dict]):
    for step in steps[1:-1]:
        said = " ".join(step["text"])
        assert [fact for fact in step["facts"] if fact["here"] in said] == []
        assert len(step["facts"]) <= 2


def test_the_held_core_is_the_one_that_is_looked_into(shipped: Scene, steps: list[dict]):
    (looked,) = [step["view"] for step in steps if step["view"]["flame"]]
    assert looked["core"] == shipped.diagnosis.by_id["saturated_core"].entities["core"][0]
    assert [step["id"] for step in steps if step["view"]["core"]] == ["saturated_core"]


def test_every_step_says_the_same_length_of_the_stall(steps: list[dict]):
    said = [
        re.findall(r"(?:without a break|held in the kernel) for ([\d.]+ s)", " ".join(step["text"]))
        for step in steps
        if step["id"] in ("unfolded", "saturated_core")
    ]
    assert len(said) == 2
    assert said[0] == said[1]
    assert len(said[0]) == 1


def test_a_stall_is_as_long_as_its_finding_and_of_unknown_length_if_that_has_no_end(shipped: Scene):
    known = shipped.diagnosis
    held = known.by_id["saturated_core"]
    assert held.start is not None
    for end, said in ((held.start + 7.3, "without a break for 7.3 s."), (None, "without a break.")):
        changed = replace(held, end=end, evidence=())
        findings = tuple(changed if each is held else each for each in known.findings)
        diagnosis: Diagnosis = replace(known, findings=findings)
        made = tour(shipped._replace(diagnosis=diagnosis))
        (step,) = (step for step in made["steps"] if step["id"] == "unfolded")
        assert said in step["text"][0]


def test_the_last_step_shows_the_numbers_of_a_cure_and_where_they_are_from(steps: list[dict]):
    cure = read_cure()
    last = steps[-1]
    assert last["id"] == "cure"
    said = " ".join(last["text"])
    for name in ("kernel", "where", "note"):
        assert cure[name] in said
    for run in cure["runs"]:
        assert run["when"] in said
        assert run["how"].startswith("python -m lab.vm run")
    assert last["columns"] == ["", "before", "after", "both"]
    for fact, row in zip(last["facts"], cure["rows"], strict=True):
        assert fact["what"] == row["what"]
        assert 0 <= row["run"] < len(cure["runs"])
        if isinstance(row["before"], str):
            assert (fact["normal"], fact["here"]) == (row["before"], row["after"])
            assert "numbers" not in fact
        elif row["unit"] == "":
            shown = (fact["normal"].replace(",", ""), fact["here"].replace(",", ""))
            assert tuple(map(float, shown)) == (row["before"], row["after"])


def test_another_kernels_incident_gets_a_tour_of_its_own_times_and_names():
    scene = scene_at("whole_chain-6.18-v1")
    made = tour(scene)
    told = json.dumps(made)
    assert "lab-walker[30625]" in told
    assert "core 0" in told
    assert made["steps"][-1]["id"] == "cgroup_churn"
    assert "cure" not in [step["id"] for step in made["steps"]]
    for step in made["steps"]:
        assert scene.diagnosis.start <= step["view"]["from"] < step["view"]["to"]


def test_a_recording_without_a_chain_has_no_tour():
    scene = scene_at("idle-6.1-v2")
    with pytest.raises(CommandError, match="has none"):
        tour(scene)


def test_a_finding_that_is_new_to_the_tour_is_walked_by_its_own_name(shipped: Scene):
    known = shipped.diagnosis
    chain = known.chains[0]
    links = (replace(chain.links[0], cause="brand_new"), *chain.links[1:])
    root = replace(known.by_id[chain.root], id="brand_new")
    changed: Diagnosis = replace(
        known, findings=(*known.findings, root), chains=(replace(chain, links=links),)
    )
    made = tour(shipped._replace(diagnosis=changed))
    assert made["steps"][-1]["title"] == "Brand new: the cause"


def test_no_time_core_unit_or_kernel_is_written_into_the_tour(shipped: Scene):
    """Only what is not a docstring counts: the code's own constants."""
    tree = ast.parse(Path(module.__file__).read_text())
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    words = " ".join(texts)
    entities = {
        name
        for finding in shipped.diagnosis.findings
        for kind in ("unit", "task", "nic", "queue", "cgroup")
        for name in finding.entities.get(kind, ())
    }
    assert entities
    assert not [name for name in entities if name in words]
    assert not re.search(r"\d\d:\d\d", words)
    assert shipped.diagnosis.node.kernel not in words


def test_it_is_plain_json_and_takes_two_minutes_to_read(steps: list[dict]):
    json.dumps(steps, allow_nan=False)
    lines = [" ".join([step["title"], *step["text"], step["next"]]) for step in steps]
    assert sum(len(line.split()) for line in lines) / 220 < 2.0  # so many words a minute are read
    assert 8 <= len(steps) <= 12


def test_the_shipped_incident_is_the_one_that_is_tested_and_small():
    ours, tested = INCIDENT / "recording", INCIDENTS / "whole_chain-6.1-v2" / "recording"
    mine = {path.relative_to(ours): path for path in ours.rglob("*") if path.is_file()}
    theirs = {path.relative_to(tested): path for path in tested.rglob("*") if path.is_file()}
    assert mine.keys() == theirs.keys()
    assert all(path.read_bytes() == theirs[name].read_bytes() for name, path in mine.items())
    assert sum(path.stat().st_size for path in INCIDENT.rglob("*")) < MOST_SHIPPED


def test_a_step_that_rests_on_injected_lines_says_so(steps: list[dict]):
    told = [step["id"] for step in steps if "were injected" in " ".join(step["text"])]
    assert told == ["nic_resets", "starved_napi"]


def test_its_readme_names_everything_that_was_injected():
    text = " ".join((INCIDENT / "README.md").read_text().split())
    scene = json.loads((INCIDENT / "scene.json").read_text())
    assert scene["kernel"] in text
    assert len(scene["injected"]) == 4
    assert "the four lines of the ENA driver" in text
    assert "real-time priority" in scene["substitutes"][0]
    assert "real-time priority" in text
    assert any("750 zombies were left before" in moment["what"] for moment in scene["moments"])
    assert "750 of the dead cgroups were left before" in text


def test_the_command_serves_the_tour_to_this_machine_and_ends_on_a_signal():
    command = [*SEXTON, "demo"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        try:
            address = server.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address), server.stderr.read()
            with urlopen(f"{address}api/tour", timeout=60) as answer:
                served = json.load(answer)
            with urlopen(f"{address}api/recording", timeout=60) as answer:
                assert json.load(answer)["tour"] is True
        finally:
            server.terminate()
        assert server.wait(60) == 0
        said = server.stderr.read()
    assert served["steps"][0]["id"] == "average"
    assert str(INCIDENT / "README.md") in said


def test_the_same_steps_are_there_as_text(shipped: Scene, steps: list[dict]):
    ended = sexton("demo", "--tour", env={"COLUMNS": "90"}, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert max(map(len, ended.stdout.splitlines())) <= 90
    said = " ".join(ended.stdout.split())
    for step in steps:
        assert f"{step['number']} {step['title']}" in said
        assert all(" ".join(text.split()) in said for text in step["text"])
        for fact in step["facts"]:
            assert fact["what"] in said
            assert fact["here"] in said
    assert "300 before, 32 after" in said
    assert "Press" not in said
    assert said.endswith("sexton serve DIR.")


def test_a_port_that_is_none_is_one_line():
    ran = sexton("demo", "--port", "99999", text=True)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
