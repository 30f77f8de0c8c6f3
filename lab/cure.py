"""``python -m lab.cure --out DIR``: a sick node is found, cured, verified and put back, for real.

In the lab's machine, under its own systemd, with the commands a person would type:

- an image is gated before it ever runs: it passes, and with the deb's ECS agent in it, it fails;
- that agent crash-loops on a Kubernetes node (`lab.sick`), and hundreds of zombies are left:
  `diagnose` and `audit` find it, and `gate` fails the booted node;
- `fix apply` is killed by ``kill -9`` in every step, and `fix rollback` leaves the node as it was:
  files, links, drop-ins by hash, and the unit running;
- a plan is applied and verified: the zombies fall to what there were before, without a reboot, and
  what a live neighbour under the same parent lost by it is measured; then the gate passes;
- a protected unit is refused; rollback brings everything back, byte for byte.

Each is a claim with its numbers in ``DIR/cure.json`` (`lab.claims`); ``DIR/NN-*.txt`` is what every
command said. Exit: 0 every claim holds, 1 one does not, 3 this is no machine for it. Seven minutes
or so under emulation: ``python -m lab.vm run 6.1 v2 check_cure --out DIR``.
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
from lab.case import LOOK_S, WATCH_S, Case, Said
from lab.claims import Claims
from lab.killing import killed
from lab.patience import own_machine
from lab.sick import ECS, NEIGHBOUR, Sick, changes, picture, tree_hash
from lab.stage import CannotPlay, SceneFailed, Stage

UNFIT = 3
#: More than the gate and the diagnosis call many, and twice the live ones of this machine.
ZOMBIES = 550
#: After so long nothing new is begun.
LIMIT_S = 600.0
PROTECTED = "containerd.service"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.cure", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    claims = Claims("cure")
    try:
        if not own_machine():
            raise CannotPlay("it plants units and masks them: only in the lab's own machine")
        args.out.mkdir(parents=True, exist_ok=True)
        with Stage(args.out, {}) as stage:
            fit(stage)
            claims.about = {"hierarchy": stage.hierarchy}
            play(Case(stage, Sick(stage), claims, args.out))
    except CannotPlay as reason:
        sys.stderr.write(f"lab.cure: {reason}\n")
        return UNFIT
    finally:
        if claims.settled:
            claims.write(args.out)
    held = len(claims.settled) - len(claims.failed)
    print(f"{held} of {len(claims.settled)} claims hold", flush=True)
    return 0 if claims.holds else 1


def fit(stage: Stage) -> None:
    """`CannotPlay` where this is no machine for it."""
    if not stage.systemd:
        raise CannotPlay("it needs a systemd as PID 1")
    if stage.layout.mount_point is None:
        raise CannotPlay(stage.layout.reason or "no memory hierarchy is mounted")


def play(case: Case) -> None:
    """One phase after the other; where one breaks, its claim does not hold and the next has its
    try: most need nothing of each other. All need the first two."""
    for phase in PHASES:
        if case.spent_s > LIMIT_S:
            case.claims.settle(phase.__name__, "it was come to in time", False)
            continue
        try:
            phase(case)
        except (SceneFailed, OSError, LookupError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            case.claims.settle(phase.__name__, "it could be tried", False, why=why)
            if phase in (image, illness):
                return


# An image before it runs, and when it runs


def image(case: Case) -> None:
    """This machine's own root file system, as it lies there (no /proc, no /run) and as it runs."""
    root = case.stage.folder / "root"
    root.mkdir()
    case.sick.plant_kubelet()
    case.stage.run("mount", "--bind", "/", root)
    case.stage.later(lambda: case.stage.run("umount", "-l", root, check=False))
    words = ("gate", "--root", str(root), "--format", "json")
    healthy = case.sexton(*words)
    case.claims.settle(
        "image_passes", "an image that is well passes the gate, unbooted",
        healthy.status == 0 and healthy.document.get("booted") is False, **gated(healthy),
    )  # fmt: skip
    case.swap = case.sick.swap_on()
    case.sick.start()
    case.baseline = case.sick.dead()
    running = case.gate()
    case.claims.settle(
        "healthy_passes", "the same image passes when it is booted, with kubelet on it",
        running.status == 0 and running.document.get("booted") is True,
        dead=case.baseline, **gated(running),
    )  # fmt: skip
    case.sick.plant_ecs()
    broken = case.sexton(*words)
    case.claims.settle(
        "image_fails", "the same image with the deb's ECS agent in it fails, unbooted",
        broken.status == 1 and ECS in violated(broken, "restart_without_backoff"),
        **gated(broken),
    )  # fmt: skip


