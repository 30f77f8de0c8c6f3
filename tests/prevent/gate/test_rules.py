"""Each rule on what it must pass, fail, not know, and not be asked about."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from sexton.detect.registry import applied
from sexton.detect.settings import parse as settings
from sexton.errors import SourceDenied
from sexton.model.audit import Audit, Fault, Need
from sexton.model.window import SourceState, Window
from sexton.prevent.gate import Gate, Outcome, Result, Violation
from sexton.reports.text.gate import gate_json, gate_text
from tests.prevent.gate.making import (
    IN_TIME,
    SYSTEMD,
    audit_of,
    census,
    gate_of,
    image,
    node,
    place,
    subject,
    unit,
    window,
)


def result(gate: Gate, rule: str) -> Result:
    return next(item for item in gate.results if item.rule == rule)


def judged(tmp_path: Path, rule: str, seen: Window | None = None, text: str = "") -> Result:
    return result(gate_of(place(tmp_path, seen), text), rule)


def only(found: Result) -> Violation:
    (violation,) = found.violations
    return violation


@pytest.mark.parametrize(("total", "outcome"), [(999, Outcome.PASS), (1000, Outcome.FAIL)])
def test_the_count_must_be_under_the_limit(tmp_path: Path, total: int, outcome: Outcome) -> None:
    assert judged(tmp_path, "memcg_count", window([[census(total, 900)]])).outcome is outcome


def test_the_lowest_count_is_judged_because_removing_takes_a_moment(tmp_path: Path) -> None:
    seen = window([[census(1500, 240)], [census(300, 240)], [census(1200, 240)]])
    assert judged(tmp_path, "memcg_count", seen).outcome is Outcome.PASS
    assert judged(tmp_path, "dying_memcgs", seen).outcome is Outcome.PASS


def test_the_incident_fails_both_counts_with_its_numbers(tmp_path: Path) -> None:
    seen = window([[census(68_680, 240)]])
    assert "68,680" in only(judged(tmp_path, "memcg_count", seen)).message
    violation = only(judged(tmp_path, "dying_memcgs", seen))
    assert "68,440 dying memory cgroups, 240 live" in violation.message
    assert "285.2 times" in violation.message


@pytest.mark.parametrize(
    ("dying", "live", "outcome"),
    [
        (499, 10, Outcome.PASS),  # too few to say
        (500, 250, Outcome.PASS),  # twice, and not more
        (501, 250, Outcome.FAIL),
        (999, 800, Outcome.PASS),
        (1000, 800, Outcome.FAIL),
    ],
)
def test_dying_ones_are_few_and_no_multiple_of_the_live(tmp_path, dying, live, outcome) -> None:
    seen = window([[census(live + dying, live)]])
    assert judged(tmp_path, "dying_memcgs", seen).outcome is outcome


def test_a_node_of_many_pods_may_have_its_own_limit(tmp_path: Path) -> None:
    seen = window([[census(3000, 2900)]])
    assert judged(tmp_path, "memcg_count", seen).outcome is Outcome.FAIL
    text = "[rules.memcg_count]\nlimit = 5000\n"
    assert judged(tmp_path, "memcg_count", seen, text).outcome is Outcome.PASS


@pytest.mark.parametrize("rule", ["memcg_count", "dying_memcgs"])
def test_in_a_namespace_the_count_is_unknown_and_that_is_no_pass(tmp_path: Path, rule) -> None:
    seen = window([[census(None, 1, "subtree", "this is a cgroup namespace")]])
    found = judged(tmp_path, rule, seen)
    assert (found.outcome, found.closes) == (Outcome.UNKNOWN, True)
    assert found.missing[0].what == "this is a cgroup namespace"
    assert "sexton gate" in found.missing[0].grant
    let = judged(tmp_path, rule, seen, f'[rules.{rule}]\non_unknown = "pass"\n')
    assert (let.outcome, let.closes) == (Outcome.UNKNOWN, False)


def test_a_source_that_was_denied_is_unknown_with_how_to_grant_it(tmp_path: Path) -> None:
    state = SourceState("x", "/proc/cgroups", "denied", "Permission denied", "sudo sexton diagnose")
    found = judged(tmp_path, "memcg_count", window([[node()]], [state]))
    assert (found.outcome, found.closes) == (Outcome.UNKNOWN, True)


@pytest.mark.parametrize("rule", ["memcg_count", "dying_memcgs", "crash_loops"])
def test_an_image_that_never_ran_has_nothing_to_count(tmp_path: Path, rule: str) -> None:
    found = judged(tmp_path, rule)
    assert (found.outcome, found.closes) == (Outcome.NOT_APPLICABLE, False)
    assert "nothing runs in an image" in found.summary


def test_a_unit_that_restarts_twice_while_watched_loops(tmp_path: Path) -> None:
    seen = window([[SYSTEMD, unit("ecs.service", 10)], [SYSTEMD, unit("ecs.service", 13)]])
    violation = only(judged(tmp_path, "crash_loops", seen, "[rules.crash_loops]\nchurn = false\n"))
    assert violation.subject == "ecs.service"
    assert "13 times so far, 3 in this window" in violation.message
    assert "disable and mask" in violation.remedy


def test_a_looping_unit_the_node_lives_by_is_to_be_mended(tmp_path: Path) -> None:
    seen = window([[SYSTEMD, unit("kubelet.service", 1)], [SYSTEMD, unit("kubelet.service", 9)]])
    violation = only(judged(tmp_path, "crash_loops", seen, "[rules.crash_loops]\nchurn = false\n"))
    assert "do not disable it" in violation.remedy


def test_each_looping_unit_can_be_waived_by_its_name(tmp_path: Path) -> None:
    seen = window(
        [
            [SYSTEMD, unit("a.service", 0), unit("b.service", 0)],
            [SYSTEMD, unit("a.service", 5), unit("b.service", 4)],
        ]
    )
    found = judged(tmp_path, "crash_loops", seen, "[rules.crash_loops]\nchurn = false\n")
    assert {violation.subject for violation in found.violations} == {"a.service", "b.service"}


def test_the_configuration_of_the_node_applies_but_its_silences_do_not(tmp_path: Path) -> None:
    """A silence is about alarms; the policy's waivers have an owner."""
    seen = window([[SYSTEMD, unit("ecs.service", 10)], [SYSTEMD, unit("ecs.service", 13)]])
    policy = "[rules.crash_loops]\nchurn = false\n"
    until = IN_TIME.isoformat()
    silence = f'[[silence]]\ndetector = "crash_looping_unit"\nuntil = {until}\nreason = "x"\n'
    with applied(settings(silence, "config.toml", time.time())):
        assert judged(tmp_path, "crash_loops", seen, policy).outcome is Outcome.FAIL
    lenient = "[thresholds]\ncrash_looping_unit.again = 9\ncrash_looping_unit.waiting = 90\n"
    lenient += "crash_looping_unit.steady = 90\n"
    with applied(settings(lenient + silence, "config.toml", time.time())):
        gate = gate_of(place(tmp_path, seen), policy)
    assert result(gate, "crash_loops").outcome is Outcome.PASS
    assert "CONFIG    config.toml: crash_looping_unit.again 9 restarts" in gate_text(gate)
    config = gate_json(gate)["config"]
    assert (config["thresholds"][0]["name"], config["silences"]) == ("again", [])
    with applied(settings('[detectors]\noff = ["crash_looping_unit"]\n', "config.toml", 0.0)):
        off = judged(tmp_path, "crash_loops", seen, policy)
    assert (off.outcome, off.closes) == (Outcome.UNKNOWN, True)
    assert "switched off in config.toml" in off.missing[0].what


