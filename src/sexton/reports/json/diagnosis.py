"""`sexton.diagnosis/1`: the same diagnosis for machines. Described in docs/json.md."""

from __future__ import annotations

from typing import Any

from sexton.detect.registry import title_of
from sexton.model.chain import Chain, Coincidence, Contest, Link
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Evidence, Finding, Rows
from sexton.model.row import fields_of
from sexton.model.rows.node import Node
from sexton.model.text import printable
from sexton.model.window import SourceState
from sexton.reports.text.blocks import picked

SCHEMA = "sexton.diagnosis/1"


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain dicts and lists, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "exit": int(diagnosis.exit),
        "node": _node(diagnosis.node),
        "hierarchy": diagnosis.hierarchy,
        "nics": list(diagnosis.nics),
        "window": {"start": diagnosis.start, "end": diagnosis.end},
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "chains": [_chain(chain) for chain in diagnosis.chains],
        "story": list(diagnosis.story),
        "contests": [_contest(contest) for contest in diagnosis.contests],
        "coincidences": [_coincidence(coincidence) for coincidence in diagnosis.coincidences],
        "unexplained": list(diagnosis.unexplained),
        "against": list(diagnosis.against),
        "plan": [picked(step, "do", "why", "risk") for step in diagnosis.plan],
        "sources": [_source(source) for source in diagnosis.sources],
        "cost": None
        if diagnosis.cost is None
        else {
            "watched_s": round(diagnosis.cost.watched_s, 3),
            "cpu_s": round(diagnosis.cost.cpu_s, 3),
            "peak_bytes": diagnosis.cost.peak_bytes,
            "touched": diagnosis.cost.touched,
        },
        "replayed": None
        if diagnosis.replayed is None
        else {
            "recording": printable(diagnosis.replayed.recording),
            "condensed": False,  # kept for readers of the schema: every reading is judged
            "notes": [printable(note) for note in diagnosis.replayed.notes],
        },
        "config": diagnosis.settings.document,
    }


def _node(node: Node | None) -> dict[str, Any] | None:
    if node is None:
        return None
    values = ((name, getattr(node, name)) for name in fields_of(Node))
    return {name: printable(item) if isinstance(item, str) else item for name, item in values}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "title": title_of(finding.id),
        "verdict": finding.verdict.value,
        "severity": finding.severity.value,
        "summary": finding.summary,
        "entities": {kind: list(names) for kind, names in finding.entities.items()},
        "start": finding.start,
        "end": finding.end,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "missing": [picked(need, "what", "grant") for need in finding.missing],
        "rows": [_rows(row) for row in finding.rows],
        "silenced": None if finding.silenced is None else finding.silenced._asdict(),
    }


def _rows(rows: Rows) -> dict[str, Any]:
    return picked(rows, "table", "rows", "start", "end")


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "what": evidence.what,
        "value": evidence.value if evidence.number is None else evidence.number,
        "text": evidence.value,
        **picked(evidence, "normal", "unit", "source", "wrong_if", "outlook"),
    }


def _chain(chain: Chain) -> dict[str, Any]:
    return {
        **picked(chain, "root", "symptom"),
        "strength": chain.strength.value,
        "links": [_link(link) for link in chain.links],
    }


def _link(link: Link) -> dict[str, Any]:
    return {
        **picked(link, "id", "cause", "effect"),
        "strength": link.strength.value,
        "covers": None if link.covers is None else {"known": link.covers[0], "of": link.covers[1]},
        "since": link.since,
        "sentence": link.sentence,
        "shared": list(link.shared),
        "evidence": [_evidence(evidence) for evidence in link.evidence],
        "against": list(link.against),
        "rows": [_rows(row) for row in link.rows],
    }


def _contest(contest: Contest) -> dict[str, Any]:
    return {
        "symptom": contest.symptom,
        "rivals": [
            {
                "cause": rival.cause,
                "strength": rival.strength.value,
                **picked(rival, "chosen", "sentence"),
                "against": list(rival.against),
            }
            for rival in contest.rivals
        ],
    }


def _coincidence(coincidence: Coincidence) -> dict[str, Any]:
    """What rose together without proof of a cause."""
    findings = list(coincidence.findings)
    return {"findings": findings, **picked(coincidence, "sentence", "would_prove")}


def _source(state: SourceState) -> dict[str, Any]:
    names = ("id", "path", "state", "detail", "grant", "reads")
    return {**picked(state, *names), "spent_s": round(state.spent_s, 6)}
