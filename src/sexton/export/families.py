"""Every metric that is exported: name, type, labels, and how many series it can have at most.

This is the whole list: `Samples` refuses a name that is not here, docs/prometheus.md is generated
from it, and rules and dashboards are checked against it. `most` is the largest number of label
sets; together they bound the number of series of a node, whatever names it has.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sexton.detect.registry import detector_ids

#: In core-seconds; a histogram has a bucket for each, one for all, a sum and a count.
KERNEL_RATIOS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
#: The probe counts in powers of two microseconds, so these are exact. They reach beyond the 5 s
#: after which drivers reset a NIC.
WAIT_SECONDS = tuple(2**power / 1e6 for power in (7, 10, 13, 16, 18, 19, 20, 21, 22, 23, 24))
#: Log patterns of the node's owner are findings, too.
MOST_CUSTOM = 20


class Kind(StrEnum):
    """Prometheus' types of metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """One metric; `help` is one line. `buckets` are the upper bounds of a histogram."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    most: int = 1
    kind: Kind = Kind.GAUGE
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> int:
        """The largest number of series."""
        return self.most * (len(self.buckets) + 3 if self.buckets else 1)


def _counter(name: str, text: str, labels: tuple[str, ...] = (), most: int = 1) -> Family:
    return Family(name, text, labels, most, Kind.COUNTER)


BUILD = Family("sexton_build_info", "The version of Sexton; always 1.", ("version",))
NODE = Family(
    "sexton_node_info", "The node; always 1. hierarchy: v1, v2 or hybrid.",
    ("kernel", "hierarchy", "cores"),
)  # fmt: skip

VERDICT = Family(
    "sexton_verdict", "0 healthy, 1 a problem was found, 3 cannot tell: as diagnose exits."
)
VERDICT_TIME = Family("sexton_verdict_timestamp_seconds", "End of the judged window (UNIX time).")
VERDICT_WINDOW = Family("sexton_verdict_window_seconds", "Length of the judged window.")
FINDING = Family(
    "sexton_finding",
    "1 present, with its severity (info, warning, critical); 0 absent. No series: unknown or not"
    " applicable here.",
    ("detector", "severity"), len(detector_ids()) + MOST_CUSTOM,
)  # fmt: skip
EXPLAINED = Family(
    "sexton_finding_explained",
    "Of a problem that is present: 1 a chain names its cause; 0 it is a root cause, or its cause is"
    " unknown.",
    ("detector",), len(detector_ids()) + MOST_CUSTOM,
)  # fmt: skip
UNKNOWN = Family("sexton_findings_unknown", "Number of detectors that could not tell.")
CHAIN = Family(
    "sexton_chain", "A cause chain from its root cause to its last symptom; always 1.",
    ("root", "symptom", "strength"), 5,
)  # fmt: skip
CHAIN_INFO = Family(
    "sexton_chain_info",
    "The same chain in words, and the container, unit, cgroup or task at its root; always 1.",
    ("root", "symptom", "sentence", "culprit"), 5,
)  # fmt: skip

DYING = Family("sexton_memcgs_dying", "Dying memory cgroups of the node.")
LIVE = Family("sexton_memcgs_live", "Live memory cgroups of the node.")
LEAK = Family(
    "sexton_memcgs_leak_per_second",
    "Rate of a leak of memory cgroups that is proven, per second; 0 if none is.",
)
OWNERS = Family(
    "sexton_memcgs_owner_dying",
    "Dying memory cgroups by who left them: the ten with most, and 'other'.", ("owner",), 11,
)  # fmt: skip

CORE_KERNEL = Family(
    "sexton_core_kernel_ratio",
    "Share of each core's time in the kernel: one observation per core and reading (about 1 s).",
    kind=Kind.HISTOGRAM, buckets=KERNEL_RATIOS,
)  # fmt: skip
WORST_CORE = Family(
    "sexton_worst_core_kernel_ratio",
    "Highest share of one core's time in the kernel over the last refresh.",
)
WORST_CORE_INFO = Family(
    "sexton_worst_core_info",
    "Which core that is, and its busiest task; only if the share is at least 0.5.",
    ("core", "task"),
)  # fmt: skip
HELD_CORE = Family(
    "sexton_held_core_seconds",
    "Longest time that a core was held in the kernel in the judged window; only for held cores,"
    " the four worst.",
    ("core", "task"), 4,
)  # fmt: skip
SOFTIRQ_WAIT = Family(
    "sexton_softirq_wait_seconds",
    "Waits of softirqs from raise to entry, on all cores.", ("vector",), 2, Kind.HISTOGRAM,
    WAIT_SECONDS,
)  # fmt: skip
SOFTIRQ_PENDING = Family(
    "sexton_softirq_pending_seconds",
    "How long the oldest raise that is not served yet has been waiting; 0 if none is.",
    ("vector",), 2,
)  # fmt: skip