def test_units_that_stay_up_pass(tmp_path: Path) -> None:
    seen = window([[SYSTEMD, unit("a.service", 7)], [SYSTEMD, unit("a.service", 7)]])
    found = judged(tmp_path, "crash_loops", seen, "[rules.crash_loops]\nchurn = false\n")
    assert found.outcome is Outcome.PASS
    assert "10.0 s" in found.summary


def test_a_container_cannot_speak_for_the_nodes_units(tmp_path: Path) -> None:
    from sexton.model.rows.unit import ServiceManager

    inside = window([[ServiceManager("sh", None, "/proc/1"), node("docker")]] * 2)
    outside = window([[ServiceManager("sh", None, "/proc/1"), node()]] * 2)
    text = "[rules.crash_loops]\nchurn = false\n"
    assert judged(tmp_path, "crash_loops", inside, text).outcome is Outcome.UNKNOWN
    assert judged(tmp_path, "crash_loops", outside, text).outcome is Outcome.NOT_APPLICABLE


def test_only_what_is_judged_unneeded_fails(tmp_path: Path) -> None:
    found = audit_of(
        subject("ecs.service", Need.UNNEEDED),
        subject("odd.service", Need.UNKNOWN),
        subject("kubelet.service", Need.PROTECTED),
    )
    told = result(gate_of(place(tmp_path, found=found)), "unneeded_units")
    broken = only(told)
    assert (told.outcome, broken.subject) == (Outcome.FAIL, "ecs.service")
    assert broken.path == "/etc/systemd/system/multi-user.target.wants/ecs.service"
    assert "ECS_CLUSTER is not set" in broken.message
    assert broken.remedy.startswith("systemctl disable ecs.service && systemctl mask ecs.service")
    assert "1 unneeded, 1 unknown, 0 needed, 1 protected" in told.summary


