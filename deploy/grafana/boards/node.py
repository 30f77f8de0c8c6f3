"""The board of one node, in the order in which an on-call engineer reads: what is wrong, why, and
what to do; then what the verdict rests on; at the end whether it can be trusted."""

from __future__ import annotations

from deploy.grafana.boards import links, states, verdict
from deploy.grafana.boards.board import (
    Board,
    Choice,
    Event,
    Row,
    custom_variable,
    datasource_variable,
)
from deploy.grafana.boards.links import node_query
from deploy.grafana.boards.panels import BarGauge, Column, Graph, Heatmap, Table, coloured
from deploy.grafana.boards.parts import Steps, of_query

_TO_EXPLORER = (links.EXPLORER_AT,)

MEMCGS = Graph(
    title="Memory cgroups: dying, live, leak",
    says="Dying: removed, but still in the kernel because memory is charged to them; whatever"
    " walks all memory cgroups gets slower with each. Normal: a few dozen, and not growing. The"
    " leak, on the right, is a growth that is proven, and 0 where none is.",
    width=14,
    height=8,
    unit="short",
    queries=(
        node_query("sexton_memcgs_dying{$of}", "dying"),
        node_query("sexton_memcgs_live{$of}", "live"),
        node_query("3600 * sexton_memcgs_leak_per_second{$of}", "leak per hour"),
    ),
    steps=Steps("transparent", ((1_000, "orange"), (10_000, "red")), drawn=True),
    bounds=(0, None),
    overrides=(
        of_query(
            "C",
            unit="suffix: /h",
            custom__axisPlacement="right",
            custom__fillOpacity=0,
            custom__thresholdsStyle={"mode": "off"},
        ),
    ),
    links=_TO_EXPLORER,
)

OWNERS = BarGauge(
    title="Who left the dying ones",
    says="Dying memory cgroups by the unit or cgroup that created them: the ten with most, and all"
    " others as 'other'. Normal: no owner with more than a few dozen.",
    width=10,
    height=8,
    unit="short",
    no_value="owners unknown, or no dying memory cgroups",
    queries=(node_query("sort_desc(sexton_memcgs_owner_dying{$of})", "{{owner}}", "instant"),),
    steps=Steps("green", ((500, "orange"), (5_000, "red"))),
    bounds=(0, None),
)

CORES = Heatmap(
    title="Share of each core's time in the kernel",
    says="Readings of all cores by their share in the kernel: the darker, the more. Normal: nearly"
    " everything below 0.5. A thin line at the top is one core that is held, which no average of"
    " the node shows.",
    width=12,
    height=8,
    unit="percentunit",
    queries=(
        node_query(
            "sum by (le) (increase(sexton_core_kernel_ratio_bucket{$of}[$__rate_interval]))",
            "{{le}}",
            "heatmap",
        ),
    ),
)

WORST_CORE = Graph(
    title="Worst core, its task, and cores held",
    says="The highest share of one core in the kernel, with its number and busiest task from 50 %"
    " on. Normal: below 90 %. On the right, for how long a core was held in the last judged"
    " minutes: drivers reset a NIC after 5 s.",
    width=12,
    height=8,
    unit="percentunit",
    queries=(
        node_query("sexton_worst_core_kernel_ratio{$of}", "worst core"),
        node_query(
            "sexton_worst_core_info{$of} * on (job, instance) group_left ()"
            " sexton_worst_core_kernel_ratio{$of}",
            "core {{core}}: {{task}}",
        ),
        node_query("sexton_held_core_seconds{$of}", "core {{core}} held by {{task}}"),
    ),
    steps=Steps("transparent", ((0.9, "red"),), drawn=True),
    bounds=(0, None),
    overrides=(
        of_query("A", max=1),
        of_query("B", max=1, custom__drawStyle="points", custom__pointSize=6),
        of_query(
            "C", unit="s", custom__axisPlacement="right", custom__thresholdsStyle={"mode": "off"}
        ),
    ),
    links=_TO_EXPLORER,
)

SOFTIRQS = Heatmap(
    title="Waits of network softirqs",
    says="From raise to entry of NET_RX and NET_TX, all cores. Normal: below 8 ms. Waits of"
    " seconds starve a NIC's queues; drivers reset it after 5 s. Needs the recorder's softirq"
    " probe.",
    width=12,
    height=8,
    unit="s",
    no_value="no data: the softirq probe does not run here",
    queries=(
        node_query(
            "sum by (le) (increase(sexton_softirq_wait_seconds_bucket{$of}[$__rate_interval]))",
            "{{le}}",
            "heatmap",
        ),
    ),
)

