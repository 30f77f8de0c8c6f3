"""`sexton fix auto` as it is typed: what is wrong is one line."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from sexton.cure.auto.proposal import proposal_from_json
from tests.cure.auto.test_policy import GOOD
from tests.support.cli import one_line, sexton

pytestmark = pytest.mark.root
INCIDENTS = Path(__file__).parents[2] / "incidents"


def auto(tmp_path: Path, text: str, *more: str, mode: int = 0o600):
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    policy.chmod(mode)
    return sexton("fix", "auto", "--policy", str(policy), "--state", str(tmp_path / "fix"), *more)


def test_mistakes_are_one_line(tmp_path: Path):
    kubeconfig = ("--kubeconfig", str(tmp_path / "none"))
    cases = [
        (auto(tmp_path, "x = ["), "not TOML"),
        (auto(tmp_path, GOOD + "[pase]"), "unknown key 'pase'"),
        (auto(tmp_path, GOOD, mode=0o622), "writable by others"),
        (auto(tmp_path, GOOD), "no credential for the API server: --kubeconfig FILE"),
        (auto(tmp_path, GOOD, *kubeconfig), "no such file"),
        (auto(tmp_path, GOOD, "--every", "1"), "--every must be at least 10"),
        (sexton("fix", "auto", "--policy", str(tmp_path)), "Is a directory"),
        (sexton("fix", "auto", "--policy", str(tmp_path / "none")), "No such file"),
    ]
    for ended, words in cases:
        assert ended.returncode == 2
        assert words in one_line(ended.stderr)
    assert not (tmp_path / "fix").exists(), "nothing was begun"


def test_an_api_server_that_is_not_there_is_a_decision_in_the_log(tmp_path: Path):
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    place = tmp_path / "kubeconfig"
    place.write_text(json.dumps(config))
    options = ("--kubeconfig", str(place), "--node", "node-a", "--seconds", "1", "--json")
    ended = auto(tmp_path, GOOD.replace("zombie_memcgs", "nic_resets"), *options)
    said = json.loads(ended.stdout)
    assert said["how"] in ("nothing to do", "did not act")
    log = tmp_path / "fix/audit.log.jsonl"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events == ["auto_start", "auto"]


def propose(tmp_path: Path, text: str):
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    policy.chmod(0o600)
    recording = str(INCIDENTS / "zombies_only-6.18-v1/recording")
    part = ("--auto-part", "propose", "--policy", str(policy), "--from", recording)
    return sexton("fix", "auto", *part)


def test_the_last_minutes_of_a_recording_are_judged(tmp_path: Path):
    found = proposal_from_json(propose(tmp_path, GOOD).stdout)
    assert (found.exit, found.plan) == (1, None)
    assert found.why == "no rule for cgroup_churn -> zombie_memcgs"


def test_a_recording_of_another_boot_is_no_ground_to_act(tmp_path: Path):
    ended = propose(tmp_path, GOOD.replace("crash_looping_unit", "cgroup_churn"))
    assert ended.returncode == 2
    assert "from another node or boot" in one_line(ended.stderr)
