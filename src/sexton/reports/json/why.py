"""`sexton.why/1`: the same answer for machines. Described in docs/json.md."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sexton.model.text import printable
from sexton.model.why import Why
from sexton.reports.json.diagnosis import diagnosis_json

if TYPE_CHECKING:
    from sexton.model.aligned import Aligned, Ranked

SCHEMA = "sexton.why/1"


def why_json(why: Why) -> dict[str, Any]:
    """Plain dicts and lists, ready for `json.dumps`."""
    chains = why.chains
    seen = replace(
        why.diagnosis, chains=chains, contests=why.contests, coincidences=why.coincidences
    )
    whole = diagnosis_json(seen)
    findings = {finding["id"]: finding for finding in whole["findings"]}
    names = dict.fromkeys([*why.findings, *(name for chain in chains for name in chain.findings)])
    return {
        "schema": SCHEMA,
        "exit": int(why.exit),
        "about": {
            "kind": why.about.kind,
            "name": why.about.name,
            "words": why.about.words,
            "time": why.about.wall_s,
            "also": [{"kind": subject.kind, "name": subject.name} for subject in why.also],
        },
        "node": whole["node"],
        "window": whole["window"],
        "replayed": whole["replayed"],
        "config": whole["config"],
        "concerned": list(why.findings),
        "findings": [findings[name] for name in names],
        "asked": [{"id": name, "verdict": _verdict(findings, name)} for name in why.detectors],
        "chain": whole["chains"][0] if chains else None,
        "chains": whole["chains"],
        "story": [printable(sentence) for sentence in why.story],
        "contests": whole["contests"],
        "coincidences": whole["coincidences"],
        "occasions": {
            "what": why.occasions.one,
            "times": [round(moment.wall_s, 3) for moment in why.occasions.moments],
            "note": printable(why.occasions.note),
        },
        "aligned": None if why.aligned is None else _aligned(why.aligned, why),
        "not_aligned": why.not_aligned,
        "missing": [{"what": need.what, "grant": need.grant} for need in why.missing],
        "plan": whole["plan"],
        "next": list(why.next),
    }


def _verdict(findings: dict[str, Any], name: str) -> str:
    return str(findings[name]["verdict"]) if name in findings else "unknown"


def _aligned(aligned: Aligned, why: Why) -> dict[str, Any]:
    walls = {moment.mono_s: moment.wall_s for moment in why.occasions.moments}
    return {
        "events": [walls.get(mono) for mono in aligned.events],
        "controls": aligned.controls,
        "before_s": aligned.before_s,
        "tested": aligned.tested,
        "false_discovery_rate": aligned.fdr,
        "smallest_p": _finite(aligned.smallest_p),
        "significant": aligned.significant,
        "ranked": [_ranked(signal) for signal in aligned.ranked],
        "notes": [printable(note) for note in aligned.notes],
    }


def _ranked(signal: Ranked) -> dict[str, Any]:
    return {
        "kind": signal.kind,
        "about": printable(signal.about),
        "name": printable(signal.name),
        "unit": printable(signal.unit),
        "before": _finite(signal.before),
        "control": _finite(signal.control),
        "effect": _finite(signal.effect),
        "p": _finite(signal.p),
        "q": _finite(signal.q),
        "shown": signal.shown,
        "lead_s": None if signal.lead_s is None else _finite(signal.lead_s),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None