def test_a_hostile_unit_name_is_quoted_in_what_somebody_will_paste(tmp_path: Path) -> None:
    found = audit_of(subject("a;reboot.service", Need.UNNEEDED, 9999.0))
    gate = gate_of(place(tmp_path, found=found))
    for rule in ("unneeded_units", "restart_without_backoff"):
        assert "'a;reboot.service'" in only(result(gate, rule)).remedy


@pytest.mark.parametrize(("a_day", "outcome"), [(8640.0, Outcome.FAIL), (1440.0, Outcome.PASS)])
def test_restarts_without_back_off_fail_above_the_rate(tmp_path, a_day, outcome) -> None:
    found = audit_of(subject("ecs.service", Need.UNKNOWN, a_day, "5 starts take 50 s"))
    told = result(gate_of(place(tmp_path, found=found)), "restart_without_backoff")
    assert told.outcome is outcome
    if outcome is Outcome.FAIL:
        assert "5 starts take 50 s" in only(told).message
    else:
        assert told.notes == ("endless, but below the limit: ecs.service",)


def with_fault(identity: str, fix: str) -> Audit:
    made = subject("a.timer" if "timer" in identity else "a.service", Need.UNKNOWN)
    fault = Fault(identity, "20 restarts in 5 s", fix, "NRestarts, D-Bus", 345_600)
    return audit_of(replace(made, faults=(fault,)))


def test_a_unit_that_loops_now_is_the_other_rules(tmp_path: Path) -> None:
    found = with_fault("crash-loop", "journalctl -u a.service -n 50\nsudo sexton fix plan")
    told = result(gate_of(place(tmp_path, found=found)), "restart_without_backoff")
    assert (told.outcome, told.violations) == (Outcome.PASS, ())


def test_a_timer_is_not_mended_by_a_drop_in_for_restarts(tmp_path: Path) -> None:
    found = with_fault("frequent-timer", "a longer period")
    violation = only(result(gate_of(place(tmp_path, found=found)), "restart_without_backoff"))
    assert violation.facts == ("a longer period",)
    assert violation.remedy.startswith("systemctl edit a.timer  # set a longer period")


def test_units_a_node_lives_by_may_come_back_for_ever(tmp_path: Path) -> None:
    found = audit_of(subject("kubelet.service", Need.PROTECTED, 8640.0))
    told = result(gate_of(place(tmp_path, found=found)), "restart_without_backoff")
    assert told.outcome is Outcome.PASS
    assert told.notes == ("skipped, the node depends on them: kubelet.service",)


