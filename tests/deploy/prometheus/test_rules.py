"""The shipped rules and alerts, as promtool reads and runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.peers import peer
from tests.deploy.prometheus.known import LABELS, TARGET, metrics, queries, selectors

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
CASES = Path(__file__).parent / "alerts"
README = (FOLDER / "README.md").read_text()
PAGES = {page.stem for page in (ROOT / "docs" / "detectors").glob("*.md")}


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = [rule for rule in rules("sexton-alerts.yml") if "alert" in rule]
RECORDED = [rule for rule in rules("sexton-alerts.yml") if "record" in rule]
ALL = ALERTS + RECORDED + rules("sexton-rules.yml")
NAMES = [alert["alert"] for alert in ALERTS]
FLEET = {"SextonNoTargets", "SextonFleetUnknown", "SextonVersionSkew"}


def promtool(*arguments: str) -> str:
    program = peer("promtool", package="prometheus")
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_promtool_finds_nothing_wrong():
    told = promtool(
        "check", "rules", *(str(FOLDER / f"sexton-{x}.yml") for x in ("rules", "alerts"))
    )
    assert f"{len(ALL) - len(rules('sexton-rules.yml'))} rules found" in told


def test_scrape_jobs_are_valid(tmp_path: Path):
    promtool("check", "config", "--syntax-only", str(FOLDER / "scrape.yml"))
    # Debian builds Prometheus without Kubernetes: its discovery is checked as one from files.
    text = (FOLDER / "scrape-kubernetes.yml").read_text()
    discovery = "kubernetes_sd_configs:\n      - role: node"
    assert discovery in text
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace(discovery, "file_sd_configs:\n      - files: [nodes.yml]"))
    promtool("check", "config", "--syntax-only", str(config))


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_only_when_it_should(name: str):
    promtool("test", "rules", str(CASES / f"{name}.yml"))


def test_recorded_numbers_are_right():
    promtool("test", "rules", str(CASES.parent / "recording.yml"))


@pytest.mark.parametrize("name", NAMES)
def test_its_cases_are_complete(name: str):
    """It fires, it does not fire on what looks like it, and it ends."""
    cases = yaml.safe_load((CASES / f"{name}.yml").read_text())
    assert cases["rule_files"] == ["../../../../deploy/prometheus/sexton-alerts.yml"]
    kinds: dict[str, list[list[bool]]] = {"fires": [], "does not fire": [], "resolves": []}
    for case in cases["tests"]:
        tests = case["alert_rule_test"]
        assert {test["alertname"] for test in tests} == {name}
        kinds[case["name"].split(":")[0]].append([bool(test["exp_alerts"]) for test in tests])
    assert all(kinds.values()), "one of the three kinds has no case"
    assert all(any(fired) for fired in kinds["fires"])
    assert not any(any(fired) for fired in kinds["does not fire"])
    assert all(fired[0] and not fired[-1] for fired in kinds["resolves"])


def test_every_file_of_cases_has_its_alert():
    assert sorted(path.stem for path in CASES.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_says_what_is_needed_at_night(alert: dict[str, Any]):
    name, notes = alert["alert"], alert["annotations"]
    assert re.fullmatch(r"Sexton[A-Z]\w+", name)
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert "for" in alert
    needed = {"summary", "description", "command", "runbook_url"}
    needed |= set() if name in FLEET else {"explorer"}
    assert needed <= set(notes)
    assert all(text.strip() for text in notes.values())
    runbook = notes["runbook_url"]
    ours = r"http://\{\{ \$labels\.instance \}\}/runbooks/\{\{ \$labels\.(detector|root) \}\}"
    if not re.fullmatch(ours, runbook):
        # Its node may not answer: Prometheus' own page of the alert says what to do.
        assert runbook == f"{{{{ $externalURL }}}}/alerts?search={name}"
    assert re.search(rf"^### {name}$", README, re.MULTILINE), "README.md does not say what it is"


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_the_readme_has_its_severity_and_its_time(alert: dict[str, Any]):
    """In the table as in the rule."""
    cell = alert["labels"]["severity"], alert["for"]
    row = re.search(rf"^\| \[{alert['alert']}\]\(#\w+\) \| (\w+) \| (\w+) \|", README, re.MULTILINE)
    assert row, "not in the table"
    assert (row[1], row[2]) == cell


def test_every_metric_is_served_or_recorded():
    recorded = {rule["record"] for rule in ALL if "record" in rule}
    for rule in ALL:
        asked = [rule["expr"]]
        for text in rule.get("annotations", {}).values():
            assert len(queries(text)) == text.count("query (")
            asked += queries(text)
        for expression in asked:
            assert metrics(expression) <= {*LABELS, *recorded}, expression
            assert metrics(expression), expression
            for name, labels in selectors(expression):
                assert labels <= LABELS.get(name, labels) | TARGET, f"{name} has no such label"


@pytest.mark.parametrize("cases", [*sorted(CASES.iterdir()), CASES.parent / "recording.yml"])
def test_cases_are_made_of_series_that_exist(cases: Path):
    for case in yaml.safe_load(cases.read_text())["tests"]:
        for series in case["input_series"]:
            ((name, labels),) = selectors(series["series"])
            assert labels - TARGET == LABELS[name], series["series"]


def test_alerts_need_no_other_file():
    """Who copies only the alerts must not get alerts that stay silent."""
    elsewhere = {rule["record"] for rule in rules("sexton-rules.yml")}
    for rule in ALERTS + RECORDED:
        texts = [rule["expr"], *rule.get("annotations", {}).values()]
        assert not [name for name in elsewhere if any(name in text for text in texts)]


def test_every_detector_named_has_a_page():
    named = set()
    for rule in ALL:
        for group in re.findall(r'detector=\\?!?~?"([^"]+)"', rule["expr"].replace("!~", "=")):
            named |= set(group.split("|"))
    assert named >= {"zombie_memcgs", "saturated_core", "nic_resets", "crash_looping_unit"}
    assert named <= PAGES


def test_every_critical_problem_has_one_alert():
    """Detectors with alerts of their own are those that SextonOtherCritical leaves out."""
    own = set()
    for alert in ALERTS:
        matcher = re.search(r'sexton_problem:severity\{detector="(\w+)"', alert["expr"])
        own |= {matcher[1]} if matcher else set()
    (other,) = (alert for alert in ALERTS if alert["alert"] == "SextonOtherCritical")
    left_out = re.search(r'detector!~"([^"]+)"', other["expr"])
    assert left_out
    assert set(left_out[1].split("|")) == own
