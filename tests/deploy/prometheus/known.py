"""The metrics that rules may use, and what a PromQL expression uses."""

from __future__ import annotations

import re

#: What the exporter serves, by name.
GAUGES = {
    "sexton_build_info",
    "sexton_node_info",
    "sexton_verdict",
    "sexton_verdict_timestamp_seconds",
    "sexton_verdict_window_seconds",
    "sexton_finding",
    "sexton_finding_explained",
    "sexton_findings_unknown",
    "sexton_chain",
    "sexton_chain_info",
    "sexton_memcgs_dying",
    "sexton_memcgs_live",
    "sexton_memcgs_leak_per_second",
    "sexton_memcgs_owner_dying",
    "sexton_worst_core_kernel_ratio",
    "sexton_worst_core_info",
    "sexton_held_core_seconds",
    "sexton_softirq_pending_seconds",
    "sexton_direct_reclaim_ratio",
    "sexton_cgroup_throttled_ratio",
    "sexton_source_up",
    "sexton_recorder_up",
    "sexton_recorder_last_reading_timestamp_seconds",
    "sexton_recorder_memory_bytes",
    "sexton_recorder_shed",
    "sexton_recorder_problem",
    "sexton_exporter_memory_bytes",
}
COUNTERS = {
    "sexton_nic_resets_total",
    "sexton_unit_restarts_total",
    "sexton_reclaim_pages_scanned_total",
    "sexton_page_faults_total",
    "sexton_pressure_waiting_seconds_total",
    "sexton_oom_kills_total",
    "sexton_alarms_total",
    "sexton_recorder_cpu_seconds_total",
    "sexton_recorder_written_bytes_total",
    "sexton_recorder_lost_rows_total",
    "sexton_exporter_cpu_seconds_total",
}
HISTOGRAMS = {"sexton_core_kernel_ratio", "sexton_softirq_wait_seconds"}
#: Those, what a histogram is made of, and the one that Prometheus adds to every target.
KNOWN = GAUGES | COUNTERS | {"up"}
KNOWN |= {name + part for name in HISTOGRAMS for part in ("_bucket", "_count", "_sum")}

_WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"}
_WORDS |= {"group_left", "group_right"}


def metrics(expression: str) -> set[str]:
    """The names of metrics in an expression.

    >>> sorted(metrics('sum by (a) (rate(x_total{b="y"}[5m])) and on (c) i:z:ratio == bool 1e3'))
    ['i:z:ratio', 'x_total']
    """
    text = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]|\boffset\s+\w+|#.*", "", text)
    grouping = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
    text = re.sub(grouping, " ", text)
    names = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])", text)
    return {name for name in names if name not in _WORDS}


def queries(template: str) -> list[str]:
    """The PromQL in a Prometheus template, with what `printf` fills in left empty.

    >>> queries('{{ with query (printf "up{job=%q}" $labels.job) }}{{ . | first }}{{ end }}')
    ['up{job=""}']
    """
    found = re.findall(r'query \(?(?:printf )?"((?:[^"\\]|\\.)*)"', template)
    return [query.replace("%q", '""').replace('\\"', '"') for query in found]