SOFTIRQ_TAIL = Graph(
    title="Slowest softirq waits",
    says="99 of 100 waits are shorter than the p99; normal: milliseconds. 'Waiting now' is a raise"
    " that was not served yet; normal: 0. On the right, the share of waits over one second;"
    " normal: 0.",
    width=12,
    height=8,
    unit="s",
    no_value="no data: the softirq probe does not run here",
    queries=(
        node_query(
            "histogram_quantile(0.99, sum by (vector, le)"
            " (rate(sexton_softirq_wait_seconds_bucket{$of}[$__rate_interval])))",
            "{{vector}} p99",
        ),
        node_query("sexton_softirq_pending_seconds{$of}", "{{vector}} waiting now"),
        node_query(
            "1 - sum by (vector)"
            ' (rate(sexton_softirq_wait_seconds_bucket{$of, le="1.048576"}[$__rate_interval]))'
            " / sum by (vector) (rate(sexton_softirq_wait_seconds_count{$of}[$__rate_interval]))",
            "{{vector}} share over 1 s",
        ),
    ),
    steps=Steps("transparent", ((1, "orange"), (5, "red")), drawn=True),
    bounds=(0, None),
    overrides=(
        of_query(
            "C",
            unit="percentunit",
            custom__axisPlacement="right",
            custom__thresholdsStyle={"mode": "off"},
        ),
    ),
    links=_TO_EXPLORER,
)

EVENTS = Graph(
    title="NIC resets, OOM kills, alarms",
    says="Events as they were counted; each is drawn for about a minute. Normal: none. Alarms are"
    " the recorder's own: moments from which it keeps more detail.",
    width=12,
    height=7,
    unit="short",
    decimals=0,
    style="bars",
    queries=(
        node_query(
            "round(increase(sexton_nic_resets_total{$of}[$__rate_interval]))", "{{nic}} reset"
        ),
        node_query("round(increase(sexton_oom_kills_total{$of}[$__rate_interval]))", "OOM kills"),
        node_query("round(increase(sexton_alarms_total{$of}[$__rate_interval]))", "alarms"),
    ),
    bounds=(0, None),
    links=_TO_EXPLORER,
)

RESTARTS = Graph(
    title="Automatic restarts of units",
    says="Restarts per hour of the 20 units with most. Normal: 0. A steady line is a crash loop;"
    " each death may leave a dying memory cgroup.",
    width=12,
    height=7,
    unit="suffix: /h",
    no_value="no unit was restarted, or units cannot be read",
    queries=(
        node_query("3600 * rate(sexton_unit_restarts_total{$of}[$__rate_interval])", "{{unit}}"),
    ),
    bounds=(0, None),
    links=_TO_EXPLORER,
)

RECLAIM = Graph(
    title="Reclaim",
    says="Pages scanned per second: by tasks, which wait meanwhile (direct), or in the background"
    " (kswapd). Normal: direct below 1,000 a second. On the right, the share of direct.",
    width=6,
    height=8,
    unit="suffix: pages/s",
    queries=(
        node_query("rate(sexton_reclaim_pages_scanned_total{$of}[$__rate_interval])", "{{by}}"),
        node_query("sexton_direct_reclaim_ratio{$of}", "share of direct"),
    ),
    bounds=(0, None),
    overrides=(of_query("B", unit="percentunit", max=1, custom__axisPlacement="right"),),
    links=_TO_EXPLORER,
)

FAULTS = Graph(
    title="Page faults",
    says="Per second. Normal: minor up to some 10,000 per core while programs start; major, on the"
    " right, wait for a disk and stay below 500.",
    width=6,
    height=8,
    unit="suffix: /s",
    queries=(
        node_query('rate(sexton_page_faults_total{$of, kind="minor"}[$__rate_interval])', "minor"),
        node_query('rate(sexton_page_faults_total{$of, kind="major"}[$__rate_interval])', "major"),
    ),
    bounds=(0, None),
    overrides=(of_query("B", custom__axisPlacement="right"),),
    links=_TO_EXPLORER,
)

THROTTLING = Graph(
    title="CPU throttling",
    says="Share of time in which a cgroup was stopped by its CPU quota, its cores together: the"
    " five worst. Normal: below 25 %. Can be over 100 % where several cores were stopped.",
    width=6,
    height=8,
    unit="percentunit",
    no_value="no cgroup was throttled, or none can be read",
    queries=(node_query("sexton_cgroup_throttled_ratio{$of}", "{{cgroup}}"),),
    steps=Steps("transparent", ((0.25, "orange"),), drawn=True),
    bounds=(0, None),
    links=_TO_EXPLORER,
)

