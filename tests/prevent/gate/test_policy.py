"""Policies people and enemies write: laid over the built-in one, or one clear line."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import CommandError
from sexton.prevent.gate import Policy, builtin, builtin_text, parse
from sexton.prevent.gate.policy import _policy, rule_ids
from sexton.prevent.gate.rules import all_rules

WAIVER = """
[[waivers]]
rule = "unneeded_units"
subject = "ecs.service"
owner = "batch@example.com"
expires = 2027-01-31
"""


def test_the_built_in_policy_has_a_module_for_each_rule_and_its_own_text_is_a_policy() -> None:
    assert tuple(rule.id for rule in all_rules()) == rule_ids()
    printed = parse(builtin_text().encode(), "p.toml")
    assert (printed.rules, printed.observe_seconds) == (builtin().rules, builtin().observe_seconds)
    assert builtin().rules["memcg_count"]["limit"] == 1000
    assert all(rule["on_unknown"] == "fail" for rule in builtin().rules.values())


def test_a_policy_need_only_hold_what_differs() -> None:
    policy = parse(
        b'on_unknown = "pass"\n[rules.memcg_count]\nlimit = 2000\nlevel = "warning"\n', "p"
    )
    assert policy.rules["memcg_count"] == {
        "enabled": True,
        "level": "warning",
        "on_unknown": "pass",
        "limit": 2000,
    }
    assert policy.rules["dying_memcgs"]["limit"] == 1000
    assert policy.rules["crash_loops"]["on_unknown"] == "pass"


def test_a_rule_may_differ_from_the_whole_about_the_unknown() -> None:
    policy = parse(b'[rules.crash_loops]\non_unknown = "pass"\n', "p")
    assert policy.rules["crash_loops"]["on_unknown"] == "pass"
    assert policy.rules["memcg_count"]["on_unknown"] == "fail"


def test_a_waiver_is_read_whole_and_its_date_may_be_a_text() -> None:
    for written in ("2027-01-31", '"2027-01-31"'):
        text = WAIVER.replace("2027-01-31", written) + 'reason = "nightly"\n'
        (waiver,) = parse(text.encode(), "p").waivers
        assert (waiver.rule, waiver.subject, waiver.owner, waiver.expires, waiver.reason) == (
            "unneeded_units",
            "ecs.service",
            "batch@example.com",
            datetime.date(2027, 1, 31),
            "nightly",
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limit = 1\n", "unknown key limit; known: schema"),
        ("on_unknow = 'pass'\n", "did you mean on_unknown?"),
        ("[rules.memcg_cont]\n", "unknown key rules.memcg_cont; did you mean memcg_count?"),
        ("[rules.memcg_count]\nlimits = 1\n", "did you mean limit?"),
        (
            "[rules.memcg_count]\nlimit = 'many'\n",
            'rules.memcg_count.limit is "many"; must be a number',
        ),
        ("[rules.memcg_count]\nlimit = true\n", "is true; must be a number"),
        ("[rules.memcg_count]\nlimit = 1.5\n", "must be a whole number"),
        ("[rules.memcg_count]\nlimit = -1\n", "must be 0 or more"),
        ("[rules.memcg_count]\nlimit = nan\n", "must be a number"),
        ("[rules.dying_memcgs]\nlive_multiple = inf\n", "must be a number"),
        ("[rules.memcg_count]\nlimit = [1]\n", "is a list; must be a number"),
        ("[rules.memcg_count]\nenabled = 'no'\n", "must be true or false"),
        ("[rules.memcg_count]\nlevel = 'fatal'\n", "must be one of error, warning"),
        ("[rules.cgroup_version]\nrequire = 'v3'\n", "must be one of any, v1, v2"),
        ("[rules.cgroup_version]\nrequire = 2\n", "is 2; must be one of any, v1, v2"),
        ("on_unknown = 'maybe'\n", "must be one of fail, pass"),
        ("rules = 1\n", "rules is 1; write it as [rules]"),
        ("[rules]\nmemcg_count = 1000\n", "write it as [rules.memcg_count]"),
        ("observe_seconds = 0\n", "observe_seconds is 0"),
        ("observe_seconds = 1e9\n", "at most 3600"),
        ("observe_seconds = 'long'\n", "must be a number"),
        ("warn_days = 1.5\n", "must be a whole number"),
        ("schema = 'sexton.policy/9'\n", "expected sexton.policy/1"),
        ("schema = 1\n", "schema is 1"),
        ("waivers = 'all'\n", "write each as [[waivers]]"),
        ("waivers = [1]\n", "write each as [[waivers]]"),
        ("[waivers]\nrule = 'x'\n", "write each as [[waivers]]"),
        ("[[waivers]]\n", "waiver 1 has no rule"),
        (WAIVER.replace('owner = "batch@example.com"\n', ""), "waiver 1 has no owner"),
        (WAIVER.replace("expires = 2027-01-31\n", ""), "waiver 1 has no expires"),
        (WAIVER.replace("2027-01-31", "2027-01-31T10:00:00Z"), "must be a date such as 2027-01-31"),
        (WAIVER.replace("2027-01-31", "10:00:00"), "must be a date"),
        (WAIVER.replace("2027-01-31", "'soon'"), 'is "soon"; must be a date'),
        (WAIVER.replace("2027-01-31", "20270131"), "must be a date"),
        (WAIVER.replace("2027-01-31", "2027-02-30"), "invalid TOML"),
        (WAIVER.replace("2027-01-31", "true"), "must be a date"),
        (WAIVER.replace('"batch@example.com"', '""'), "owner is empty"),
        (WAIVER.replace('"batch@example.com"', "7"), "owner is 7; must be a string"),
        (WAIVER.replace('"ecs.service"', f'"{"x" * 2000}"'), "2,000 characters"),
        (WAIVER.replace("unneeded_units", "unneeded"), "did you mean unneeded_units?"),
        (WAIVER + 'until = "x"\n', "waiver 1: unknown key until"),
        (WAIVER + WAIVER, "waiver 2 repeats waiver 1"),
        (WAIVER * 1001, "1,001 waivers"),
        ("[rules.memcg_count]\n[rules.memcg_count]\n", "invalid TOML"),
        ("a = 1\na = 2\n", "invalid TOML"),
        ("=", "invalid TOML"),
        ("a = " + "[" * 100_000, "invalid TOML"),
        ("warn_days = " + "9" * 5000, "invalid TOML"),
        ("\x00", "invalid TOML"),
        ('"\\u001b[2J" = 1', "unknown key \\x1b[2J"),
    ],
)
def test_a_wrong_policy_is_one_line_that_says_where_and_what_is_right(
    text: str, message: str
) -> None:
    with pytest.raises(CommandError) as error:
        parse(text.encode(), "gate.toml")
    assert str(error.value).startswith("gate.toml: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert error.value.exit_code == 2


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(CommandError, match="not UTF-8"):
        parse(b"\xff\xfe", "gate.toml")


def refused(made: Callable[[], Policy]) -> str:
    """What a policy is refused with; "" where it is one."""
    try:
        made()
    except CommandError as error:
        return str(error)
    return ""


@given(st.binary(max_size=200) | st.text(alphabet="[]rules.memcg_count=\"'1 \n{}", max_size=80))
def test_junk_is_a_policy_or_one_line(junk: bytes | str) -> None:
    content = junk if isinstance(junk, bytes) else junk.encode()
    assert "\n" not in refused(lambda: parse(content, "gate.toml"))


_KEYS = (
    *("schema", "on_unknown", "observe_seconds", "warn_days", "rules", "waivers", "memcg_count"),
    *("limit", "rule", "subject", "owner", "expires", "require", "cgroup_version", "level"),
)


@given(
    st.recursive(
        st.booleans() | st.integers(-3, 3) | st.sampled_from(["pass", "v2", "2027-01-31", ""]),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)
        ),
        max_leaves=8,
    )
)
def test_any_types_anywhere_are_a_policy_or_one_line(value: object) -> None:
    """Through the parsed form, which is what the types of a hostile file come to."""
    if isinstance(value, dict):
        assert "\n" not in refused(lambda: _policy(value, "p", "p"))


def test_the_printed_policy_is_toml_with_its_schema() -> None:
    assert tomllib.loads(builtin_text())["schema"] == "sexton.policy/1"
