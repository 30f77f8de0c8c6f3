"""The board of one node, in the order in which an on-call engineer reads: what is wrong, why, and
what to do; then what the verdict rests on; at the end whether it can be trusted."""

from __future__ import annotations

from deploy.grafana.boards import links, states
from deploy.grafana.boards.model import (
    BarGauge,
    Board,
    Choice,
    Column,
    Event,
    Graph,
    Heatmap,
    Query,
    Row,
    Stat,
    Steps,
    Table,
    Text,
    Timeline,
    custom_variable,
    datasource_variable,
    mapping,
    of_query,
)


def _query(expr: str, legend: str = "", shape: str = "range") -> Query:
    return Query(links.node_expr(expr), legend, shape)


_TO_EXPLORER = (links.EXPLORER_AT,)

VERDICT = Stat(
    title="Verdict",
    says="What sexton diagnose would say of the last minutes. Normal: healthy. 'Cannot tell' is no"
    " good news: an essential detector lacks its data. 'no data': the node is not judged, because"
    " nothing was recorded for a minute or it cannot be scraped.",
    width=4,
    height=6,
    unit="none",
    queries=(_query("sexton_verdict{$of}", "verdict", "instant"),),
    mappings=states.VERDICT,
)

CURRENT = Stat(
    title="Can it be trusted?",
    says="Normal: the scrape works, the recorder is recording and can write, the verdict is at"
    " most two minutes old, and few detectors cannot tell. A tile that is missing is unknown:"
    " where nobody records, there is no 'writes'.",
    width=12,
    height=6,
    unit="none",
    queries=(
        _query("up{$of}", "scrape", "instant"),
        _query("sexton_recorder_up{$of}", "recorder", "instant"),
        _query("sexton_recorder_problem{$of}", "writes", "instant"),
        _query("time() - sexton_verdict_timestamp_seconds{$of}", "age of the verdict", "instant"),
        _query("sexton_findings_unknown{$of}", "detectors that cannot tell", "instant"),
    ),
    overrides=(
        of_query("A", mappings=mapping(*states.SCRAPE)),
        of_query("B", mappings=mapping(*states.RECORDER)),
        of_query("C", mappings=mapping(*states.WRITING)),
        of_query(
            "D",
            unit="s",
            decimals=0,
            thresholds=Steps("green", ((180, "orange"), (600, "red"))).json(),
        ),
        of_query("E", thresholds=Steps("green", ((1, "yellow"), (10, "orange"))).json()),
    ),
)

WHAT_TO_DO = Text(
    title="What to do",
    says="The way from this board to the cause, in this order.",
    width=8,
    height=6,
    content=f"""\
1. Read the chain below from left to right: fix its first part, the rest follows from it.
2. Click a root cause or a problem for its **runbook**: how to check by hand, what to do.
3. **[Open the explorer at this time]({links.EXPLORER_URL})**: cores, tasks, kernel stacks.
4. On the node: `sudo sexton diagnose`, then `sudo sexton fix plan`; it changes nothing.
""",
)

CHAINS = Table(
    title="Cause chains",
    says="How one problem leads to the next, the root cause first; a chain is proven, likely or"
    " possible by written rules. Normal: none. The culprit is the unit, cgroup or task at the"
    " root; empty where it names none.",
    width=24,
    height=6,
    unit="none",
    no_value="no cause chain: nothing is wrong, or the problems below stand alone",
    queries=(
        _query(f"max by (sentence, root, culprit, symptom) ({states.CHAINS})", shape="table"),
    ),
    columns=(
        Column("sentence", "Chain", links=(links.EXPLORER,)),
        Column("root", "Root cause", 200, (links.runbook("root"),)),
        Column("culprit", "Culprit", 240),
        Column("symptom", "Last symptom", 170, (links.runbook("symptom"),)),
        Column(
            "Value",
            "Strength",
            100,
            more={
                "mappings": mapping(*states.STRENGTH),
                "custom.cellOptions": {"type": "color-text"},
            },
        ),
    ),
    sort="Strength",
)

PROBLEMS = Table(
    title="Problems found",
    says="Findings that are present now. Normal: none, or info only. 'Root cause, or cause"
    " unknown' is where to look first.",
    width=12,
    height=9,
    unit="none",
    no_value="no problem found",
    queries=(
        _query(
            'max by (detector) (3 * (sexton_finding{$of, severity="critical"} == 1)'
            ' or 2 * (sexton_finding{$of, severity="warning"} == 1)'
            ' or (sexton_finding{$of, severity="info"} == 1))',
            shape="table",
        ),
        _query("max by (detector) (sexton_finding_explained{$of})", shape="table"),
    ),
    columns=(
        Column("detector", "Problem", 200, (links.runbook("detector"), links.EXPLORER)),
        Column(
            "Value #A",
            "Severity",
            100,
            more={
                "mappings": mapping(*states.SEVERITY),
                "custom.cellOptions": {"type": "color-text"},
            },
        ),
        Column(
            "Value #B",
            "Cause",
            more={
                "mappings": mapping(*states.EXPLAINED),
                "custom.cellOptions": {"type": "color-text"},
            },
        ),
    ),
    sort="Severity",
)

