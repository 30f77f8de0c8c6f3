"""``kill -9`` during every step of ``fix apply``, each followed by a rollback.

The apply's journal (format: docs/fix.md) is polled until it says that a step is about to start, or
is done; then the process is killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from lab.cure_run import COMMAND_S, CommandResult, CureRun, command
from lab.play import ROOT, environment
from lab.sick_node import ECS, changes, tree_hash, unit_files

FREE = "reclaim_zombies"
#: After this long the remaining kills after a step are skipped.
ENOUGH_S = 240.0


class Point(NamedTuple):
    """A line of the journal: `before` or `done` of a step."""

    kind: str
    step: str


def killed(run: CureRun) -> None:
    """Kill before every step, then after the last (to measure freeing without --thorough), then
    after the others while there is time."""
    before = unit_files()
    plan = run.plan_crash_loop()
    steps = [step["id"] for step in plan.get("steps", []) if step["automatic"]]
    remedies = [step["remedy"] for step in plan.get("steps", [])]
    complete = {"stop_unit", "disable_unit", "mask_unit", FREE} <= {*remedies}
    run.claims.check(
        "planned", "a plan stops, disables, masks and frees, and changes nothing itself",
        complete and unit_files() == before,
        steps=[f"{step['id']}: {step['title']}" for step in plan.get("steps", [])],
        refusals=plan.get("refusals"), notes=plan.get("notes"), hash=plan.get("hash"),
        changed=changes(before, unit_files()),
    )  # fmt: skip
    points = [*(Point("before", step) for step in steps), Point("done", steps[-1])]
    points += [Point("done", step) for step in steps[:-1]]
    cases, skipped = [], []
    for number, point in enumerate(points):
        if number > len(steps) and run.spent_s > ENOUGH_S:
            skipped.append(" ".join(point))
        else:
            cases.append(_kill(run, plan, point, before))
    run.claims.check(
        "killed", "kill -9 in every step of apply, then rollback: the node is as before",
        all(item["killed"] and item["as_it_was"] for item in cases) and len(cases) > len(steps)
        and tree_hash(before) == run.tree,
        cases=cases, skipped=skipped, tree=tree_hash(before),
    )  # fmt: skip


def _kill(
    run: CureRun, plan: dict[str, Any], point: Point, before: dict[str, str]
) -> dict[str, Any]:
    """Kill one apply at `point` and roll back. Tries twice, because apply stops early if the node
    is too busy."""
    node = run.node
    document: dict[str, Any] = {"at": " ".join(point), "killed": False, "tries": 0}
    while not document["killed"] and document["tries"] < 2:
        document["tries"] += 1
        run.wait_for_restarts(plan)
        document["neighbour_before"] = node.neighbour_memory()
        document["dead_before"] = node.zombies()
        known = journals(run.state)
        document["killed"] = _apply_until(run, plan["hash"], known, point)
        document["dead_after"] = node.zombies()
        document["neighbour_after"] = node.neighbour_memory()
        if journals(run.state) == known:
            document["rollback"] = "no apply had started"
            continue
        document["rollback"] = run.fix("rollback").status
    run.stage.until(f"{ECS} runs again", node.is_active, within_s=60)
    document["changed"] = changes(before, unit_files())
    document["enabled"] = node.show(ECS, "UnitFileState")
    document["as_it_was"] = (
        document["rollback"] == 0 and not document["changed"] and document["enabled"] == "enabled"
    )
    return document


def _apply_until(run: CureRun, confirm: str, known: set[Path], point: Point) -> bool:
    """Start an apply and kill it at `point`; False if it ended earlier. `known`: older journals."""
    words = ("apply", str(run.plan), "--confirm", confirm, "--json", "--state", str(run.state))
    log = run.stage.folder / "apply.log"
    began, there = time.monotonic(), False
    with log.open("wb") as output:
        started = subprocess.Popen(
            command("fix", *words), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, cwd=ROOT, env=environment(),
        )  # fmt: skip
    run.stage.end_later(started)
    while not there and started.poll() is None and time.monotonic() - began < COMMAND_S:
        time.sleep(0.01)
        there = any(has_reached(path, point) for path in journals(run.state) - known)
    if there:
        started.kill()
    run.stage.end(started)
    spent = round(time.monotonic() - began, 1)
    result = CommandResult(started.returncode, log.read_text(errors="replace"), spent)
    run.keep(("fix", "apply", f"killed at {' '.join(point)}"), result, "")
    return there and started.returncode == -signal.SIGKILL


def journals(state: Path) -> set[Path]:
    """Journals of all applies so far."""
    return {*state.glob("runs/*.jsonl")}


def has_reached(journal: Path, point: Point) -> bool:
    """Does the journal have that line? The last line may be incomplete and is ignored."""
    for line in journal.read_bytes().split(b"\n")[1:-1]:
        document = json.loads(line)
        if (document["kind"], document.get("step")) == point:
            return True
    return False