@pytest.mark.parametrize("rule", ["unneeded_units", "restart_without_backoff"])
def test_units_that_could_not_be_listed_are_unknown(tmp_path: Path, rule: str) -> None:
    found = audit_of(has_units=False, unseen=("units: systemd did not answer",))
    told = result(gate_of(place(tmp_path, found=found)), rule)
    assert (told.outcome, told.closes) == (Outcome.UNKNOWN, True)
    assert told.missing[0].what == "units: systemd did not answer"


def test_an_audit_that_may_not_read_is_unknown(tmp_path: Path) -> None:
    def refuse(*_: object) -> Audit:
        raise SourceDenied("/etc/systemd/system", "Permission denied")

    where = place(tmp_path)
    where.auditing = refuse
    assert result(gate_of(where), "unneeded_units").outcome is Outcome.UNKNOWN


def test_a_rule_may_be_switched_off_or_only_warn(tmp_path: Path) -> None:
    seen = window([[census(68_680, 240)]])
    off = judged(tmp_path, "memcg_count", seen, "[rules.memcg_count]\nenabled = false\n")
    assert (off.outcome, off.closes) == (Outcome.OFF, False)
    warned = judged(tmp_path, "memcg_count", seen, "[rules.memcg_count]\nlevel = 'warning'\n")
    assert (warned.outcome, warned.closes, len(warned.violations)) == (Outcome.WARN, False, 1)


class TestKubelet:
    """The configuration in an image."""

    def of(self, root: Path, text: str = "", **files: str) -> Result:
        more = {path.replace("__", "/"): content for path, content in files.items()}
        image(root, {f"/{path}": content for path, content in more.items()})
        return result(gate_of(place(root), text), "kubelet_config")

    def test_a_good_one_passes(self, tmp_path: Path) -> None:
        assert self.of(tmp_path).outcome is Outcome.PASS

    def test_a_field_that_is_none_fails_with_its_line(self, tmp_path: Path) -> None:
        image(tmp_path)
        config = tmp_path / "var/lib/kubelet/config.yaml"
        config.write_text(config.read_text() + "cgroupVersion: v2\n")
        violation = only(result(gate_of(place(tmp_path)), "kubelet_config"))
        assert (violation.subject, violation.path, violation.line) == (
            "cgroupVersion",
            "/var/lib/kubelet/config.yaml",
            7,
        )

    def test_what_hurts_warns_and_fails_when_strict(self, tmp_path: Path) -> None:
        image(tmp_path)
        config = tmp_path / "var/lib/kubelet/config.yaml"
        config.write_text(config.read_text() + "readOnlyPort: 10255\n")
        found = result(gate_of(place(tmp_path)), "kubelet_config")
        assert (found.outcome, found.closes) == (Outcome.WARN, False)
        text = "[rules.kubelet_config]\nstrict = true\n"
        assert result(gate_of(place(tmp_path), text), "kubelet_config").outcome is Outcome.FAIL

    def test_one_that_first_boot_makes_is_not_judged_in_the_image(self, tmp_path: Path) -> None:
        image(tmp_path)
        (tmp_path / "var/lib/kubelet/config.yaml").unlink()
        found = result(gate_of(place(tmp_path)), "kubelet_config")
        assert found.outcome is Outcome.NOT_APPLICABLE
        booted = place(tmp_path, window([[node()]]))
        assert result(gate_of(booted), "kubelet_config").outcome is Outcome.UNKNOWN

    def test_without_kubelet_it_does_not_apply_unless_required(self, tmp_path: Path) -> None:
        found = judged(tmp_path, "kubelet_config")
        assert (found.outcome, found.summary) == (Outcome.NOT_APPLICABLE, "no kubelet here")
        text = "[rules.kubelet_config]\nrequired = true\n"
        assert judged(tmp_path, "kubelet_config", None, text).outcome is Outcome.FAIL

    def test_without_the_library_it_is_unknown_with_how_to_get_it(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "yaml", None)
        found = self.of(tmp_path)
        assert (found.outcome, found.closes) == (Outcome.UNKNOWN, True)
        assert found.missing[0].grant == "pip install 'sexton[gate]'"
