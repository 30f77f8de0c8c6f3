"""The verdict on the last minutes of a recording, by a process that reads it and ends.

It is started for each verdict and confines itself (`sexton.sandbox`): what reads a recording has no
network, and what holds the token reads no recording. The verdict is the exporter's.
"""

from __future__ import annotations

from pathlib import Path

from sexton.agent.verdict import MOST_CAUSES, Cause, NodeVerdict
from sexton.detect.registry import title_of
from sexton.export.judged import culprit, named_culprit, sentence
from sexton.export.work import Judged, judge_last
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Verdict
from sexton.store.recording import Recording


def judge(directory: Path) -> NodeVerdict:
    """`StoreError` if nothing is recorded yet."""
    return verdict_of(judge_last(Recording(directory)))


def verdict_of(judged: Judged) -> NodeVerdict:
    """A diagnosis in few words."""
    diagnosis = judged.diagnosis
    missing = [f.id for f in diagnosis.essential if f.verdict is Verdict.UNKNOWN]
    return NodeVerdict(
        diagnosis.exit,
        judged.span.boot_id,
        *judged.span.end,
        judged.window.seconds,
        _causes(diagnosis),
        tuple(title_of(name) for name in missing),
    )


def _causes(diagnosis: Diagnosis) -> tuple[Cause, ...]:
    """Chains with a problem in them, the best first; then problems that are in no chain."""
    found: list[Cause] = []
    chained: set[str] = set()
    for chain in diagnosis.chains:
        chained.update(chain.findings)
        if any(diagnosis.by_id[name].is_problem for name in chain.findings):
            root = diagnosis.by_id[chain.root]
            ends = chain.root, chain.symptom
            words = sentence(chain, root)
            found.append(Cause(*ends, _known_by(root), chain.strength.value, words))
    alone = (f for f in diagnosis.findings if f.is_problem and f.id not in chained)
    found += [_alone(finding) for finding in alone]
    return tuple(dict.fromkeys(found))[:MOST_CAUSES]


def _alone(finding: Finding) -> Cause:
    words = f"{title_of(finding.id)} {culprit(finding)}".strip()
    return Cause(finding.id, finding.id, _known_by(finding), "", words)


def _known_by(root: Finding) -> str:
    """What tells apart two chains of the same findings: units, cgroups, NICs; tasks come and go."""
    kind, name = named_culprit(root)
    return "" if kind == "task" else name
