"""``python -m lab.cure --out DIR``: find, fix, verify and roll back a sick node.

Runs in the lab's VM, under its systemd, with the commands a person would type:

- `gate` passes an image before it boots, and fails it once the ECS agent of the deb is installed;
- that agent crash-loops on a Kubernetes node (`lab.sick_node`) and leaves hundreds of zombies:
  `diagnose` and `audit` find it, and `gate` fails the booted node;
- `fix apply` is killed by ``kill -9`` in every step, and `fix rollback` restores the node: files,
  links and drop-ins by hash, and the running unit;
- a plan is applied and verified: zombies fall to the number before, without a reboot; the loss of a
  running neighbour under the same parent is measured; then `gate` passes;
- a protected unit is refused; rollback restores everything byte for byte.

Each is a claim with its numbers in ``DIR/cure.json`` (`lab.claims`); ``DIR/NN-*.txt`` is the output
of each command. Exit status: 0 every claim holds, 1 one does not, 3 this machine cannot run it.
About seven minutes under emulation: ``python -m lab.vm run 6.1 v2 check_cure --out DIR``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.agent import SLICE
from lab.claims import Claims
from lab.cure_run import LOOK_S, WATCH_S, CommandResult, CureRun
from lab.deadlines import in_lab_vm
from lab.kill_apply import killed
from lab.sick_node import ECS, NEIGHBOUR, SickNode, changes, tree_hash, unit_files
from lab.stage import CannotPlay, SceneFailed, Stage

UNFIT = 3
#: Above the thresholds of `gate` and `diagnose`, and twice this machine's live cgroups.
ZOMBIES = 550
#: No phase starts after this long.
LIMIT_S = 600.0
PROTECTED = "containerd.service"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.cure", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    claims = Claims("cure")
    try:
        if not in_lab_vm():
            raise CannotPlay("it installs and masks units: only in the lab's virtual machine")
        args.out.mkdir(parents=True, exist_ok=True)
        with Stage(args.out, {}) as stage:
            fit(stage)
            claims.about = {"hierarchy": stage.hierarchy}
            play(CureRun(stage, SickNode(stage), claims, args.out))
    except CannotPlay as reason:
        sys.stderr.write(f"lab.cure: {reason}\n")
        return UNFIT
    finally:
        if claims.results:
            claims.write(args.out)
    held = len(claims.results) - len(claims.failed)
    print(f"{held} of {len(claims.results)} claims hold", flush=True)
    return 0 if claims.holds else 1


def fit(stage: Stage) -> None:
    """Raises `CannotPlay` if this machine cannot run it."""
    if not stage.systemd:
        raise CannotPlay("it needs systemd as PID 1")
    if stage.layout.mount_point is None:
        raise CannotPlay(stage.layout.reason or "no memory hierarchy is mounted")


def play(run: CureRun) -> None:
    """Run the phases in order. A phase that breaks is a failed claim, and the next still runs,
    because most are independent. All depend on the first two."""
    for phase in PHASES:
        if run.spent_s > LIMIT_S:
            run.claims.check(phase.__name__, "the phase started in time", False)
            continue
        try:
            phase(run)
        except (SceneFailed, OSError, LookupError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            run.claims.check(phase.__name__, "the phase ran to its end", False, why=why)
            if phase in (image, illness):
                return


# The image, before and after booting


def image(run: CureRun) -> None:
    """Gate this machine's root file system unbooted (no /proc, no /run) and booted."""
    root = run.stage.folder / "root"
    root.mkdir()
    run.node.install_kubelet()
    run.stage.run("mount", "--bind", "/", root)
    run.stage.at_end(lambda: run.stage.run("umount", "-l", root, check=False))
    words = ("gate", "--root", str(root), "--format", "json")
    healthy = run.sexton(*words)
    run.claims.check(
        "image_passes", "a healthy image passes the gate, unbooted",
        healthy.status == 0 and healthy.document.get("booted") is False, **gated(healthy),
    )  # fmt: skip
    run.swap = run.node.swap_on()
    run.node.start()
    run.baseline = run.node.zombies()
    running = run.gate()
    run.claims.check(
        "healthy_passes", "the same image passes when booted, with kubelet running",
        running.status == 0 and running.document.get("booted") is True,
        dead=run.baseline, **gated(running),
    )  # fmt: skip
    run.node.install_ecs()
    broken = run.sexton(*words)
    run.claims.check(
        "image_fails", "the same image with the ECS agent of the deb fails, unbooted",
        broken.status == 1 and ECS in violated(broken, "restart_without_backoff"),
        **gated(broken),
    )  # fmt: skip


