"""What peers would have shown: our reading of their rules, on rows made by hand."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from bench.programs import find
from lab.peers import node_problem_detector, prometheus, screens
from lab.peers.series import SCRAPE_S, Key, scraped
from sexton.model.rows.cgroup import RootCgroupStat
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NetDevice
from sexton.model.rows.unit import Unit
from tests.support.windows import make_window

SECONDS = 1000
DEVICE = NetDevice("eth0", 0, 0, 0, 0, 0, 0, 0, 0)
UNIT = Unit("loop.service", "loaded", "activating", "auto-restart", None, 0, "always", 0, 0, 0, 0,
            "exit-code", 1, None, "systemd")  # fmt: skip


def core(cpu, second, system=0.0, user=0.0, since=0):
    """From `since` on the core spends these shares of each second."""
    busy = max(second - since, 0) * 1000
    sys_ms, user_ms = int(busy * system), int(busy * user)
    idle = second * 1000 - sys_ms - user_ms
    return CoreTimes(cpu, 7000 + user_ms, 0, 3000 + sys_ms, 9000 + idle, 0, 0, 11, 0)


def window(made, seconds=SECONDS):
    return make_window([(100.0 + second, made(second)) for second in range(seconds + 1)])


def loop(second):
    """One core of two burns from second 300 on; a unit restarts each 10 s; errors come late."""
    errors = max(second - 600, 0)
    return [
        core(0, second, system=1.0, since=300),
        core(1, second, user=0.1),
        VmCounter("pgmajfault", second * (700 if second > 500 else 1)),
        replace(DEVICE, rx_packets=second * 10, rx_errors=errors, tx_packets=0),
        replace(UNIT, restarts=second // 10, active_state="failed" if second > 900 else "active"),
    ]


def by_name(found):
    return {item.alert.name: item for item in found}


def test_a_crash_loop_is_pending_in_time_and_fires_after_its_quarter_of_an_hour():
    found = by_name(prometheus.raised(scraped(window(loop))))["NodeSystemdServiceCrashlooping"]
    assert found.pending_s <= 60
    assert found.fires_s == found.pending_s + 900
    assert found.fired


def test_an_alert_that_held_too_briefly_only_says_when_it_would_fire():
    found = by_name(prometheus.raised(scraped(window(loop, 400))))["NodeSystemdServiceCrashlooping"]
    assert not found.fired
    assert found.fires_s == found.pending_s + 900


def test_one_burning_core_of_two_is_no_high_cpu_usage_and_two_are():
    both = window(lambda second: [core(0, second, 1.0), core(1, second, 1.0)], 1100)
    assert "NodeCPUHighUsage" not in by_name(prometheus.raised(scraped(window(loop))))
    assert by_name(prometheus.raised(scraped(both)))["NodeCPUHighUsage"].fired


def test_a_quiet_node_raises_nothing():
    quiet = window(lambda second: [core(0, second, 0.1), DEVICE, UNIT])
    assert prometheus.raised(scraped(quiet)) == []


def test_a_counter_that_began_again_is_no_loss():
    samples = [(0.0, 90.0), (15.0, 100.0), (30.0, 5.0), (45.0, 20.0)]
    assert prometheus.rate(samples, 45.0, 45.0) == pytest.approx(30 / 45)


@pytest.mark.oracle
@pytest.mark.parametrize("seconds", [70, SECONDS])
def test_promtool_counts_as_many_series_for_every_expression(tmp_path, seconds):
    promtool = find("promtool")
    if promtool is None:
        pytest.skip("promtool is not there: scripts/system-packages unpacks it")
    scrapes = scraped(window(loop, seconds))
    # A unit that went away: stale for Prometheus, not there for us.
    gone = Key("node_systemd_unit_state", (("name", "gone.service"), ("state", "failed")))
    length = len(next(iter(scrapes.values())))
    scrapes = {**scrapes, gone: (1.0, 1.0, *(None,) * (length - 2))}
    (tmp_path / "test.yml").write_text(prometheus.promtool_test(scrapes))
    ended = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    true = {alert.name: sum(prometheus.true_at(alert, scrapes)) for alert in prometheus.alerts()}
    assert true["NodeSystemdServiceFailed"] >= 2
    if seconds == SECONDS:  # the comparison is worth something: most of them do hold at times
        assert sum(number > 0 for number in true.values()) >= 4


@pytest.mark.oracle
def test_promtool_refuses_another_answer(tmp_path):
    promtool = find("promtool")
    if promtool is None:
        pytest.skip("promtool is not there: scripts/system-packages unpacks it")
    text = prometheus.promtool_test(scraped(window(loop, 400)))
    assert "value: 1}" in text
    (tmp_path / "test.yml").write_text(text.replace("value: 1}", "value: 2}"))
    ended = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, check=False
    )
    assert ended.returncode == 1


def test_a_scrape_shows_the_last_reading_before_it():
    scrapes = scraped(window(loop, 60))
    restarts = scrapes[Key("node_systemd_service_restart_total", (("name", "loop.service"),))]
    assert restarts == tuple(float(int(n * SCRAPE_S) // 10) for n in range(5))


def event(message, second):
    return KernelEvent("p", "f", message, int((100 + second) * 1e6), None, {})


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("INFO: task kworker/1:2:77 blocked for more than 120 seconds.", "TaskHung"),
        ("Memory cgroup out of memory: Killed process 9 (stress) total-vm:10kB, anon-rss:5kB, "
         "file-rss:1kB, shmem-rss:0kB", "OOMKilling"),
    ],
)  # fmt: skip
def test_node_problem_detector_knows_hung_tasks_and_oom_kills(message, reason):
    lines = make_window([(100.0, [event("x", 0)]), (130.0, [event(message, 30)])])
    assert node_problem_detector.matched(lines) == [(reason, 30.0)]


@pytest.mark.parametrize(
    "message",
    [
        "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last "
        "napi 6596000 usec. napi scheduled: 1",
        "NETDEV WATCHDOG: eth0 (ena): transmit queue 0 timed out",
        "watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [kubelet:2113]",
    ],
)
def test_node_problem_detector_knows_neither_resets_nor_soft_lockups(message):
    assert node_problem_detector.matched(make_window([(100.0, [event(message, 0)])])) == []


def test_without_a_log_nothing_is_claimed_of_it():
    assert node_problem_detector.matched(make_window([(100.0, [core(0, 0)])])) is None


def test_mpstat_shows_the_core_from_its_first_full_second():
    (found,) = screens.mpstat(window(loop, 330))
    assert (found.kind, found.core, found.after_s) == ("system", 0, 301.0)
    assert found.seconds == pytest.approx(30)


def test_all_cpu_hides_one_core_of_two():
    minute, second = screens.graph(window(loop, 500))
    assert 50 <= minute <= 60
    assert 50 <= second <= 60


def test_below_shows_dying_cgroups_on_v2_alone():
    v2 = window(lambda second: [core(0, second, 0.5), RootCgroupStat(3, second, None)], 100)
    assert screens.below(window(loop, 100)).dying is None
    found = screens.below(v2)
    assert (found.dying, found.many_after_s) == (100, 50.0)
    assert found.system == pytest.approx(50, abs=1)


def test_every_rule_says_where_it_was_read():
    for book in (prometheus.book(), node_problem_detector.book()):
        assert "/" in book["source"]
        assert len(book["commit"]) == 40
    forms = {alert.form for alert in prometheus.alerts()}
    assert forms == {"busy_share", "rate", "rate_ratio", "ratio", "value", "increase"}
