"""The top of the node board: what is wrong, why, and what to do."""

from __future__ import annotations

from deploy.grafana.boards import links, states
from deploy.grafana.boards.links import node_query
from deploy.grafana.boards.panels import Column, Stat, Table, Text, Timeline, coloured
from deploy.grafana.boards.parts import Steps, mapping, of_query

VERDICT = Stat(
    title="Verdict",
    says="What sexton diagnose would say of the last minutes. Normal: healthy. 'Cannot tell' is no"
    " good news: an essential detector lacks its data. 'no data': the node is not judged, because"
    " nothing was recorded for a minute or it cannot be scraped.",
    width=4,
    height=6,
    unit="none",
    queries=(node_query("sexton_verdict{$of}", "verdict", "instant"),),
    mappings=states.VERDICT,
)

CURRENT = Stat(
    title="Can it be trusted?",
    says="Normal: the scrape works, the recorder is recording and can write, the verdict is at"
    " most five minutes old, one while there is a problem, and few detectors cannot tell. A tile"
    " that is missing is unknown: where nobody records, there is no 'writes'.",
    width=12,
    height=6,
    unit="none",
    queries=(
        node_query("up{$of}", "scrape", "instant"),
        node_query("sexton_recorder_up{$of}", "recorder", "instant"),
        node_query("sexton_recorder_problem{$of}", "writes", "instant"),
        node_query(
            "time() - sexton_verdict_timestamp_seconds{$of}", "age of the verdict", "instant"
        ),
        node_query("sexton_findings_unknown{$of}", "detectors that cannot tell", "instant"),
    ),
    overrides=(
        of_query("A", mappings=mapping(*states.SCRAPE)),
        of_query("B", mappings=mapping(*states.RECORDER)),
        of_query("C", mappings=mapping(*states.WRITING)),
        of_query(
            "D",
            unit="s",
            decimals=0,
            thresholds=Steps("green", ((420, "orange"), (900, "red"))).json(),
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
    no_value="no cause chain, if the node is judged: see the verdict",
    queries=(
        node_query(f"max by (sentence, root, culprit, symptom) ({states.CHAINS})", shape="table"),
    ),
    columns=(
        Column("sentence", "Chain", links=(links.EXPLORER,)),
        Column("root", "Root cause", 200, (links.runbook("root"),)),
        Column("culprit", "Culprit", 240),
        Column("symptom", "Last symptom", 170, (links.runbook("symptom"),)),
        Column("Value", "Strength", 100, more=coloured(states.STRENGTH)),
    ),
    sort="Strength",
)

_PRESENT = (
    "max by (detector) ("
    '3 * (sexton_finding{$of, severity="critical"} == 1)'
    ' or 2 * (sexton_finding{$of, severity="warning"} == 1)'
    ' or (sexton_finding{$of, severity="info"} == 1))'
)

PROBLEMS = Table(
    title="Problems found",
    says="Findings that are present now. Normal: none, or info only. 'Root cause, or cause"
    " unknown' is where to look first. No cause is looked for where something is only noted.",
    width=12,
    height=9,
    unit="none",
    no_value="no problem found, if the node is judged: see the verdict",
    queries=(
        node_query(
            f"label_replace({_PRESENT} and on (detector) sexton_finding_explained{{$of}} == 0,"
            ' "cause", "root cause, or cause unknown", "", "")'
            f" or label_replace({_PRESENT} and on (detector) sexton_finding_explained{{$of}} == 1,"
            ' "cause", "explained by a chain", "", "")'
            f" or {_PRESENT} unless on (detector) sexton_finding_explained{{$of}}",
            shape="table",
        ),
    ),
    columns=(
        Column("detector", "Problem", 200, (links.runbook("detector"), links.EXPLORER)),
        Column("Value", "Severity", 100, more=coloured(states.SEVERITY)),
        Column("cause", "Cause"),
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
        node_query("sexton_verdict{$of}", "verdict"),
        node_query(
            'max by (detector) (3 * (sexton_finding{$of, severity="critical"} == 1)'
            ' or 2 * (sexton_finding{$of, severity="warning"} == 1))',
            "{{detector}}",
        ),
    ),
    mappings=states.SEVERITY,
    overrides=(of_query("A", mappings=mapping(*states.VERDICT)),),
)

PANELS = (VERDICT, CURRENT, WHAT_TO_DO, CHAINS, PROBLEMS, TIMELINE)