def gated(result: CommandResult) -> dict[str, Any]:
    """Exit status of `gate`, and the outcome of each rule."""
    rules = result.document.get("rules", [])
    outcomes = {rule["id"]: rule["outcome"] for rule in rules}
    named = {rule["id"]: violated(result, rule["id"]) for rule in rules if rule["violations"]}
    missing = [lack["what"] for rule in rules for lack in rule.get("missing", [])]
    summary = {"exit": result.status, "rules": outcomes, "violations": named, "missing": missing}
    return {**summary, "seconds": result.seconds}


def violated(result: CommandResult, rule: str) -> list[str]:
    """Subjects that violate a rule."""
    return [
        broken["subject"]
        for other in result.document.get("rules", [])
        if other["id"] == rule
        for broken in other["violations"]
    ]


# The crash loop


def illness(run: CureRun) -> None:
    """Start the crash loop. `CannotPlay` if this kernel keeps no zombies or cannot free them."""
    node = run.node
    order = "memory.force_empty" if run.stage.layout.version == 1 else "memory.reclaim"
    if not (node.top / SLICE / order).exists():
        raise CannotPlay(f"this kernel has no {order}: it cannot free zombies")
    node.start_crash_loop()
    run.stage.until("4 restarts", lambda: node.restarts() >= 4, within_s=120)
    if node.zombies() < run.baseline + 20:
        raise CannotPlay("the agent restarted and left no zombies: nothing to free")
    run.made = node.dig(run.baseline + ZOMBIES) - run.baseline
    run.tree = tree_hash(unit_files())
    run.stage.note(f"{run.made} zombies made, {run.baseline} were there before")


def found(run: CureRun) -> None:
    result = run.sexton("diagnose", "--json", "--seconds", str(WATCH_S))
    present = {
        finding["id"]: finding
        for finding in result.document.get("findings", [])
        if finding["verdict"] == "present" and finding["severity"] != "info"
    }
    loop = present.get("crash_looping_unit", {})
    run.claims.check(
        "diagnosed", "diagnose finds the crash loop by name, and the zombies",
        result.status == 1
        and ECS in loop.get("entities", {}).get("unit", ())
        and "zombie_memcgs" in present,
        exit=result.status, seconds=result.seconds,
        found={name: value["summary"] for name, value in present.items()},
        root=(result.document.get("chains") or [{}])[0].get("root"),
    )  # fmt: skip
    audited = run.sexton("audit", "--json", "--seconds", str(LOOK_S))
    subjects = {subject["unit"]: subject for subject in audited.document.get("subjects", [])}
    about = subjects.get(ECS, {})
    run.claims.check(
        "audited", "audit reports that nothing needs the unit, and that it crash-loops",
        about.get("verdict") == "unneeded"
        and "crash-loop" in [fault["id"] for fault in about.get("faults", [])],
        exit=audited.status, seconds=audited.seconds, verdict=about.get("verdict"),
        reasons=[f"{reason['what']}: {reason['value']}" for reason in about.get("reasons", [])],
        unseen=audited.document.get("unseen"),
    )  # fmt: skip


def gate_fails(run: CureRun) -> None:
    result = run.gate()
    run.claims.check(
        "booted_fails", "the gate fails the booted sick node",
        result.status == 1
        and result.document.get("booted") is True
        and ECS in violated(result, "crash_loops")
        and ECS in violated(result, "restart_without_backoff"),
        dead=run.node.zombies(), **gated(result),
    )  # fmt: skip


# The fix


def cured(run: CureRun) -> None:
    node = run.node
    run.made = node.dig(run.baseline + ZOMBIES) - run.baseline
    node.refresh_neighbour()
    plan = run.plan_crash_loop("--thorough")
    node.agent.set_tasks(0)
    before, living, pid = node.zombies(), node.neighbour_memory(), node.neighbour_pid()
    kept = unit_files()
    applied = _apply(run, plan)
    result = applied.document
    stopped = node.show(ECS, "LoadState") == "masked" and not node.is_active()
    run.claims.check(
        "applied", "every step is done and verified, and the unit is stopped and masked",
        applied.status == 0 and result.get("how") == "complete" and stopped,
        exit=applied.status, seconds=applied.seconds, why=result.get("why"),
        steps=[f"{one['id']}: {one['state']}: {one['said']}" for one in result.get("steps", [])],
        thorough=[step["parameters"].get("thorough") for step in plan.get("steps", [])],
        changed=changes(kept, unit_files()), watched=result.get("watched"),
    )  # fmt: skip
    after = node.wait_for_zombies(run.allowed)
    outcome = freed(run.state, str(result.get("run")))
    run.claims.check(
        "freed", "zombies fall to the number before, without a reboot",
        after <= run.allowed < before,
        baseline=run.baseline, before=before, after=after, allowed=run.allowed, freeing=outcome,
    )  # fmt: skip
    lost = node.neighbour_memory()
    whole = living["anonymous"] + living["swapped"]
    run.claims.check(
        "neighbour", "the loss of a running sibling is measured, and its own memory is kept",
        node.is_active(NEIGHBOUR) and node.neighbour_pid() == pid != 0
        and living["cache"] > 0 and living["swapped"] > 0 and living["swap_charged"] > 0
        and lost["anonymous"] + lost["swapped"] >= 0.95 * whole,
        before=living, after=lost, swap=run.swap or "on",
    )  # fmt: skip


