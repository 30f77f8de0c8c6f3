"""The same answer as text, JSON, SARIF and JUnit, each read back by somebody else's reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from sexton.model.audit import Need
from sexton.prevent.gate import Gate
from sexton.reports.json.gate_ci import gate_junit, gate_sarif
from sexton.reports.text.gate import gate_json, gate_text
from tests.prevent.gate.making import audit_of, census, gate_of, image, place, subject, window
from tests.prevent.gate.schemas import SARIF, errors, schema

WAIVED = """
[[waivers]]
rule = "restart_without_backoff"
subject = "ecs.*"
owner = "batch@example.com"
expires = 2027-01-31
[[waivers]]
rule = "crash_loops"
subject = "x"
owner = "y"
expires = 2026-01-31
"""
HOSTILE = "\x1b[2J<script>&\"']]>\u202e\udcff\x00.service"


@pytest.fixture
def many(tmp_path: Path) -> Gate:
    """Failed, waived, expired, unknown, warned, not applicable and off in one."""
    root = image(tmp_path / "many")
    config = root / "var/lib/kubelet/config.yaml"
    config.write_text(config.read_text() + "readOnlyPort: 10255\n")
    found = audit_of(subject("ecs.service", Need.UNNEEDED, 8640.0), subject(HOSTILE, Need.UNNEEDED))
    seen = window([[census(None, 1, "subtree", "this is a cgroup namespace")]])
    where = place(root, seen, found)
    return gate_of(where, "[rules.crash_loops]\nenabled = false\n" + WAIVED)


@pytest.fixture
def clean(tmp_path: Path) -> Gate:
    return gate_of(place(image(tmp_path / "clean")))


def outcomes(gate: Gate) -> dict[str, str]:
    return {result.rule: result.outcome.value for result in gate.results}


def test_the_example_has_every_outcome(many: Gate, clean: Gate) -> None:
    assert outcomes(many) == {
        "memcg_count": "unknown",
        "dying_memcgs": "unknown",
        "crash_loops": "off",
        "unneeded_units": "fail",
        "restart_without_backoff": "pass",
        "cgroup_version": "pass",
        "kubelet_config": "warn",
        "waivers": "fail",
    }
    assert (many.exit, clean.exit) == (1, 0)


def test_sarif_is_valid_by_its_own_schema(many: Gate, clean: Gate) -> None:
    for gate in (many, clean):
        assert errors(json.loads(json.dumps(gate_sarif(gate))), SARIF) == []


def test_the_schema_would_have_told(many: Gate) -> None:
    """A check that cannot fail is none."""
    assert len(schema(SARIF)["definitions"]) > 40
    wrong = gate_sarif(many)
    wrong["runs"][0]["results"][0]["level"] = "fatal"
    wrong["runs"][0]["tool"]["driver"].pop("name")
    assert len(errors(wrong, SARIF)) >= 2


def test_sarif_points_at_rules_by_name_and_number(many: Gate) -> None:
    run = gate_sarif(many)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for notice in run["invocations"][0]["toolExecutionNotifications"]:
        rule = notice["associatedRule"]
        assert rules[rule["index"]]["id"] == rule["id"]
    assert run["invocations"][0]["exitCode"] == 1


def test_sarif_tells_what_was_not_checked_as_a_failure_where_it_counts(many: Gate) -> None:
    results = gate_sarif(many)["runs"][0]["results"]
    unknown = [result for result in results if result["ruleId"] == "memcg_count"]
    assert [result["level"] for result in unknown] == ["error"]
    assert "could not be checked: this is a cgroup namespace" in unknown[0]["message"]["text"]


def test_sarif_has_no_result_where_all_is_well(clean: Gate) -> None:
    run = gate_sarif(clean)["runs"][0]
    assert run["results"] == []
    notices = run["invocations"][0]["toolExecutionNotifications"]
    assert any("memcg_count was not checked" in notice["message"]["text"] for notice in notices)


def test_a_waived_violation_is_suppressed_with_its_owner(many: Gate) -> None:
    results = gate_sarif(many)["runs"][0]["results"]
    (waived,) = [result for result in results if result["ruleId"] == "restart_without_backoff"]
    assert waived["suppressions"][0]["status"] == "accepted"
    assert "batch@example.com until 2027-01-31" in waived["suppressions"][0]["justification"]


def test_warnings_are_warnings_and_errors_errors(many: Gate) -> None:
    results = gate_sarif(many)["runs"][0]["results"]
    levels = {(result["ruleId"], result["level"]) for result in results}
    assert ("kubelet_config", "warning") in levels
    assert ("unneeded_units", "error") in levels


def test_fingerprints_are_the_same_tomorrow_and_differ_by_subject(tmp_path: Path) -> None:
    def prints(total: int) -> list[str]:
        seen = window([[census(total, 240)]])
        results = gate_sarif(gate_of(place(tmp_path, seen)))["runs"][0]["results"]
        counted = [result for result in results if result["ruleId"].endswith(("_count", "_memcgs"))]
        return [result["partialFingerprints"]["sextonGate/v1"] for result in counted]

    assert prints(5000) == prints(68_680)
    assert len(set(prints(5000))) == 2  # both counts are broken, each its own alert


def test_every_sarif_location_has_a_relative_uri_and_a_line(many: Gate) -> None:
    for result in gate_sarif(many)["runs"][0]["results"]:
        place_of = result["locations"][0]["physicalLocation"]
        assert re.fullmatch(r"[A-Za-z0-9%._~/@:-]+", place_of["artifactLocation"]["uri"])
        assert not place_of["artifactLocation"]["uri"].startswith("/")
        assert place_of["region"]["startLine"] >= 1


def test_junit_is_read_by_a_common_reader(many: Gate) -> None:
    (suite,) = JUnitXml.fromstring(gate_junit(many).encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (8, 2, 2, 1)
    kinds = {case.name: [type(result) for result in case.result] for case in suite}
    assert kinds == {
        "memcg_count": [Error],
        "dying_memcgs": [Error],
        "crash_loops": [Skipped],
        "unneeded_units": [Failure],
        "restart_without_backoff": [],
        "cgroup_version": [],
        "kubelet_config": [],
        "waivers": [Failure],
    }
    cases = {case.name: case for case in suite}
    assert {case.classname for case in suite} == {"sexton.gate"}
    assert "ecs.service" in cases["unneeded_units"].result[0].text
    assert "batch@example.com" in cases["restart_without_backoff"].system_out


def test_junit_of_a_clean_image_has_no_failure(clean: Gate) -> None:
    (suite,) = JUnitXml.fromstring(gate_junit(clean).encode())
    assert (suite.failures, suite.errors) == (0, 0)


def test_junit_counts_are_what_is_in_it(many: Gate) -> None:
    root = ElementTree.fromstring(gate_junit(many))
    suite = root[0]
    assert root.get("tests") == suite.get("tests") == str(len(suite.findall("testcase")))
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.get(name) == str(len(suite.findall(f"testcase/{tag}")))


def test_json_says_all_of_it(many: Gate) -> None:
    document = json.loads(json.dumps(gate_json(many)))
    assert (document["schema"], document["exit"], document["passed"]) == ("sexton.gate/1", 1, False)
    rules = {rule["id"]: rule for rule in document["rules"]}
    assert rules["memcg_count"]["missing"][0]["what"] == "this is a cgroup namespace"
    assert rules["restart_without_backoff"]["violations"][0]["waived_by"]["owner"]
    assert [waiver["state"] for waiver in document["waivers"]] == ["used", "expired"]


@pytest.mark.parametrize("width", [60, 88, 110])
def test_text_puts_the_verdict_first_and_keeps_its_width(many: Gate, width: int) -> None:
    text = gate_text(many, width)
    lines = text.splitlines()
    assert lines[0].startswith("FAILED  ")
    assert lines[-1] == " exit 1: gate failed"
    assert text.index("FAIL  ") < text.index("WARN  ") < text.index("PASS  ")
    commands = ("sudo ", "systemctl", "sexton gate", "journalctl")
    long = [line for line in lines if len(line) > width and not line.strip().startswith(commands)]
    assert long == []


def test_text_of_a_clean_image_is_short_and_says_what_was_not_checked(clean: Gate) -> None:
    text = gate_text(clean)
    assert text.startswith("PASSED  ")
    assert "memcg_count, dying_memcgs, crash_loops: nothing runs in an image" in text
    assert len(text.splitlines()) <= 15


def test_hostile_names_reach_no_report_raw(many: Gate) -> None:
    for text in (
        gate_text(many, colour=False),
        json.dumps(gate_json(many), ensure_ascii=False),
        json.dumps(gate_sarif(many), ensure_ascii=False),
        gate_junit(many),
    ):
        raw = {item for item in text if item != "\n" and (ord(item) < 32 or item in "\x7f\u202e")}
        assert raw == set()
        text.encode("utf-8")
    assert "<script>" not in gate_junit(many)


def test_colour_is_on_the_verdict_alone(many: Gate) -> None:
    assert gate_text(many, colour=True).count("\x1b") == 2