def gated(said: Said) -> dict[str, Any]:
    """Exit, and what became of each rule."""
    rules = said.document.get("rules", [])
    outcomes = {rule["id"]: rule["outcome"] for rule in rules}
    named = {rule["id"]: violated(said, rule["id"]) for rule in rules if rule["violations"]}
    missing = [lack["what"] for rule in rules for lack in rule.get("missing", [])]
    result = {"exit": said.status, "rules": outcomes, "violations": named, "missing": missing}
    return {**result, "seconds": said.seconds}


def violated(said: Said, rule: str) -> list[str]:
    """Who broke a rule."""
    return [
        broken["subject"]
        for other in said.document.get("rules", [])
        if other["id"] == rule
        for broken in other["violations"]
    ]


# The node falls ill


def illness(case: Case) -> None:
    """`CannotPlay` where this kernel leaves no zombies, or gives no way to free them."""
    sick = case.sick
    order = "memory.force_empty" if case.stage.layout.version == 1 else "memory.reclaim"
    if not (sick.top / SLICE / order).exists():
        raise CannotPlay(f"this kernel has no {order}: nothing could be freed")
    sick.fall_ill()
    case.stage.until("some restarts", lambda: sick.restarts() >= 4, within_s=120)
    if sick.dead() < case.baseline + 20:
        raise CannotPlay("the agent died some times and left no zombies: nothing to free")
    case.made = sick.dig(case.baseline + ZOMBIES) - case.baseline
    case.tree = tree_hash(picture())
    case.stage.moment(f"{case.made} zombies are left, {case.baseline} were there before")


def found(case: Case) -> None:
    said = case.sexton("diagnose", "--json", "--seconds", str(WATCH_S))
    present = {
        finding["id"]: finding
        for finding in said.document.get("findings", [])
        if finding["verdict"] == "present" and finding["severity"] != "info"
    }
    loop = present.get("crash_looping_unit", {})
    case.claims.settle(
        "diagnosed", "diagnose finds the crash loop by name, and the zombies",
        said.status == 1
        and ECS in loop.get("entities", {}).get("unit", ())
        and "zombie_memcgs" in present,
        exit=said.status, seconds=said.seconds,
        found={name: value["summary"] for name, value in present.items()},
        root=(said.document.get("chains") or [{}])[0].get("root"),
    )  # fmt: skip
    audited = case.sexton("audit", "--json", "--seconds", str(LOOK_S))
    subjects = {subject["unit"]: subject for subject in audited.document.get("subjects", [])}
    about = subjects.get(ECS, {})
    case.claims.settle(
        "audited", "audit says that nothing needs it, and that it loops",
        about.get("verdict") == "unneeded"
        and "crash-loop" in [fault["id"] for fault in about.get("faults", [])],
        exit=audited.status, seconds=audited.seconds, verdict=about.get("verdict"),
        reasons=[f"{reason['what']}: {reason['value']}" for reason in about.get("reasons", [])],
        unseen=audited.document.get("unseen"),
    )  # fmt: skip


def gate_fails(case: Case) -> None:
    said = case.gate()
    case.claims.settle(
        "booted_fails", "the gate fails the booted sick node",
        said.status == 1
        and said.document.get("booted") is True
        and ECS in violated(said, "crash_loops")
        and ECS in violated(said, "restart_without_backoff"),
        dead=case.sick.dead(), **gated(said),
    )  # fmt: skip


# The cure


