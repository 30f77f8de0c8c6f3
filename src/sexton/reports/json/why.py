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
    findings = {each["id"]: each for each in whole["findings"]}
    told = dict.fromkeys([*why.findings, *(name for chain in chains for name in chain.findings)])
    return {
        "schema": SCHEMA,
        "exit": int(why.exit),
        "about": {
            "kind": why.about.kind,
            "name": why.about.name,
            "words": why.about.words,
            "time": why.about.wall_s,
            "also": [{"kind": each.kind, "name": each.name} for each in why.also],
        },
        "node": whole["node"],
        "window": whole["window"],
        "replayed": whole["replayed"],
        "concerned": list(why.findings),
        "findings": [findings[name] for name in told],
        "asked": [{"id": name, "verdict": _verdict(findings, name)} for name in why.asked],
        "chain": whole["chains"][0] if chains else None,
        "chains": whole["chains"],
        "story": [printable(each) for each in why.story],
        "contests": whole["contests"],
        "coincidences": whole["coincidences"],
        "occasions": {
            "what": why.occasions.one,
            "times": [round(each.wall_s, 3) for each in why.occasions.moments],
            "note": printable(why.occasions.note),
        },
        "aligned": None if why.aligned is None else _aligned(why.aligned, why),
        "not_aligned": why.not_aligned,
        "missing": [{"what": each.what, "grant": each.grant} for each in why.missing],
        "plan": whole["plan"],
        "next": list(why.next),
    }


def _verdict(findings: dict[str, Any], name: str) -> str:
    return str(findings[name]["verdict"]) if name in findings else "unknown"


def _aligned(aligned: Aligned, why: Why) -> dict[str, Any]:
    walls = {each.mono_s: each.wall_s for each in why.occasions.moments}
    return {
        "events": [walls.get(mono) for mono in aligned.events],
        "controls": aligned.controls,
        "before_s": aligned.before_s,
        "tested": aligned.tested,
        "false_discovery_rate": aligned.fdr,
        "smallest_p": _finite(aligned.smallest_p),
        "significant": aligned.significant,
        "ranked": [_ranked(each) for each in aligned.ranked],
        "notes": [printable(each) for each in aligned.notes],
    }


def _ranked(each: Ranked) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "about": printable(each.about),
        "name": printable(each.name),
        "unit": printable(each.unit),
        "before": _finite(each.before),
        "control": _finite(each.control),
        "effect": _finite(each.effect),
        "p": _finite(each.p),
        "q": _finite(each.q),
        "shown": each.shown,
        "lead_s": None if each.lead_s is None else _finite(each.lead_s),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None
