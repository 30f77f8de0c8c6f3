"""Loops, things that only look like loops, and units that must never be disabled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.detectors.cgroups.crash_looping_unit import detect, exits_cleanly
from sexton.detect.protected import protected
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.unit import RestartMark, ServiceManager, Unit
from tests.support.windows import EPOCH, make_window

SYSTEMD = ServiceManager("systemd", "252", "bus")
END_S = 100_000.0
QUIET = Unit(
    "a.service", "loaded", "active", "running", "enabled", 0, "always", 100_000,
    5_000_000, 0, 5_000_000, "success", 0, "/system.slice/a.service", "systemd",
)  # fmt: skip


def look(*readings: Unit, step_s: float = 10.0) -> Finding:
    first = END_S - step_s * (len(readings) - 1)
    return detect(
        make_window([(first + step_s * n, [SYSTEMD, unit]) for n, unit in enumerate(readings)])
    )


def failing(restarts: int, started_s: float, **changes: object) -> Unit:
    start = int(started_s * 1e6)
    unit = replace(
        QUIET, active_state="activating", sub_state="auto-restart", restarts=restarts,
        main_start_us=start, main_exit_us=start + 200_000, result="exit-code", exit_status=1,
    )  # fmt: skip
    return replace(unit, **changes)  # type: ignore[arg-type]


def running(restarts: int, started_s: float, **changes: object) -> Unit:
    return failing(restarts, started_s, active_state="active", sub_state="running", **changes)


def test_a_unit_that_never_restarted_is_well():
    finding = look(QUIET, QUIET)
    assert finding.verdict is Verdict.ABSENT
    assert "1 service, none in a restart loop" in finding.summary


def test_two_restarts_in_the_window_are_a_loop():
    finding = look(running(0, END_S - 30), running(2, END_S - 1))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING)
    assert finding.entities["unit"] == ("a.service",)
    assert finding.entities["cgroup"] == ("/system.slice/a.service",)


def started(restarts: int, started_s: float) -> Unit:
    """As systemd 252 shows a unit that has failed before, right after its next start."""
    start = int(started_s * 1e6)
    return replace(QUIET, restarts=restarts, main_start_us=start, active_enter_us=start)


def test_a_unit_seen_only_just_after_its_starts_is_not_said_to_end_cleanly():
    finding = look(started(600, END_S - 10), started(640, END_S))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.CRITICAL)
    assert "cleanly" not in finding.summary
    assert "exit status" not in finding.summary


def test_the_end_that_was_seen_counts_even_if_it_runs_again_since():
    finding = look(failing(600, END_S - 10), started(640, END_S))
    assert finding.severity is Severity.CRITICAL
    assert finding.summary.endswith("exit status 1")


def test_a_unit_that_only_the_journal_tells_of_is_a_loop_if_it_restarts_while_we_watch():
    """On a busy node the list of units may come late or in part; the journal still knows."""
    marks = [RestartMark("b.service", 600 + n, EPOCH + END_S - 9 + n) for n in range(5)]
    window = make_window([(END_S - 10, [SYSTEMD, QUIET]), (END_S, [SYSTEMD, QUIET, *marks])])
    finding = detect(window)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.CRITICAL)
    assert finding.entities["unit"] == ("b.service",)
    assert "604 times so far, 5 in this window" in finding.summary
    assert "journal" in finding.evidence[0].source


def test_a_unit_that_only_an_old_journal_tells_of_is_none():
    marks = [RestartMark("b.service", 600 + n, EPOCH + END_S - 900 + n) for n in range(5)]
    window = make_window([(END_S - 10, [SYSTEMD, QUIET]), (END_S, [SYSTEMD, QUIET, *marks])])
    assert detect(window).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("restarts", "says"), [(4, "every 300 ms"), (20, "every 500 ms")], ids=["settings", "seen"]
)
def test_the_period_is_the_one_seen_as_soon_as_that_is_enough(restarts: int, says: str):
    """RestartSec 100 ms and a run of 200 ms; systemd itself takes its time as well."""
    finding = look(failing(0, END_S - 10), failing(restarts, END_S - 1))
    assert f"restarts {says}" in finding.summary
    assert finding.evidence[1].value.startswith(says.removeprefix("every "))
    assert ("RestartSec" in finding.evidence[1].value) == (restarts == 4)


def test_one_restart_in_the_window_may_be_an_upgrade():
    assert look(running(0, 100), running(1, END_S - 1)).verdict is Verdict.ABSENT


def test_a_counter_that_went_down_is_no_restart():
    finding = look(running(9, 500), running(1, 600))
    assert finding.verdict is Verdict.ABSENT


def test_a_restart_by_hand_is_none():
    assert look(running(0, 500), running(0, END_S - 1)).verdict is Verdict.ABSENT


@pytest.mark.parametrize(("restarts", "verdict"), [(2, Verdict.ABSENT), (3, Verdict.PRESENT)])
def test_waiting_for_the_next_start_counts_from_the_third_time(restarts: int, verdict: Verdict):
    assert look(failing(restarts, END_S - 1)).verdict is verdict


def test_waiting_is_seen_in_the_queued_form_of_newer_systemd_too():
    assert look(failing(5, END_S - 1, sub_state="auto-restart-queued")).verdict is Verdict.PRESENT


def test_a_long_history_counts_only_while_it_goes_on():
    every_hundred_s = 1000
    assert look(running(every_hundred_s, END_S - 50)).verdict is Verdict.PRESENT
    assert look(running(every_hundred_s, END_S - 5_000)).verdict is Verdict.ABSENT


def test_twenty_restarts_in_a_day_are_no_loop():
    assert look(running(20, END_S - 60)).verdict is Verdict.ABSENT


def test_a_start_time_of_another_boot_is_not_believed():
    assert look(running(1000, END_S + 500)).verdict is Verdict.ABSENT


def test_a_hundred_restarts_are_critical():
    assert look(failing(99, END_S - 1)).severity is Severity.WARNING
    assert look(failing(100, END_S - 1)).severity is Severity.CRITICAL


def test_a_loop_that_no_start_limit_ends_is_critical_once_it_lasts():
    slow = {"restart_delay_us": 10_000_000}
    assert look(failing(20, END_S - 1, **slow)).severity is Severity.CRITICAL
    assert look(failing(5, END_S - 1, **slow)).severity is Severity.WARNING
    limits = [
        item for item in look(failing(20, END_S - 1, **slow)).evidence if "limit" in item.what
    ]
    assert limits[0].value == "never trips: 5 starts take 51.0 s"


def test_a_fast_loop_will_meet_its_start_limit():
    finding = look(failing(20, END_S - 1))
    assert not any("start limit" in item.what for item in finding.evidence)


def test_the_period_is_delay_plus_run():
    finding = look(failing(20, END_S - 1, restart_delay_us=10_000_000))
    assert "restarts every 10.2 s" in finding.summary
    assert any("RestartSec 10.0 s + run 200 ms" in item.value for item in finding.evidence)


def test_a_run_that_goes_on_lends_no_length():
    now = failing(9, END_S - 1, main_exit_us=int((END_S - 90) * 1e6))
    assert "every" not in look(now).summary


@pytest.mark.parametrize(
    ("result", "status", "end"),
    [
        ("exit-code", 9, "exit status 9"),
        ("signal", 9, "killed by SIGKILL"),
        ("core-dump", 11, "killed by SIGSEGV"),
        ("oom-kill", 9, "killed by the OOM killer"),
        ("signal", 99, "exit status 99"),
    ],
)
def test_the_number_of_a_signal_is_no_exit_status(result: str, status: int, end: str):
    finding = look(failing(20, END_S - 1, result=result, exit_status=status))
    assert f", {end}" in finding.summary


def test_a_unit_that_ends_cleanly_may_be_meant_so():
    finding = look(failing(5_000, END_S - 1, exit_status=0, result="success"))
    assert finding.severity is Severity.WARNING
    assert "ending cleanly" in finding.summary
    assert exits_cleanly(finding, "a.service")
    assert not exits_cleanly(look(failing(5_000, END_S - 1)), "a.service")


def test_a_start_between_two_properties_does_not_make_an_end_a_clean_one():
    """Its times are read of the run that failed, its status after the next start: seen on a slow
    node. What restarts only after faults had one, and one fault that was seen is enough."""
    torn = failing(5_000, END_S - 1, exit_status=0, result="success")
    finding = look(replace(torn, restart_policy="on-failure"))
    assert finding.severity is Severity.CRITICAL
    assert "cleanly" not in finding.summary
    finding = look(failing(4_990, END_S - 10), torn)
    assert finding.severity is Severity.CRITICAL
    assert finding.summary.endswith("exit status 1")


def test_no_service_manager_is_not_applicable():
    other = detect(make_window([(0.0, [ServiceManager("tini", None, "/proc/1/comm")])]))
    assert other.verdict is Verdict.NOT_APPLICABLE
    none = detect(make_window([(0.0, [])], empty=[ServiceManager]))
    assert none.verdict is Verdict.NOT_APPLICABLE


def test_systemd_whose_units_were_not_read_is_unknown():
    assert detect(make_window([(0.0, [SYSTEMD])])).verdict is Verdict.UNKNOWN


def test_an_old_systemd_without_counters_is_unknown_unless_the_journal_tells():
    uncounted = replace(QUIET, restarts=None)
    assert look(uncounted).verdict is Verdict.UNKNOWN
    marks = [RestartMark("a.service", n, EPOCH + n) for n in range(1, 6)]
    told = detect(make_window([(0.0, [SYSTEMD, uncounted]), (9.0, [SYSTEMD, uncounted, *marks])]))
    assert told.verdict is Verdict.PRESENT
    assert "5 times so far, 5 in this window" in told.summary


def test_a_unit_systemd_gave_up_on_is_told_and_is_no_loop():
    gave_up = replace(
        QUIET, active_state="failed", sub_state="failed", restarts=5, result="start-limit-hit"
    )
    finding = look(gave_up)
    assert finding.verdict is Verdict.ABSENT
    assert any("gave up" in item.what for item in finding.evidence)


@pytest.mark.parametrize(
    "name",
    [
        "kubelet.service", "snap.kubelet.daemon.service", "containerd.service", "docker.service",
        "sshd.service", "ssh.service", "ssh@1.service", "systemd-networkd.service",
        "NetworkManager.service", "networking.service", "iscsid.service", "multipathd.service",
        "kube-proxy.service", "node_exporter.service", "prometheus-node-exporter.service",
        "systemd-journald.service", "nfs-server.service",
    ],
)  # fmt: skip
def test_what_a_node_lives_by_is_protected(name: str):
    assert protected(name)
    finding = look(failing(500, END_S - 1, name=name))
    assert any("never disable it" in evidence.value for evidence in finding.evidence)


@pytest.mark.parametrize("name", ["ecs.service", "sshfs-backup.service", "my-kubelet-test.service"])
def test_other_units_are_not(name: str):
    assert protected(name) is None


def test_a_hostile_unit_name_is_escaped():
    finding = look(failing(5, END_S - 1, name="x\x1b[2J.service"))
    assert "\x1b" not in finding.summary


def test_the_worst_of_many_loops_comes_first():
    units = [failing(n, END_S - 1, name=f"u{n}.service") for n in (5, 700, 50)]
    finding = detect(make_window([(END_S, [SYSTEMD, *units])]))
    assert finding.entities["unit"] == ("u700.service", "u50.service", "u5.service")
    assert "u700.service" in finding.summary
    assert "2 more units" in finding.summary


@pytest.mark.parametrize("state", [("inactive", "dead"), ("failed", "failed")])
def test_a_loop_that_was_stopped_is_none_from_then_on(state: tuple[str, str]):
    """Its counter stays as high as it was, and its last start is not long ago."""
    active, sub = state
    stopped = failing(50, END_S - 30, active_state=active, sub_state=sub, load_state="masked")
    assert look(stopped, stopped).verdict is Verdict.ABSENT
    going_on = running(50, END_S - 30)
    assert look(going_on, going_on).verdict is Verdict.PRESENT
