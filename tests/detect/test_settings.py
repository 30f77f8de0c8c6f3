"""The configuration: what is accepted, what is refused, and what it changes."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sexton
from sexton.detect.registry import all_detectors, applied, detector_of, key_of, settings_in_force
from sexton.detect.settings import parse
from sexton.errors import CommandError
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.settings import Settings
from sexton.model.window import Window

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
PATH = "/etc/sexton/config.toml"
LOOP = '[[silence]]\ndetector = "crash_looping_unit"\n'


def settings(text: str) -> Settings:
    return parse(text, PATH, NOW)


def refused(text: str) -> str:
    with pytest.raises(CommandError) as raised:
        settings(text)
    message = str(raised.value)
    assert message.startswith(f"{PATH}: ")
    assert message.isprintable()
    return message.removeprefix(f"{PATH}: ")


def test_an_empty_file_changes_nothing() -> None:
    assert settings("") == Settings(PATH, patterns_from="/etc/sexton/patterns.d")
    assert not settings("").changes


def test_a_threshold_is_changed_for_the_run_and_for_all_that_share_it() -> None:
    given = settings("[thresholds]\nsaturated_core.held = 4")
    (changed,) = given.thresholds
    assert changed.detectors[0] == "saturated_core"
    assert (changed.name, changed.value, changed.default) == ("held", 4, 2)
    assert "page_fault_storm" in changed.detectors
    core = detector_of("saturated_core")
    assert core is not None
    held = next(limit for limit in core.thresholds if limit.name == "held")
    with applied(given):
        assert (held.value, held.default) == (4, 2)
        assert settings_in_force() is given
    assert held.value == 2
    assert settings_in_force() == Settings()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = ", "not TOML: Invalid value (at end of document)"),
        ("[threshold]", "threshold: no setting 'threshold'; did you mean 'thresholds'?"),
        ("thresholds = 3", "thresholds: must be a table"),
        (
            "[thresholds]\nsaturated_cores.held = 4",
            "thresholds.saturated_cores: no detector 'saturated_cores'; did you mean"
            " 'saturated_core'?",
        ),
        (
            "[thresholds]\nsaturated_core.helt = 4",
            "thresholds.saturated_core.helt: no threshold of saturated_core 'helt'; did you mean"
            " 'held'?",
        ),
        ("[thresholds]\nsaturated_core = 4", "thresholds.saturated_core: write"),
        ("[thresholds]\nsaturated_core.held = '4'", "thresholds.saturated_core.held: must be a"),
        ("[thresholds]\nsaturated_core.held = true", "thresholds.saturated_core.held: must be a"),
        ("[thresholds]\nsaturated_core.held = nan", "thresholds.saturated_core.held: nan: must be"),
        ("[thresholds]\nsaturated_core.held = 0", "thresholds.saturated_core.held: 0: must be"),
        ("[thresholds]\nsaturated_core.held = 9e9", "thresholds.saturated_core.held: 90000000"),
        (
            "[thresholds]\nsaturated_core.kernel_share = 101",
            "thresholds.saturated_core.kernel_share: 101: must be 0.09 to 100 % of a core",
        ),
        (
            "[thresholds]\nsaturated_core.held = 4\npage_fault_storm.held = 5",
            "thresholds.page_fault_storm.held: the same threshold as thresholds.saturated_core",
        ),
        ("[detectors]\noff = 'tcp_loss'", "detectors.off: must be a list"),
        ("[detectors]\noff = ['tcp_los']", "detectors.off: no detector 'tcp_los'; did you mean"),
        ("[detectors]\noff = [['x']]", "detectors.off: no detector ['x']"),
        ("[detectors]\non = []", "detectors.on: no setting 'on'"),
        ("[silence]\n", "silence: write [[silence]]"),
        ("silence = [1]", "silence 1: write [[silence]]"),
        (LOOP + "until = 2026-12-01", "silence 1: reason is required"),
        (LOOP + "reason = 'x'", "silence 1: until is required"),
        (LOOP + "until = 2026-12-01\nreason = ' '", "silence 1: reason: must be a string"),
        (LOOP + "until = 'soon'\nreason = 'x'", "silence 1: until: must be a date or a time"),
        (LOOP + "until = 12:00:00\nreason = 'x'", "silence 1: until: must be a date or a time"),
        (LOOP + "until = 2036-01-01\nreason = 'x'", "silence 1: until: is more than a year ahead"),
        (LOOP + "until = 9999-12-31\nreason = 'x'", "silence 1: until: is"),
        (LOOP + "until = 0001-01-01\nreason = 'x'\nentity = 3", "silence 1: entity: must be"),
        (LOOP + "untl = 2026-12-01", "silence 1: untl: no setting 'untl'; did you mean 'until'?"),
        ('["\\u001b[2J"]', "\\x1b[2J: no setting"),
        ("a = " + "[" * 5000, "not TOML: "),
        ("a = " + "9" * 5000, "not TOML: "),
    ],
)
def test_a_mistake_is_one_line_with_the_key_and_what_is_wrong(text: str, line: str) -> None:
    assert refused(text).startswith(line)


def test_a_silence_ends_at_a_time_or_with_a_day_and_is_then_listed_as_expired() -> None:
    given = settings(
        LOOP
        + "until = 2026-11-16T12:00:01Z\nreason = 'a'\n"
        + LOOP
        + "until = 2026-11-16T12:00:00Z\nreason = 'b'\n"
    )
    assert [silence.reason for silence in given.silences] == ["a"]
    assert [silence.reason for silence in given.expired] == ["b"]
    (day,) = settings(LOOP + "until = 2026-11-20\nreason = 'c'").silences
    assert datetime.fromtimestamp(day.until) == datetime(2026, 11, 21)


def test_a_detector_that_is_off_is_unknown_and_says_where_it_was_switched_off() -> None:
    given = settings('[detectors]\noff = ["saturated_core", "tcp_loss"]')
    assert given.off == ("saturated_core", "tcp_loss")
    core = detector_of("saturated_core")
    assert core is not None
    with applied(given):
        found = core.run(Window({}))
    assert found.verdict is Verdict.UNKNOWN
    assert found.summary == f"switched off in {PATH}"
    assert found.essential == core.essential


def test_a_silenced_finding_is_still_present_but_no_problem() -> None:
    given = settings(LOOP + "entity = 'ecs.service'\nuntil = 2026-12-01\nreason = 'known'")
    units = {"unit": ("ecs.service",), "cgroup": ("/system.slice/ecs.service",)}
    found = Finding("crash_looping_unit", Verdict.PRESENT, Severity.CRITICAL, "loops", units)
    silenced = given.silenced(found)
    assert silenced is not None
    assert silenced.reason == "known"
    other = Finding("nic_resets", Verdict.PRESENT, Severity.CRITICAL, "resets", units)
    assert given.silenced(other) is None


def test_every_threshold_has_a_key_of_its_own_that_toml_takes_bare() -> None:
    for detector in all_detectors():
        keys = [key_of(limit) for limit in detector.thresholds]
        assert len(set(keys)) == len(keys)
        assert all(key.replace("_", "").isalnum() and key.isascii() for key in keys)


def test_no_threshold_is_read_before_the_configuration_is() -> None:
    """A module that computes with a threshold while it is imported would miss it."""
    source = Path(sexton.__file__).parent
    early = []
    for file in source.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                node.body = []
        early += [
            f"{file.name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr == "value"
            and isinstance(node.value, ast.Name)
            and node.value.id.isupper()
        ]
    assert early == []
