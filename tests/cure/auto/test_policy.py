"""A policy says what is allowed; whatever is wrong in it is one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sexton.cure.auto.policy import WEEK_S, policy_of
from sexton.errors import CommandError
from sexton.model.chain import Strength

RULE = """
[[rule]]
root = "crash_looping_unit"
symptom = "zombie_memcgs"
steps = ["cordon_node", "drain_node", "stop_unit"]
"""
POOL = '[pool]\nselector = "pool=gpu"\nmax_nodes = 1\n'
GOOD = RULE + POOL
PAGE = Path(__file__).parents[3] / "docs/kubernetes-remedies.md"


def test_what_is_not_said_is_the_careful_choice():
    policy = policy_of(GOOD)
    assert policy.dry_run
    assert policy.rules[0].strength is Strength.PROVEN
    assert policy.pool.one_per_zone
    assert not policy.drain.delete_emptydir_data
    assert not policy.drain.evict_unmanaged
    assert (policy.lease.namespace, policy.lease.name) == ("sexton", "sexton-fix")


def test_the_policy_of_the_docs_has_every_key_and_is_valid():
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    policy = policy_of(text)
    assert policy.path == "policy"
    for key in ("strength", "one_per_zone", "max_percent", "enforce_after", "cool_down_minutes",
                "configmap", "evict_unmanaged", "delete_emptydir_data", "dry_run"):  # fmt: skip
        assert key in text


BAD = {
    "": "no [[rule]]",
    "x = [": "not TOML",
    "[" * 5000: "not TOML",
    GOOD + "[pase]": "unknown key 'pase'",
    "dry = false\n" + GOOD: "unknown key 'dry'",
    'dry_run = "no"\n' + GOOD: "dry_run must be true or false",
    "dry_run = 0\n" + GOOD: "dry_run must be true or false",
    "enforce_after = 2027-01-01T00:00:00Z\n" + GOOD: "no effect without dry_run = false",
    "dry_run = false\nenforce_after = 2027-01-01T00:00:00\n" + GOOD: "a time with its zone",
    "dry_run = false\nenforce_after = 2027-01-01\n" + GOOD: "a time with its zone",
    'dry_run = false\nenforce_after = "now"\n' + GOOD: "a time with its zone",
    RULE: "selector is missing",
    RULE + "[[pool]]": "[pool] must be a table",
    "rule = 3\n" + POOL: "write [[rule]]",
    RULE + '[pool]\nselector = "pool=gpu"': "needs max_nodes or max_percent",
    GOOD + "max_percent = 51": "max_percent must be a whole number from 1 to 50",
    GOOD + "max_percent = 10.0": "max_percent must be a whole number",
    GOOD + "max_percent = true": "max_percent must be a whole number",
    RULE + '[pool]\nselector = "a=b, c d"\nmax_nodes = 1': "'c d' is not a label requirement",
    RULE + '[pool]\nselector = "a=b\\nc"\nmax_nodes = 1': "not a label requirement",
    RULE + '[pool]\nselector = ","\nmax_nodes = 1': "not a label requirement",
    RULE + RULE + POOL: "two rules for crash_looping_unit -> zombie_memcgs",
    GOOD.replace("zombie_memcgs", "zombies"): "'zombies' is not a finding",
    GOOD.replace("zombie_memcgs", "crash_looping_unit"): "that is no chain",
    GOOD.replace("zombie_memcgs", "\\u001b[2J"): "is not a finding",
    GOOD.replace('"stop_unit"', '"reboot_node"'): "reboot_node is never done unattended",
    GOOD.replace('"stop_unit"', '"drop_caches"'): "drop_caches is never done unattended",
    GOOD.replace('"stop_unit"', '"stop_units"'): "'stop_units' is not a step",
    GOOD.replace('"cordon_node", ', ""): "drain_node needs cordon_node",
    GOOD.replace("steps", 'strength = "possible"\nsteps'): "not one of proven, likely",
    GOOD.replace("steps", "strength = 1\nsteps"): "strength must be text",
    GOOD.replace("steps", "step"): "steps must be a list of names",
    GOOD + "[lease]\nseconds = 1": "seconds must be a whole number from 2 to 600",
    GOOD + '[lease]\nname = "sexton"': "is not NAMESPACE/NAME",
    GOOD + '[kill_switch]\nconfigmap = "../x/y"': "is not NAMESPACE/NAME",
    GOOD + "[drain]\nforce = true": "unknown key 'force'",
}


@pytest.mark.parametrize("text", BAD, ids=list(BAD.values()))
def test_bad_policies_are_one_line(text: str):
    with pytest.raises(CommandError) as raised:
        policy_of(text, "/etc/p.toml")
    words = str(raised.value)
    assert BAD[text] in words
    assert words.startswith("/etc/p.toml: ")
    assert words.isprintable()


@pytest.mark.parametrize(
    ("lines", "day", "dry"),
    [
        ("", 30, "dry_run is not false"),
        ("dry_run = true", 30, "dry_run is not false"),
        ("dry_run = false", 6.9, "the first week ends 1970-01-08T00:00:00Z"),
        ("dry_run = false", 7, ""),
        ("dry_run = false\nenforce_after = 1970-01-03T00:00:00Z", 1, "enforce_after is 1970-01-03"),
        ("dry_run = false\nenforce_after = 1970-01-03T00:00:00Z", 2, ""),
        ("dry_run = false\nenforce_after = 1970-02-01T00:00:00Z", 8, "enforce_after is 1970-02-01"),
    ],
)
def test_the_first_week_is_a_dry_run(lines: str, day: float, dry: str):
    why = policy_of(f"{lines}\n{GOOD}").why_dry(0.0, day * WEEK_S / 7)
    assert why.startswith(dry)
    assert bool(why) == bool(dry)
