"""`sexton fix` as JSON: `sexton.plan/1`, `sexton.applied/1` and the other results."""

from __future__ import annotations

from typing import Any

from sexton.cure.apply import Applied
from sexton.cure.journal import Run
from sexton.cure.rollback import RolledBack
from sexton.cure.verify import Verified, heading
from sexton.model.plan import Plan


def applied_json(plan: Plan, applied: Applied) -> dict[str, Any]:
    return {
        "schema": "sexton.applied/1",
        "run": applied.run,
        "plan": plan.hash,
        "node": plan.node,
        "how": applied.how,
        "why": applied.why,
        "exit": applied.exit,
        "watched": applied.watched,
        "steps": [
            {
                "id": done.step.id,
                "title": done.step.title,
                "state": done.state,
                "said": done.message,
                "told": list(done.details),
                "outcome": {
                    name: value
                    for name, value in done.outcome.items()
                    if name not in ("said", "told")
                },
                "proofs": [
                    {"what": what, "holds": holds, "read": reading}
                    for what, holds, reading in done.proofs
                ],
            }
            for done in applied.steps
        ],
    }


def refused_json(plan: Plan, reasons: list[str]) -> dict[str, Any]:
    return {
        "schema": "sexton.applied/1",
        "run": None,
        "plan": plan.hash,
        "node": plan.node,
        "how": "refused",
        "why": "; ".join(reasons),
        "reasons": reasons,
        "steps": [],
    }


def rolled_back_json(done: RolledBack) -> dict[str, Any]:
    return {
        "schema": "sexton.rolled_back/1",
        "run": done.run,
        "done": [{"step": step, "what": what} for step, what in done.lines],
        "failed": [{"step": step, "why": why} for step, why in done.failed],
        "cannot_undo": done.cannot,
    }


def verified_json(found: Verified) -> dict[str, Any]:
    return {
        "schema": "sexton.verified/1",
        "run": found.run,
        "seconds": round(found.seconds, 1),
        "verdict": heading(found),
        "exit": found.exit,
        "zombies": {"before": found.dead_before, "now": found.dead_now},
        "freed": list(found.freed),
        "criteria": [
            {
                "what": result.what,
                "before": result.before,
                "now": result.now,
                "met": result.met.value,
                "source": result.read_from,
                "note": result.note,
            }
            for result in found.results
        ],
    }


def status_json(runs: list[Run]) -> dict[str, Any]:
    return {
        "schema": "sexton.fix_status/1",
        "runs": [
            {
                "run": run.id,
                "state": run.state,
                "why": run.ended_why,
                "plan": run.plan.hash,
                "began_unix": run.began_unix,
                "ended_unix": run.ended_unix or None,
                "torn_lines": run.torn,
                "steps": [
                    {
                        "id": record.step,
                        "done": record.outcome is not None,
                        "undone": record.undone,
                        "said": (record.outcome or {}).get("said", ""),
                    }
                    for record in run.records
                ],
            }
            for run in runs
        ],
    }
