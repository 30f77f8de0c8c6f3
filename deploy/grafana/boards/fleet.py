"""The board of all nodes: which are sick and why, what they share, which cannot be seen."""

from __future__ import annotations

from deploy.grafana.boards import links, states
from deploy.grafana.boards.board import Board, Choice, Row, custom_variable, datasource_variable
from deploy.grafana.boards.links import fleet_query
from deploy.grafana.boards.panels import BarGauge, Column, Graph, Stat, Table, coloured
from deploy.grafana.boards.parts import Steps, of_query

#: Each node is in one of these. Not judged: it answers, but has no fresh reading.
_NODES = (
    ("healthy", "green", "sum(sexton_verdict{$of} == bool 0)"),
    ("problem", "red", "sum(sexton_verdict{$of} == bool 1)"),
    ("cannot tell", "purple", "sum(sexton_verdict{$of} == bool 3)"),
    ("not judged", "orange", "sum(up{$of}) - (count(sexton_verdict{$of}) or vector(0))"),
    ("silent", "#8e8e8e", "sum(up{$of} == bool 0)"),
)
_COLOURS = tuple(
    of_query("ABCDE"[at], color={"mode": "fixed", "fixedColor": colour})
    for at, (_, colour, _) in enumerate(_NODES)
)
#: A count of 0 has no colour.
_LIT = tuple(
    of_query("ABCDE"[at], thresholds=Steps("text", ((1, colour),)).json())
    for at, (_, colour, _) in enumerate(_NODES)
)
_NODE = Column("instance", "Node", 240, (links.NODE_BOARD_OF_ROW, links.EXPLORER_OF_ROW))
_TO_NODE = (links.NODE_BOARD_OF_BAR,)

NOW = Stat(
    title="Nodes by verdict, now",
    says="Normal: all are healthy. 'Cannot tell' lacks essential data, 'not judged' answers but"
    " has no fresh reading, 'silent' does not answer Prometheus: none of the three is healthy.",
    width=24,
    height=4,
    unit="short",
    queries=tuple(fleet_query(expr, name, "instant") for name, _, expr in _NODES),
    overrides=_LIT,
)

SICK = Table(
    title="Sick nodes",
    says="Nodes whose verdict is a problem, with their cause chains, the root cause first. Normal:"
    " none. A node has at most five chains. Click a node for its board, or its explorer at this"
    " time.",
    width=24,
    height=10,
    unit="none",
    no_value="no node has a problem, as far as nodes are judged: see the counts above",
    queries=(
        fleet_query(
            f"max by (job, instance, sentence, root, culprit) ({states.CHAINS}"
            " or label_replace(0 * (sexton_verdict{$of} == 1)"
            " unless on (job, instance) sexton_chain_info{$of},"
            ' "sentence", "problems without a cause chain", "", ""))',
            shape="table",
        ),
    ),
    columns=(
        _NODE,
        Column("sentence", "Chain", links=(links.EXPLORER_OF_ROW,)),
        Column("root", "Root cause", 200, (links.runbook_of_row("root"),)),
        Column("culprit", "Culprit", 240),
        Column("Value", "Strength", 100, more=coloured(states.STRENGTH)),
        Column("job", "Job", 100),
    ),
    sort="Strength",
)

OVER_TIME = Graph(
    title="Nodes by verdict over time",
    says="The same counts over time, on top of each other. Normal: one green area. A step up in"
    " another colour is a rollout, a zone or a common cause: compare it with the tables below.",
    width=14,
    height=9,
    unit="short",
    decimals=0,
    stacked=True,
    queries=tuple(fleet_query(expr, name) for name, _, expr in _NODES),
    bounds=(0, None),
    overrides=_COLOURS,
)

PROBLEMS = BarGauge(
    title="Nodes by problem",
    says="How many nodes have which finding (warning or critical) now. Normal: none.",
    width=10,
    height=9,
    unit="short",
    no_value="no problem on any node that is judged",
    queries=(
        fleet_query(
            "sort_desc(count by (detector)"
            ' (sexton_finding{$of, severity=~"warning|critical"} == 1))',
            "{{detector}}",
            "instant",
        ),
    ),
    steps=Steps("orange"),
    bounds=(0, None),
)

