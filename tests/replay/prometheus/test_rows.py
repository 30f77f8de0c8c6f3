"""Samples become readings: their times, gaps, resets and jobs."""

from __future__ import annotations

import pytest

from sexton.detect.registry import detector_of
from sexton.model.finding import Verdict
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.filesystem import Filesystem
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NicCounter, TcpCounters
from sexton.replay.prometheus.client import Samples
from sexton.replay.prometheus.rows import scraped
from sexton.replay.prometheus.table import table_of
from sexton.replay.prometheus.window import window
from sexton.series.rates import steps_of


def of(kind, *series, boot=1000.0):
    """The readings of a table; a series is its labels with (time, value) pairs."""
    made = [Samples(labels, list(values)) for labels, values in series]
    return scraped(table_of(kind), made, boot)


def vmstat(name, *values):
    return {"__name__": f"node_vmstat_{name}"}, values


def test_a_reading_has_the_time_of_its_scrape_and_raw_counters():
    found = of(VmCounter, vmstat("pgfault", (1010.5, 7), (1025.5, 9)))
    assert [(one.mono_s, one.wall_s) for one in found.batches] == [(10.5, 1010.5), (25.5, 1025.5)]
    assert [one.rows for one in found.batches] == [
        (VmCounter("pgfault", 7),),
        (VmCounter("pgfault", 9),),
    ]
    assert (found.usual_s, found.longest_s) == (15, 15)


def test_a_failed_scrape_makes_a_longer_step_and_an_outage_none():
    times = [1000, 1015, 1030, 1060, 1075, 2000, 2015]
    found = of(VmCounter, vmstat("pgfault", *((at, at) for at in times)))
    assert (found.usual_s, found.longest_s) == (15, 925)
    assert [one.follows for one in found.batches] == [True] * 5 + [False, True]


def test_samples_of_the_boot_before_are_left_out():
    found = of(VmCounter, vmstat("pgfault", (990, 10**9), (1005, 3), (1020, 5)), boot=1000.0)
    assert [row.value for one in found.batches for row in one.rows] == [3, 5]


def test_containers_that_cadvisor_dates_each_by_itself_are_one_reading():
    def mine(path, at):
        name = "container_cpu_cfs_{}_total"
        fields = ("periods", "throttled_periods", "throttled_seconds")
        return [
            ({"__name__": name.format(field), "id": path},
             [(1000 + at + 30 * n, 10 * n) for n in range(3)])
            for field in fields
        ]  # fmt: skip

    found = of(CgroupThrottle, *mine("/a", 0.0), *mine("/b", 9.0))
    assert len(found.batches) == 3
    assert {row.path for row in found.batches[0].rows} == {"/a", "/b"}
    assert found.batches[2].rows[0].throttled_us == 20_000_000


def test_a_row_that_lacks_a_field_or_has_a_hostile_label_is_left_out():
    def core(cpu, *modes):
        return [({"__name__": "node_cpu_seconds_total", "cpu": cpu, "mode": mode}, [(1010, 1.5)])
                for mode in modes]  # fmt: skip

    every = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    odd = core("99999999", *every) + core("x", *every) + core("1", *every[:3])
    found = of(CoreTimes, *core("0", *every, "guest"), *odd)
    assert [row.cpu for row in found.batches[0].rows] == [0]
    assert found.batches[0].rows[0].steal_ms == 1500
    assert of(VmCounter, vmstat("pgfault", (1010, -1), (1020, 1e300))).batches == []


def test_fields_that_are_off_by_default_are_unknown_and_not_zero():
    named = {"Tcp_InSegs": 1, "Tcp_OutSegs": 2, "Tcp_RetransSegs": 3, "TcpExt_TCPTimeouts": 4}
    series = [({"__name__": f"node_netstat_{name}"}, [(1010, n)]) for name, n in named.items()]
    aborts = ({"__name__": "node_netstat_TcpExt_TCPAbortOnTimeout"}, [(1010, 9)])
    (row,) = of(TcpCounters, *series, aborts).batches[0].rows
    assert (row.retransmitted_segments, row.timeouts) == (3, 4)
    assert row.attempt_fails is None
    assert row.aborts_on_timeout is None  # it means nothing without the failed attempts