TIMELINE = Timeline(
    title="Verdict and problems over time",
    says="The verdict on top, then each problem while it was present. Normal: one green bar. A gap"
    " in the verdict is time in which nobody judged the node, not health.",
    width=12,
    height=9,
    unit="none",
    queries=(
        _query("sexton_verdict{$of}", "verdict"),
        _query(
            'max by (detector) (3 * (sexton_finding{$of, severity="critical"} == 1)'
            ' or 2 * (sexton_finding{$of, severity="warning"} == 1))',
            "{{detector}}",
        ),
    ),
    mappings=states.SEVERITY,
    overrides=(of_query("A", mappings=mapping(*states.VERDICT)),),
)

MEMCGS = Graph(
    title="Memory cgroups: dying, live, leak",
    says="Dying: removed, but still in the kernel because memory is charged to them; whatever"
    " walks all memory cgroups gets slower with each. Normal: a few dozen, and not growing. The"
    " leak, on the right, is a growth that is proven, and 0 where none is.",
    width=14,
    height=8,
    unit="short",
    queries=(
        _query("sexton_memcgs_dying{$of}", "dying"),
        _query("sexton_memcgs_live{$of}", "live"),
        _query("3600 * sexton_memcgs_leak_per_second{$of}", "leak per hour"),
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
    queries=(_query("sort_desc(sexton_memcgs_owner_dying{$of})", "{{owner}}", "instant"),),
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
        _query(
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
        _query("sexton_worst_core_kernel_ratio{$of}", "worst core"),
        _query(
            "sexton_worst_core_info{$of} * on (job, instance) group_left ()"
            " sexton_worst_core_kernel_ratio{$of}",
            "core {{core}}: {{task}}",
        ),
        _query("sexton_held_core_seconds{$of}", "core {{core}} held by {{task}}"),
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
        _query(
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
        _query(
            "histogram_quantile(0.99, sum by (vector, le)"
            " (rate(sexton_softirq_wait_seconds_bucket{$of}[$__rate_interval])))",
            "{{vector}} p99",
        ),
        _query("sexton_softirq_pending_seconds{$of}", "{{vector}} waiting now"),
        _query(
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
        _query("round(increase(sexton_nic_resets_total{$of}[$__rate_interval]))", "{{nic}} reset"),
        _query("round(increase(sexton_oom_kills_total{$of}[$__rate_interval]))", "OOM kills"),
        _query("round(increase(sexton_alarms_total{$of}[$__rate_interval]))", "alarms"),
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
    queries=(_query("3600 * rate(sexton_unit_restarts_total{$of}[$__rate_interval])", "{{unit}}"),),
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
        _query("rate(sexton_reclaim_pages_scanned_total{$of}[$__rate_interval])", "{{by}}"),
        _query("sexton_direct_reclaim_ratio{$of}", "share of direct"),
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
        _query('rate(sexton_page_faults_total{$of, kind="minor"}[$__rate_interval])', "minor"),
        _query('rate(sexton_page_faults_total{$of, kind="major"}[$__rate_interval])', "major"),
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
    no_value="no cgroup was throttled",
    queries=(_query("sexton_cgroup_throttled_ratio{$of}", "{{cgroup}}"),),
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
        _query(
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
        _query("rate(sexton_recorder_cpu_seconds_total{$of}[$__rate_interval])", "CPU: {{part}}"),
        _query("rate(sexton_exporter_cpu_seconds_total{$of}[$__rate_interval])", "CPU: exporter"),
        _query("sexton_recorder_memory_bytes{$of}", "memory: {{part}}"),
        _query("sexton_exporter_memory_bytes{$of}", "memory: exporter"),
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
        _query("rate(sexton_recorder_written_bytes_total{$of}[$__rate_interval])", "written"),
        _query("increase(sexton_recorder_lost_rows_total{$of}[$__rate_interval])", "lost rows"),
        _query(
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
    says="What the recorder reads, broken ones first. Normal: all are read and none is shed. A"
    " source that is missing does not exist on this node. Shed: paused (rest) or read less often"
    " (slow) to stay within the recorder's budget; detectors that need it cannot tell meanwhile.",
    width=9,
    height=8,
    unit="none",
    queries=(
        _query("max by (source) (sexton_source_up{$of})", shape="table"),
        _query("max by (source, how) (sexton_recorder_shed{$of})", shape="table"),
    ),
    columns=(
        Column("source", "Source"),
        Column(
            "Value #A",
            "State",
            170,
            more={
                "mappings": mapping(*states.SOURCE),
                "custom.cellOptions": {"type": "color-text"},
            },
        ),
        Column("how", "Shed", 80),
    ),
    hidden=("Value #B",),
    sort="State",
    descending=False,
)

BOARD = Board(
    uid=links.NODE_UID,
    title="Sexton: node",
    says="What is wrong with one node, why, and what to do about it.",
    variables=(
        datasource_variable(),
        Choice("job", "Job", "label_values(sexton_build_info, job)").json(),
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
        Row(
            "What is wrong, why, and what to do",
            (VERDICT, CURRENT, WHAT_TO_DO, CHAINS, PROBLEMS, TIMELINE),
        ),
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