PRESSURE = Graph(
    title="Pressure (PSI)",
    says="Share of time in which some or all tasks waited for CPU, memory or I/O. Normal: memory"
    " and I/O below 5 %; CPU 'some' is high on every busy node.",
    width=6,
    height=8,
    unit="percentunit",
    no_value="no data: this kernel has no PSI",
    queries=(
        node_query(
            "rate(sexton_pressure_waiting_seconds_total{$of}[$__rate_interval])",
            "{{resource}} {{kind}}",
        ),
    ),
    bounds=(0, None),
    links=_TO_EXPLORER,
)

COST = Graph(
    title="What Sexton costs here",
    says="Share of one core: the recorder, its children, its probe in the kernel, and the"
    " exporter. Normal: below 2 % together; above, the recorder pauses sources. On the right,"
    " memory; normal: below 200 MB.",
    width=9,
    height=8,
    unit="percentunit",
    queries=(
        node_query(
            "rate(sexton_recorder_cpu_seconds_total{$of}[$__rate_interval])", "CPU: {{part}}"
        ),
        node_query(
            "rate(sexton_exporter_cpu_seconds_total{$of}[$__rate_interval])", "CPU: exporter"
        ),
        node_query("sexton_recorder_memory_bytes{$of}", "memory: {{part}}"),
        node_query("sexton_exporter_memory_bytes{$of}", "memory: exporter"),
    ),
    bounds=(0, None),
    overrides=(
        of_query("C", unit="bytes", custom__axisPlacement="right", custom__fillOpacity=0),
        of_query("D", unit="bytes", custom__axisPlacement="right", custom__fillOpacity=0),
    ),
)

WRITTEN = Graph(
    title="Written, and what was lost",
    says="Bytes per second that the recorder writes; normal: some 10 kB. On the right, rows that"
    " could not be written and refreshes of the exporter that failed; normal: 0.",
    width=6,
    height=8,
    unit="Bps",
    queries=(
        node_query("rate(sexton_recorder_written_bytes_total{$of}[$__rate_interval])", "written"),
        node_query("increase(sexton_recorder_lost_rows_total{$of}[$__rate_interval])", "lost rows"),
        node_query(
            "increase(sexton_exporter_failures_total{$of}[$__rate_interval])", "failed refreshes"
        ),
    ),
    bounds=(0, None),
    overrides=(
        of_query("B", unit="short", custom__axisPlacement="right"),
        of_query("C", unit="short", custom__axisPlacement="right"),
    ),
)

SOURCES = Table(
    title="Sources",
    says="What the recorder reads, broken ones first. Normal: all are read. A source that is"
    " missing does not exist on this node. Sources are paused or read less often to stay within"
    " the recorder's budget; detectors that need them cannot tell meanwhile.",
    width=9,
    height=8,
    unit="none",
    queries=(
        node_query(
            'max by (source) (sexton_recorder_shed{$of, how="rest"})'
            ' or 2 * max by (source) (sexton_recorder_shed{$of, how="slow"})'
            " or 3 * max by (source) (sexton_source_up{$of})",
            shape="table",
        ),
    ),
    columns=(
        Column("source", "Source"),
        Column("Value", "State", 180, more=coloured(states.SOURCE)),
    ),
    sort="State",
    descending=False,
)

BOARD = Board(
    uid=links.NODE_UID,
    title="Sexton: node",
    says="What is wrong with one node, why, and what to do about it.",
    variables=(
        datasource_variable(),
        Choice("job", "Job", links.JOBS).json(),
        Choice("instance", "Node", "label_values(up{job=`${job:raw}`}, instance)").json(),
        custom_variable("scheme", "Links by", ("http", "https")),
    ),
    links=(links.EXPLORER, links.FLEET_BOARD),
    events=(
        Event(
            "NIC resets",
            links.node_expr("increase(sexton_nic_resets_total{$of}[$__rate_interval]) > 0"),
            "NIC {{nic}} was reset",
            "red",
        ),
        Event(
            "OOM kills",
            links.node_expr("increase(sexton_oom_kills_total{$of}[$__rate_interval]) > 0"),
            "OOM killer",
            "orange",
        ),
    ),
    rows=(
        Row("What is wrong, why, and what to do", verdict.PANELS),
        Row("Dying memory cgroups", (MEMCGS, OWNERS)),
        Row(
            "Cores, network softirqs, NICs and units",
            (CORES, WORST_CORE, SOFTIRQS, SOFTIRQ_TAIL, EVENTS, RESTARTS),
        ),
        Row(
            "Side by side: each makes a job slow in the same way, and has another owner",
            (RECLAIM, FAULTS, THROTTLING, PRESSURE),
        ),
        Row("Sexton itself", (COST, WRITTEN, SOURCES)),
    ),
)
