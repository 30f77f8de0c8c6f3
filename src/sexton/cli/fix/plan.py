"""What to do about what is wrong here, step by step. Changes nothing.

Watches the node (or reads a recording of it), diagnoses, and turns that into steps, each
with its risk, the exact effect, the conditions that are checked again when it is applied,
its undo, what no undo restores, and the proof that will be read afterwards.

  sudo sexton fix plan                      look, think, print
  sudo sexton fix plan --out plan.json      keep it: apply takes that file
  sudo sexton fix plan --from /var/lib/sexton --out plan.json
  sudo sexton fix plan --shell              the same as shell commands, to read or to run

Refused or left out, with the reason, unless you say otherwise:
  --accept-collateral   reclaim where protected units or pods live beside the zombies, and
                        stopping a unit that something here needs: they pay, too
  --thorough            free the last of the zombies, too: those the kernel lets go only after
                        the page cache of all who live beside them, which they lose for it
  --allow-drop-caches   as a further step, drop the whole node's page cache
  --override            a drop-in (Restart=no) instead of disable and mask: the unit can
                        still be started by hand
Units that a node lives by are refused whatever you say.
Exit: 0 nothing to do, 1 there is something to do, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.fix.options import add_protected
from sexton.cli.options import add_json, seconds
from sexton.cli.times import add_span

if TYPE_CHECKING:
    from sexton.cure.protected import Rule
    from sexton.model.audit import Subject
    from sexton.model.diagnosis import Diagnosis
    from sexton.model.plan import Plan
    from sexton.model.window import Window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="recording",
        metavar="DIR",
        help="plan on what a recording of this node shows; `live` (the default) watches it now",
    )
    add_span(parser)
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch (default 10)"
    )
    parser.add_argument("--out", metavar="FILE", help="keep the plan there, for apply")
    form = parser.add_mutually_exclusive_group()
    add_json(form)  # type: ignore[arg-type]
    form.add_argument("--shell", action="store_true", help="print the equivalent commands")
    parser.add_argument(
        "--accept-collateral",
        action="store_true",
        help="go on where others, protected ones too, would lose cache or be stopped with it",
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="free on when only the cache of the living stands before the dead: whoever lives under"
        " the same parent loses theirs, reads it from disk again, and may be swapped out",
    )
    parser.add_argument(
        "--allow-drop-caches", action="store_true", help="plan to drop the node's page cache too"
    )
    parser.add_argument(
        "--override", action="store_true", help="a drop-in instead of disable and mask"
    )
    add_protected(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.fix.options import page, rules_of, show
    from sexton.cure.planning import Ground, Wishes, make_plan
    from sexton.host.host import open_host
    from sexton.model.diagnosis import Exit
    from sexton.reports.json.plan import plan_json
    from sexton.reports.text.plan import plan_shell, plan_text

    rules = rules_of(args)
    diagnosis, window = _seen(args)
    wishes = Wishes(args.accept_collateral, args.allow_drop_caches, args.override, args.thorough)
    ground = Ground(open_host(), rules, wishes, _needs(diagnosis, window, rules))
    plan = make_plan(diagnosis, window, ground)
    if args.out:
        _keep(plan, args.out)
    if args.shell:
        sys.stdout.write(plan_shell(plan))
    else:
        width, colour = page()
        show(args, plan_json(plan), plan_text(plan, width, colour, args.out or ""))
    if plan.steps or plan.refusals:
        return 1
    return int(Exit.CANNOT_TELL if diagnosis.exit is Exit.CANNOT_TELL else Exit.HEALTHY)


def _seen(args: argparse.Namespace) -> tuple[Diagnosis, Window]:
    from pathlib import Path

    from sexton.cli.options import need_recorder
    from sexton.cli.seeing import asked_of, read_back, watch
    from sexton.errors import CommandError
    from sexton.explain.diagnosis import diagnose

    if args.recording not in (None, "live"):
        from sexton.store.recording import Recording

        if args.seconds is not None:
            raise CommandError("a recording was made already: --seconds says nothing")
        need_recorder()
        recording = Recording(Path(args.recording))
        window = read_back(recording, asked_of(args, recording)).window
        return diagnose(window), window
    if args.around is not None or args.window is not None:
        raise CommandError("--around and --window speak of a recording: --from DIR names it")
    args.root, args.stacks, args.probe, args.no_trace = "/", False, False, False
    window, cost = watch(args, "diagnose")
    return diagnose(window, cost), window


def _needs(diagnosis: Diagnosis, window: Window, rules: tuple[Rule, ...]) -> dict[str, Subject]:
    """What an audit of this node says of its units; not asked where no unit is to be stopped."""
    from sexton.detect.detectors import crash_looping_unit
    from sexton.errors import SextonError
    from sexton.host.host import open_host
    from sexton.prevent.audit import audit

    loop = diagnosis.by_id.get(crash_looping_unit.NAME)
    if loop is None or not loop.is_problem:
        return {}
    try:
        return {each.unit: each for each in audit(open_host(), window, rules).subjects}
    except SextonError:  # then the step says that it could not be seen
        return {}


def _keep(plan: Plan, path: str) -> None:
    """Whole or not at all, for its owner alone: it tells about the node."""
    import json

    from sexton.cli.whole import write_whole
    from sexton.model.plan import as_json

    write_whole(path, (json.dumps(as_json(plan), indent=2).encode("ascii"), b"\n"))