def _apply(run: CureRun, plan: dict[str, Any]) -> CommandResult:
    """Apply; if it stopped because the node was under pressure, roll back and try once more."""
    words = ("apply", str(run.plan), "--confirm", plan["hash"])
    applied = run.fix(*words)
    if applied.status == 1 and "pressure is" in str(applied.document.get("why")):
        run.stage.note(f"apply again: {applied.document['why']}")
        run.fix("rollback")
        run.wait_for_restarts(plan)
        applied = run.fix(*words)
    return applied


def freed(state: Path, run: str) -> dict[str, Any]:
    """Measurements of the step that freed most, from the journal."""
    path = state / "runs" / f"{run}.jsonl"
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    wanted = ("freed", "seconds", "order_s", "why_stopped", "walk_us_per_zombie", "experiment")
    outcomes = [
        document["outcome"]
        for line in lines
        if line and (document := json.loads(line))["kind"] == "done"
    ]
    freeing = [outcome for outcome in outcomes if "freed" in outcome]
    if not freeing:
        return {}
    most = max(freeing, key=lambda outcome: outcome["freed"] or 0)
    return {**{name: most[name] for name in wanted}, "siblings": most["siblings"]}


def verified(run: CureRun) -> None:
    result = run.fix("verify", "--seconds", str(WATCH_S))
    now = (result.document.get("zombies") or {}).get("now")
    run.claims.check(
        "verified", "every criterion is met, and verify counts the same few zombies",
        result.status == 0 and now is not None and now <= run.allowed,
        exit=result.status, verdict=result.document.get("verdict"),
        zombies=result.document.get("zombies"),
        criteria={criterion["what"]: [criterion["before"], criterion["now"], criterion["met"]]
                  for criterion in result.document.get("criteria", [])},
    )  # fmt: skip


def gate_passes(run: CureRun) -> None:
    result = run.gate()
    run.claims.check(
        "booted_passes", "after the fix the same node passes the gate, without a reboot",
        result.status == 0 and result.document.get("booted") is True,
        dead=run.node.zombies(), **gated(result),
    )  # fmt: skip


def refused(run: CureRun) -> None:
    run.node.loop_protected(PROTECTED)
    before = unit_files()
    plan = run.make_plan("--accept-collateral")
    reasons = [refusal for refusal in plan.get("refusals", []) if refusal["target"] == PROTECTED]
    run.claims.check(
        "refused", "a crash-looping protected unit is refused with the reason, in any case",
        len(reasons) == 1 and "protected" in reasons[0]["reason"] and not reasons[0]["override"]
        and all(step["target"] != PROTECTED for step in plan["steps"])
        and run.node.is_active(PROTECTED) and unit_files() == before,
        refusals=plan.get("refusals"),
        steps=[step["title"] for step in plan.get("steps", [])],
    )  # fmt: skip
    run.node.remove_unit(PROTECTED)


def rolled_back(run: CureRun) -> None:
    """Compared with the unit files before the first apply: everything since is undone."""
    masked = unit_files()
    back = run.fix("rollback")
    run.stage.until(f"{ECS} runs again", run.node.is_active, within_s=60)
    after = unit_files()
    state = run.node.show(ECS, "UnitFileState")
    run.claims.check(
        "rolled_back", "rollback restores enablement and files byte for byte, and restarts it",
        back.status == 0
        and state == "enabled"
        and tree_hash(after) == run.tree
        and masked != after,
        exit=back.status, unit_file_state=state, tree=tree_hash(after), tree_before=run.tree,
        cured_tree=tree_hash(masked), changed_by_it=changes(masked, after),
        cannot_undo=back.document.get("cannot_undo"), runs=run.node.is_active(),
    )  # fmt: skip


PHASES: tuple[Callable[[CureRun], None], ...] = (
    image, illness, found, gate_fails, killed, cured, verified, gate_passes, refused, rolled_back,
)  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