def cured(case: Case) -> None:
    sick = case.sick
    case.made = sick.dig(case.baseline + ZOMBIES) - case.baseline
    sick.refresh_neighbour()
    plan = case.plan_for_loop("--thorough")
    sick.agent.work(0)
    before, living, pid = sick.dead(), sick.neighbour(), sick.neighbour_pid()
    kept = picture()
    applied = _apply(case, plan)
    result = applied.document
    stopped = sick.show(ECS, "LoadState") == "masked" and not sick.runs()
    case.claims.settle(
        "applied", "every step is done and proven, and the unit is stopped and masked",
        applied.status == 0 and result.get("how") == "complete" and stopped,
        exit=applied.status, seconds=applied.seconds, why=result.get("why"),
        steps=[f"{one['id']}: {one['state']}: {one['said']}" for one in result.get("steps", [])],
        thorough=[step["parameters"].get("thorough") for step in plan.get("steps", [])],
        changed=changes(kept, picture()), watched=result.get("watched"),
    )  # fmt: skip
    after = sick.dead_at_most(case.allowed)
    outcome = freed(case.state, str(result.get("run")))
    case.claims.settle(
        "freed", "the zombies fall to what there were before, without a reboot",
        after <= case.allowed < before,
        baseline=case.baseline, before=before, after=after, allowed=case.allowed, freeing=outcome,
    )  # fmt: skip
    lost = sick.neighbour()
    whole = living["anonymous"] + living["swapped"]
    case.claims.settle(
        "neighbour", "what a live sibling lost by it is measured, and nothing of its own is gone",
        sick.runs(NEIGHBOUR) and sick.neighbour_pid() == pid != 0
        and living["cache"] > 0 and living["swapped"] > 0 and living["swap_charged"] > 0
        and lost["anonymous"] + lost["swapped"] >= 0.95 * whole,
        before=living, after=lost, swap=case.swap or "on",
    )  # fmt: skip


def _apply(case: Case, plan: dict[str, Any]) -> Said:
    """As a person would: where it stopped because the node was under pressure, undo, and again."""
    words = ("apply", str(case.plan), "--confirm", plan["hash"])
    applied = case.fix(*words)
    if applied.status == 1 and "pressure is" in str(applied.document.get("why")):
        case.stage.moment(f"once more: {applied.document['why']}")
        case.fix("rollback")
        case.let_loop(plan)
        applied = case.fix(*words)
    return applied


def freed(state: Path, run: str) -> dict[str, Any]:
    """What the step that freed the most measured itself, from the journal."""
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


def verified(case: Case) -> None:
    said = case.fix("verify", "--seconds", str(WATCH_S))
    now = (said.document.get("zombies") or {}).get("now")
    case.claims.settle(
        "verified", "every criterion is met, and it counts as few dead as there are",
        said.status == 0 and now is not None and now <= case.allowed,
        exit=said.status, verdict=said.document.get("verdict"),
        zombies=said.document.get("zombies"),
        criteria={criterion["what"]: [criterion["before"], criterion["now"], criterion["met"]]
                  for criterion in said.document.get("criteria", [])},
    )  # fmt: skip


def gate_passes(case: Case) -> None:
    said = case.gate()
    case.claims.settle(
        "booted_passes", "after the cure the same node passes the gate, without a reboot",
        said.status == 0 and said.document.get("booted") is True,
        dead=case.sick.dead(), **gated(said),
    )  # fmt: skip


def refused(case: Case) -> None:
    case.sick.loop_protected(PROTECTED)
    before = picture()
    plan = case.make_plan("--accept-collateral")
    reasons = [refusal for refusal in plan.get("refusals", []) if refusal["target"] == PROTECTED]
    case.claims.settle(
        "refused", "a protected unit that loops is refused with the reason, whatever one accepts",
        len(reasons) == 1 and "protected" in reasons[0]["reason"] and not reasons[0]["override"]
        and all(step["target"] != PROTECTED for step in plan["steps"])
        and case.sick.runs(PROTECTED) and picture() == before,
        refusals=plan.get("refusals"),
        steps=[step["title"] for step in plan.get("steps", [])],
    )  # fmt: skip
    case.sick.forget(PROTECTED)


def rolled_back(case: Case) -> None:
    """Against the tree before the first plan was ever applied: all that came since is undone."""
    masked = picture()
    back = case.fix("rollback")
    case.stage.until(f"{ECS} to run again", case.sick.runs, within_s=60)
    after = picture()
    state = case.sick.show(ECS, "UnitFileState")
    case.claims.settle(
        "rolled_back", "rollback restores enablement and files byte for byte, and what ran runs",
        back.status == 0
        and state == "enabled"
        and tree_hash(after) == case.tree
        and masked != after,
        exit=back.status, unit_file_state=state, tree=tree_hash(after), tree_before=case.tree,
        cured_tree=tree_hash(masked), changed_by_it=changes(masked, after),
        cannot_undo=back.document.get("cannot_undo"), runs=case.sick.runs(),
    )  # fmt: skip


PHASES: tuple[Callable[[Case], None], ...] = (
    image, illness, found, gate_fails, killed, cured, verified, gate_passes, refused, rolled_back,
)  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