ROOTS = Table(
    title="Root causes by number of nodes",
    says="One root cause with one culprit on many nodes is one thing to fix: a unit of an image,"
    " most of the time. Normal: none.",
    width=12,
    height=9,
    unit="short",
    no_value="no cause chain on any node that is judged",
    queries=(
        fleet_query(
            "count by (root, culprit)"
            " (max by (job, instance, root, culprit) (sexton_chain_info{$of}))",
            shape="table",
        ),
    ),
    columns=(
        Column("Value", "Nodes", 80),
        Column("root", "Root cause", 220),
        Column("culprit", "Culprit"),
    ),
    sort="Nodes",
)

RESETS = BarGauge(
    title="NIC resets by node, in this time",
    says="Resets of all NICs of a node within the board's time: the ten with most. Normal: none.",
    width=12,
    height=9,
    unit="short",
    decimals=0,
    no_value="no NIC was reset",
    queries=(
        fleet_query(
            "sort_desc(topk(10, round(sum by (job, instance)"
            " (increase(sexton_nic_resets_total{$of}[$__range]))) > 0))",
            "{{instance}}",
            "instant",
        ),
    ),
    steps=Steps("orange", ((3, "red"),)),
    bounds=(0, None),
    links=_TO_NODE,
)

LEAKS = BarGauge(
    title="Worst leaks of memory cgroups",
    says="Proven growth of dying memory cgroups per hour: the ten worst. Normal: none; 40 an hour"
    " are 1,000 a day.",
    width=8,
    height=9,
    unit="suffix: /h",
    no_value="no leak is proven",
    queries=(
        fleet_query(
            "sort_desc(topk(10, 3600 * sexton_memcgs_leak_per_second{$of} > 0))",
            "{{instance}}",
            "instant",
        ),
    ),
    steps=Steps("orange", ((40, "red"),)),
    bounds=(0, None),
    links=_TO_NODE,
)

DYING = BarGauge(
    title="Most dying memory cgroups",
    says="Removed, but still in the kernel: the ten nodes with most. Normal: a few dozen.",
    width=8,
    height=9,
    unit="short",
    queries=(
        fleet_query("sort_desc(topk(10, sexton_memcgs_dying{$of}))", "{{instance}}", "instant"),
    ),
    steps=Steps("green", ((500, "orange"), (10_000, "red"))),
    bounds=(0, None),
    links=_TO_NODE,
)

HELD = BarGauge(
    title="Cores held longest in the kernel",
    says="Longest time that one core was held in the last judged minutes: the ten worst nodes."
    " Normal: none; drivers reset a NIC after 5 s.",
    width=8,
    height=9,
    unit="s",
    no_value="no core is held",
    queries=(
        fleet_query(
            "sort_desc(topk(10, max by (job, instance) (sexton_held_core_seconds{$of})))",
            "{{instance}}",
            "instant",
        ),
    ),
    steps=Steps("orange", ((5, "red"),)),
    bounds=(0, None),
    links=_TO_NODE,
)

SILENT = Table(
    title="Silent nodes",
    says="Prometheus cannot scrape them: the process is gone, the port is closed, or the node is"
    " down. Normal: none. Their earlier problems did not end, they are only not measured.",
    width=8,
    height=8,
    unit="s",
    no_value="every target answers",
    queries=(
        fleet_query(
            "max by (job, instance)"
            " (time() -"
            " max_over_time(sexton_recorder_last_reading_timestamp_seconds{$of}[$__range])"
            " and on (job, instance) up{$of} == 0)"
            " or max by (job, instance) (up{$of} == 0) - 1",
            shape="table",
        ),
    ),
    columns=(
        _NODE,
        Column(
            "Value", "Last reading, ago", 140, more={"decimals": 0, **coloured(states.NO_READING)}
        ),
        Column("job", "Job"),
    ),
    sort="Last reading, ago",
)

STALE = Table(
    title="Nodes that answer, but record nothing",
    says="Their last reading is more than a minute old: no recorder runs, or it hangs. Normal:"
    " none.",
    width=8,
    height=8,
    unit="s",
    no_value="every node that answers has fresh readings",
    queries=(
        fleet_query(
            "max by (job, instance)"
            " (time() - sexton_recorder_last_reading_timestamp_seconds{$of} > 60)",
            shape="table",
        ),
    ),
    columns=(
        _NODE,
        Column("Value", "Last reading, ago", 140, more={"decimals": 0}),
        Column("job", "Job"),
    ),
    sort="Last reading, ago",
)

