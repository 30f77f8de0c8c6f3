"""``kill -9`` in every step of an apply, and the way back each time.

The killer sits outside: the journal of the apply (docs/fix.md tells its lines) is read until it
says that a step is about to be done, or done, and then the process is killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from lab.case import COMMAND_S, Case, Said, command
from lab.play import ROOT, environment
from lab.sick import ECS, changes, picture, tree_hash

FREE = "reclaim_zombies"
#: After so long what is only more of the same is left out.
ENOUGH_S = 240.0


class Point(NamedTuple):
    """A line of the journal: `before` or `done` of a step."""

    kind: str
    step: str


def killed(case: Case) -> None:
    """``kill -9`` in every step; last of all after the last, so that what a gentle freeing does is
    seen as well."""
    before = picture()
    plan = case.plan_for_loop()
    steps = [step["id"] for step in plan.get("steps", []) if step["automatic"]]
    remedies = [step["remedy"] for step in plan.get("steps", [])]
    complete = {"stop_unit", "disable_unit", "mask_unit", FREE} <= {*remedies}
    case.claims.settle(
        "planned", "a plan stops, disables, masks and frees, and changes nothing itself",
        complete and picture() == before,
        steps=[f"{step['id']}: {step['title']}" for step in plan.get("steps", [])],
        refusals=plan.get("refusals"), notes=plan.get("notes"), hash=plan.get("hash"),
        changed=changes(before, picture()),
    )  # fmt: skip
    points = [*(Point("before", step) for step in steps), Point("done", steps[-1])]
    points += [Point("done", step) for step in steps[:-1]]
    cases, skipped = [], []
    for number, point in enumerate(points):
        if number > len(steps) and case.spent_s > ENOUGH_S:
            skipped.append(" ".join(point))
        else:
            cases.append(_kill(case, plan, point, before))
    case.claims.settle(
        "killed", "kill -9 in every step of apply, then rollback: the node is as it was",
        all(item["killed"] and item["as_it_was"] for item in cases) and len(cases) > len(steps)
        and tree_hash(before) == case.tree,
        cases=cases, skipped=skipped, tree=tree_hash(before),
    )  # fmt: skip


def _kill(case: Case, plan: dict[str, Any], point: Point, before: dict[str, str]) -> dict[str, Any]:
    """One apply, killed there, and rolled back. Once more where it stopped by itself before that,
    as it does when the node is too busy."""
    sick = case.sick
    document: dict[str, Any] = {"at": " ".join(point), "killed": False, "tries": 0}
    while not document["killed"] and document["tries"] < 2:
        document["tries"] += 1
        case.let_loop(plan)
        document["neighbour_before"], document["dead_before"] = sick.neighbour(), sick.dead()
        known = journals(case.state)
        document["killed"] = _apply_until(case, plan["hash"], known, point)
        document["dead_after"], document["neighbour_after"] = sick.dead(), sick.neighbour()
        if journals(case.state) == known:
            document["rollback"] = "nothing had begun"
            continue
        document["rollback"] = case.fix("rollback").status
    case.stage.until(f"{ECS} to run again", sick.runs, within_s=60)
    document["changed"] = changes(before, picture())
    document["enabled"] = sick.show(ECS, "UnitFileState")
    document["as_it_was"] = (
        document["rollback"] == 0 and not document["changed"] and document["enabled"] == "enabled"
    )
    return document


def _apply_until(case: Case, confirm: str, known: set[Path], point: Point) -> bool:
    """Was it killed there? `known` are the journals from before."""
    words = ("apply", str(case.plan), "--confirm", confirm, "--json", "--state", str(case.state))
    log = case.stage.folder / "apply.log"
    began, there = time.monotonic(), False
    with log.open("wb") as said:
        started = subprocess.Popen(
            command("fix", *words), stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, cwd=ROOT, env=environment(),
        )  # fmt: skip
    case.stage.adopt(started)
    while not there and started.poll() is None and time.monotonic() - began < COMMAND_S:
        time.sleep(0.01)
        there = any(says(path, point) for path in journals(case.state) - known)
    if there:
        started.kill()
    case.stage.end(started)
    spent = round(time.monotonic() - began, 1)
    said_so = Said(started.returncode, log.read_text(errors="replace"), spent)
    case.keep(("fix", "apply", f"killed at {' '.join(point)}"), said_so, "")
    return there and started.returncode == -signal.SIGKILL


def journals(state: Path) -> set[Path]:
    """Of every apply that began."""
    return {*state.glob("runs/*.jsonl")}


def says(journal: Path, point: Point) -> bool:
    """Has it come so far? The last line may be half a line."""
    for line in journal.read_bytes().split(b"\n")[1:-1]:
        document = json.loads(line)
        if (document["kind"], document.get("step")) == point:
            return True
    return False
