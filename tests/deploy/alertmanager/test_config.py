"""The shipped configuration, as amtool reads it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.peers import peer

FOLDER = Path(__file__).parents[3] / "deploy" / "alertmanager"
CONFIG = FOLDER / "alertmanager.yml"
ALERTS = FOLDER.parent / "prometheus" / "sexton-alerts.yml"


def amtool(*arguments: str) -> str:
    program = peer("amtool", package="prometheus-alertmanager")
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def test_amtool_finds_nothing_wrong(tmp_path: Path):
    config = tmp_path / "alertmanager.yml"
    installed = "/etc/alertmanager/sexton.tmpl"
    assert installed in CONFIG.read_text()
    config.write_text(CONFIG.read_text().replace(installed, str(FOLDER / "sexton.tmpl")))
    told = amtool("check-config", str(config))
    assert "1 templates" in told
    assert "3 receivers" in told


@pytest.mark.parametrize(
    ("label", "receiver"),
    [
        ("severity=critical", "page"),
        ("severity=warning", "ticket"),
        ("severity=info", "info"),
        ("alertname=NoSeverity", "ticket"),
    ],
)
def test_a_severity_has_its_receiver(label: str, receiver: str):
    told = amtool("config", "routes", "test", f"--config.file={CONFIG}", label)
    assert told.split() == [receiver]


def test_no_secret_stands_in_it():
    text = CONFIG.read_text()
    assert not re.search(
        r"^\s*-?\s*(api_url|routing_key|service_key|credentials|password):", text, re.MULTILINE
    )
    assert text.count("/etc/alertmanager/secrets/") == 3


def test_it_mutes_only_alerts_that_exist():
    """A name in it that no rule has would mute nothing, silently."""
    rules = yaml.safe_load(ALERTS.read_text())
    names = [rule.get("alert", "") for group in rules["groups"] for rule in group["rules"]]
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            found = re.fullmatch(r'alertname(=~|!~|!=|=)"(.+)"', matcher)
            for name in found[2].split("|") if found and "Sexton" in found[2] else ():
                assert any(re.fullmatch(name, known) for known in names), name