UNKNOWN = Table(
    title="Nodes without a verdict",
    says="They are judged, but essential detectors lack their data. Normal: none. The node board"
    " and sexton diagnose say what is missing and how to grant it.",
    width=8,
    height=8,
    unit="short",
    no_value="every node that is judged has a verdict",
    queries=(
        fleet_query(
            "max by (job, instance)"
            " (sexton_findings_unknown{$of} and on (job, instance) sexton_verdict{$of} == 3)",
            shape="table",
        ),
    ),
    columns=(_NODE, Column("Value", "Detectors that cannot tell"), Column("job", "Job", 80)),
    sort="Detectors that cannot tell",
)

VERSIONS = BarGauge(
    title="Versions of Sexton",
    says="Nodes by version. Normal: one, or two while an update is rolled out.",
    width=6,
    height=8,
    unit="short",
    queries=(
        fleet_query(
            "sort_desc(count by (version) (sexton_build_info{$of}))", "{{version}}", "instant"
        ),
    ),
    steps=Steps("blue"),
    bounds=(0, None),
)

KERNELS = Table(
    title="Kernels",
    says="Nodes by kernel and cgroup hierarchy (v1, v2, hybrid): what sick nodes may share."
    " Normal: as few as you have images.",
    width=6,
    height=8,
    unit="short",
    no_value="no data: no node has fresh readings",
    queries=(fleet_query("count by (kernel, hierarchy) (sexton_node_info{$of})", shape="table"),),
    columns=(
        Column("Value", "Nodes", 70),
        Column("kernel", "Kernel"),
        Column("hierarchy", "Cgroups", 80),
    ),
    sort="Nodes",
)

COST = BarGauge(
    title="Most expensive recorders",
    says="Share of one core, recorder and exporter together: the ten nodes with most. Normal:"
    " below 3 %.",
    width=6,
    height=8,
    unit="percentunit",
    queries=(
        fleet_query(
            "sort_desc(topk(10,"
            " sum by (job, instance)"
            " (rate(sexton_recorder_cpu_seconds_total{$of}[$__rate_interval]))"
            " + sum by (job, instance)"
            " (rate(sexton_exporter_cpu_seconds_total{$of}[$__rate_interval]))"
            "))",
            "{{instance}}",
            "instant",
        ),
    ),
    steps=Steps("green", ((0.03, "orange"), (0.1, "red"))),
    bounds=(0, None),
    links=_TO_NODE,
)

TROUBLE = Table(
    title="Recorders in trouble",
    says="Recorders that cannot write now (a full or read-only disk), and those that pause or slow"
    " sources to stay within their budget. Normal: none.",
    width=6,
    height=8,
    unit="short",
    no_value="every recorder can write, and none sheds a source",
    queries=(
        fleet_query(
            "label_replace(max by (job, instance) (sexton_recorder_problem{$of} == 1),"
            ' "trouble", "cannot write", "", "")'
            " or label_replace(count by (job, instance) (sexton_recorder_shed{$of}),"
            ' "trouble", "paused or slowed sources", "", "")',
            shape="table",
        ),
    ),
    columns=(
        Column("instance", "Node", None, (links.NODE_BOARD_OF_ROW,)),
        Column("trouble", "Trouble"),
        Column("Value", "Count", 60),
    ),
    hidden=("job",),
    sort="Trouble",
    descending=False,
)

BOARD = Board(
    uid=links.FLEET_UID,
    title="Sexton: fleet",
    says="Which nodes are sick, what they share, and which cannot be seen.",
    variables=(
        datasource_variable(),
        Choice("job", "Job", links.JOBS, several=True).json(),
        custom_variable("scheme", "Links by", ("http", "https")),
    ),
    links=(),
    since="now-24h",
    rows=(
        Row("Which nodes are sick", (NOW, SICK, OVER_TIME, PROBLEMS)),
        Row("What they share", (ROOTS, RESETS, LEAKS, DYING, HELD)),
        Row("Nodes that cannot be seen", (SILENT, STALE, UNKNOWN)),
        Row("Sexton in the fleet", (VERSIONS, KERNELS, COST, TROUBLE)),
    ),
)