def test_a_filesystem_counts_once_and_foreign_ones_do_not():
    def mount(point, device, fstype):
        about = {"mountpoint": point, "device": device, "fstype": fstype}
        return [({"__name__": f"node_filesystem_{name}", **about}, [(1010, 5)])
                for name in ("size_bytes", "free_bytes", "avail_bytes", "readonly")]  # fmt: skip

    again = mount("/data/more", "/dev/sda1", "ext4")
    once = [*mount("/", "/dev/sda1", "ext4"), *mount("/dev/shm", "tmpfs", "tmpfs")]
    found = of(Filesystem, *again, *once, *mount("/nfs", "server:/x", "nfs4"))
    rows = {row.mount_point: row.device for row in found.batches[0].rows}
    assert rows == {"/": "sda1", "/dev/shm": ""}


def test_ethtool_counters_get_their_own_names_back():
    labels = {"__name__": "node_ethtool_queue_5_transmitted_missed_tx", "device": "eth0"}
    (row,) = of(NicCounter, (labels, [(1010, 2)])).batches[0].rows
    assert row == NicCounter("eth0", "queue_5_tx_missed_tx", 2)


class Jobs:
    """Two jobs scrape one exporter; a third exporter is another node's."""

    url = "http://jobs"

    def __init__(self, boots=(1000.0,)):
        self._boots = boots
        self.asked = []

    def series(self, selector, start, end):
        if "machine_cpu" in selector:
            return []
        return [
            {"__name__": "node_uname_info", "nodename": name, "release": "6.1", "job": job,
             "instance": f"{name}:9100"}
            for name, job in (("n1", "node"), ("n1", "again"), ("n2", "node"))
        ]  # fmt: skip

    def samples(self, selector, start, end):
        self.asked.append(selector)
        if "node_boot_time" in selector:
            boots = enumerate(self._boots)
            return [Samples({"__name__": "node_boot_time_seconds"},
                            [(2000 + 60 * n, boot) for n, boot in boots])]  # fmt: skip
        if "node_vmstat" in selector:
            return [Samples({"__name__": "node_vmstat_pgfault"},
                            [(1900 + 15 * n, n) for n in range(20)])]  # fmt: skip
        return []


@pytest.mark.parametrize("name", ["n1", "n1:9100"])
def test_one_of_two_jobs_is_judged_and_the_other_named(name):
    client = Jobs()
    found = window(client, name, 1900.0, 2200.0)
    assert all('job="again"' in selector for selector in client.asked)
    assert found.notes[0] == "2 jobs scrape its node_exporter; judged by job again"


def test_an_exporter_that_was_restarted_in_another_pod_is_the_same():
    class Pods(Jobs):
        def series(self, selector, start, end):
            found = enumerate(super().series(selector, start, end))
            return [{**labels, "job": "node", "pod": f"exporter-{at}"} for at, labels in found]

    client = Pods()
    found = window(client, "n1", 1900.0, 2200.0)
    assert not any("jobs" in note for note in found.notes)
    assert not any("pod" in selector for selector in client.asked)


def test_memory_cgroups_that_pile_up_are_shown_though_who_is_dying_is_unknown():
    class Piling(Jobs):
        def samples(self, selector, start, end):
            if "node_cgroups" not in selector:
                return super().samples(selector, start, end)
            labels = {"__name__": "node_cgroups_cgroups", "subsys_name": "memory"}
            values = [(1900 + 15 * n, 240 + 10 * n) for n in range(20)]
            return [Samples(labels, [pair for pair in values if pair[0] >= start])]

    for boots, first in (((1000.0,), "240"), ((1000.0, 2000.0), "310")):
        found = window(Piling(boots), "n2", 1900.0, 2200.0).window
        finding = detector_of("zombie_memcgs").run(found)
        assert finding.verdict is Verdict.UNKNOWN
        assert f"430 memory cgroups ({first} at the start), live and dying" in finding.summary


def test_before_the_last_boot_nothing_is_judged():
    found = window(Jobs((1000.0, 2000.0)), "n2", 1900.0, 2200.0)
    assert "the node booted 3 min" in found.notes[0]
    assert found.window.start >= 2000.0
    steps = steps_of(found.window.columns(VmCounter, ("value",)))
    assert steps.start.min() >= 0


def test_restarts_before_the_window_may_be_a_slow_loop():
    """Whether a unit that restarted often is still at it shows in its last start only."""

    class Restarts(Jobs):
        def samples(self, selector, start, end):
            if "node_systemd" not in selector:
                return super().samples(selector, start, end)
            labels = {"__name__": "node_systemd_service_restart_total", "name": "a.service"}
            return [Samples(labels, [(1900 + 15 * n, 400) for n in range(20)])]

    found = window(Restarts(), "n2", 1900.0, 2200.0).window
    finding = detector_of("crash_looping_unit").run(found)
    assert finding.verdict is Verdict.UNKNOWN
    assert "a.service restarted 400 times so far" in finding.summary