NIC_RESETS = _counter(
    "sexton_nic_resets_total",
    "Resets of a NIC, by its log lines and counters, whichever know more.", ("nic",), 16,
)  # fmt: skip
UNIT_RESTARTS = _counter(
    "sexton_unit_restarts_total", "Automatic restarts of a unit: the 20 with most.", ("unit",), 20
)

RECLAIM_RATIO = Family(
    "sexton_direct_reclaim_ratio",
    "Share of all pages scanned for reclaim that tasks scanned themselves; 0 without reclaim.",
)
RECLAIM = _counter(
    "sexton_reclaim_pages_scanned_total", "Pages scanned for reclaim: by tasks (direct) or kswapd.",
    ("by",), 2,
)  # fmt: skip
FAULTS = _counter("sexton_page_faults_total", "Page faults: minor or major.", ("kind",), 2)
THROTTLED = Family(
    "sexton_cgroup_throttled_ratio",
    "Time in which a cgroup was stopped by its CPU quota, its cores together, per second: the five"
    " worst.",
    ("cgroup",), 5,
)  # fmt: skip
PRESSURE = _counter(
    "sexton_pressure_waiting_seconds_total", "Pressure stall time (PSI).", ("resource", "kind"), 8
)
OOM_KILLS = _counter("sexton_oom_kills_total", "Processes that the OOM killer ended.")

SOURCE = Family(
    "sexton_source_up",
    "1 the source is read; 0 it is broken, denied or late. No series: the node has no such thing,"
    " or it was not requested.",
    ("source",), 64,
)  # fmt: skip
RECORDER = Family(
    "sexton_recorder_up", "1 a recorder runs and its last reading is fresh; 0 otherwise."
)
LAST_READING = Family(
    "sexton_recorder_last_reading_timestamp_seconds", "Time of the last reading (UNIX time)."
)
ALARMS = _counter("sexton_alarms_total", "Alarms since the recorder started.")
RECORDER_CPU = _counter(
    "sexton_recorder_cpu_seconds_total", "CPU time of the recorder: own, children or kernel.",
    ("part",), 3,
)  # fmt: skip
RECORDER_MEMORY = Family(
    "sexton_recorder_memory_bytes",
    "Resident memory of the recorder: own or children.",
    ("part",),
    2,
)
WRITTEN = _counter("sexton_recorder_written_bytes_total", "Bytes written to disk.")
LOST = _counter("sexton_recorder_lost_rows_total", "Rows that could not be written.")
SHED = Family(
    "sexton_recorder_shed",
    "A source that the recorder paused (rest) or reads less often (slow) to stay within its"
    " budget; always 1.",
    ("source", "how"), 16,
)  # fmt: skip
PROBLEM = Family("sexton_recorder_problem", "1 nothing can be written now; 0 otherwise.")
EXPORTER_CPU = _counter(
    "sexton_exporter_cpu_seconds_total", "CPU time of the exporter and of what it starts."
)
FAILURES = _counter(
    "sexton_exporter_failures_total", "Refreshes that failed; the reason is on standard error."
)
EXPORTER_MEMORY = Family("sexton_exporter_memory_bytes", "Resident memory of the exporter.")

FAMILIES = (
    BUILD, NODE, VERDICT, VERDICT_TIME, VERDICT_WINDOW, FINDING, EXPLAINED, UNKNOWN, CHAIN,
    CHAIN_INFO, DYING, LIVE, LEAK, OWNERS, CORE_KERNEL, WORST_CORE, WORST_CORE_INFO, HELD_CORE,
    SOFTIRQ_WAIT, SOFTIRQ_PENDING, NIC_RESETS, UNIT_RESTARTS, RECLAIM_RATIO, RECLAIM, FAULTS,
    THROTTLED, PRESSURE, OOM_KILLS, SOURCE, RECORDER, LAST_READING, ALARMS, RECORDER_CPU,
    RECORDER_MEMORY, WRITTEN, LOST, SHED, PROBLEM, EXPORTER_CPU, EXPORTER_MEMORY, FAILURES,
)  # fmt: skip


def most_series() -> int:
    """No node has more.

    >>> most_series() <= 400
    True
    """
    return sum(family.series for family in FAMILIES)
