"""Make a plan to fix what is wrong, step by step. Changes nothing.

Watches the node (or reads a recording), diagnoses it and proposes steps. Each step has a
risk, the exact effect, preconditions that are checked again on apply, its undo, what undo
cannot restore, and the proof that is read afterwards.

  sudo sexton fix plan                      print the plan
  sudo sexton fix plan --out plan.json      save it for apply
  sudo sexton fix plan --from /var/lib/sexton --out plan.json
  sudo sexton fix plan --shell              the same as shell commands

Refused or skipped, with the reason, unless you allow it:
  --accept-collateral   reclaim although protected units or pods share the zombies' parent
                        and lose cache too; stop a unit although something here needs it
  --thorough            also free zombies that the kernel releases only after evicting the
                        page cache of running cgroups under the same parent
  --allow-drop-caches   as a further step, drop the page cache of the whole node
  --override            add a drop-in (Restart=no) instead of disabling and masking: the
                        unit can still be started manually
On a node of a Kubernetes cluster, before all other steps (docs/kubernetes-remedies.md):
  --cordon, --taint     keep new pods away
  --drain               cordon, then evict the pods, as PodDisruptionBudgets allow
Units that the node depends on are always refused.
Exit: 0 nothing to do, 1 something to do, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.cluster import add_kubeconfig, add_node
from sexton.cli.configuration import add_config
from sexton.cli.fix import add_protected, cluster_of, rules_of, terminal
from sexton.cli.options import add_json, add_key, seconds
from sexton.cli.output import print_result, write_whole
from sexton.cli.window import add_span, open_recording, requested_span, watch
from sexton.errors import CommandError, SextonError

if TYPE_CHECKING:
    from sexton.cure.node_plan import NodeView
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
        help="read a recording of this node instead of watching it",
    )
    add_key(parser)
    add_span(parser)
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch (default 10)"
    )
    parser.add_argument("--out", metavar="FILE", help="save the plan to FILE for apply")
    form = parser.add_mutually_exclusive_group()
    add_json(form)  # type: ignore[arg-type]
    form.add_argument("--shell", action="store_true", help="print equivalent shell commands")
    parser.add_argument(
        "--accept-collateral",
        action="store_true",
        help="allow reclaim that also evicts cache of protected units or pods, and stopping a unit"
        " that something here needs; protected units are never stopped",
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="free the last zombies too: running cgroups under the same parent may lose all page"
        " cache and be swapped out",
    )
    parser.add_argument(
        "--allow-drop-caches", action="store_true", help="also drop the node's page cache"
    )
    parser.add_argument(
        "--override", action="store_true", help="use a drop-in instead of disable and mask"
    )
    _add_node_steps(parser)
    add_protected(parser)
    add_config(parser)


def _add_node_steps(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("on a node of a Kubernetes cluster")
    group.add_argument("--cordon", action="store_true", help="cordon the Node")
    group.add_argument("--taint", action="store_true", help="taint the Node (NoSchedule)")
    group.add_argument("--drain", action="store_true", help="cordon the Node and evict its pods")
    group.add_argument(
        "--delete-emptydir-data",
        action="store_true",
        help="also evict pods whose emptyDir is lost with them",
    )
    group.add_argument(
        "--evict-unmanaged",
        action="store_true",
        help="also evict pods without a controller, which nothing starts again",
    )
    group.add_argument(
        "--drain-seconds", type=seconds, metavar="N", help="how long to drain (default 900)"
    )
    add_node(parser)
    add_kubeconfig(parser)


def run(args: argparse.Namespace) -> int:
    import sys
    from dataclasses import replace

    from sexton.cure.plan import PlanContext, PlanOptions, make_plan
    from sexton.host.host import open_host
    from sexton.model.diagnosis import Exit
    from sexton.model.plan import as_json
    from sexton.reports.text.fix import plan_shell, plan_text

    rules = rules_of(args)
    node = _node_view(args)  # before a recording of others is read
    diagnosis, window = diagnosed(args)
    # A silence is about alarms; a plan lists all there is to fix.
    loud = tuple(replace(finding, silenced=None) for finding in diagnosis.findings)
    diagnosis = replace(diagnosis, findings=loud)
    options = PlanOptions(
        args.accept_collateral, args.allow_drop_caches, args.override, args.thorough
    )
    context = PlanContext(open_host(), rules, options, needs_of(diagnosis, window, rules), node)
    plan = make_plan(diagnosis, window, context)
    if args.out:
        _save(plan, args.out)
    if args.shell:
        sys.stdout.write(plan_shell(plan))
    else:
        width, colour = terminal()
        print_result(args, as_json(plan), plan_text(plan, width, colour, args.out or ""))
    if plan.steps or plan.refusals:
        return 1
    return int(Exit.CANNOT_TELL if diagnosis.exit is Exit.CANNOT_TELL else Exit.HEALTHY)


def _node_view(args: argparse.Namespace) -> NodeView:
    """The Node as it is, if steps on it are wanted."""
    from sexton.cure.node_plan import CORDON, DRAIN, TAINT, NodeView, NodeWishes, read_view
    from sexton.cure.nodes import EMPTYDIR, UNMANAGED
    from sexton.cure.remedies.drain_node import DEADLINE_S

    pods = {EMPTYDIR: args.delete_emptydir_data, UNMANAGED: args.evict_unmanaged}
    if not args.drain and (any(pods.values()) or args.drain_seconds is not None):
        raise CommandError(
            "--delete-emptydir-data, --evict-unmanaged and --drain-seconds require --drain"
        )
    words = {CORDON: args.cordon, TAINT: args.taint, DRAIN: args.drain}
    wishes = NodeWishes(
        frozenset(word for word, wanted in words.items() if wanted),
        frozenset(word for word, allowed in pods.items() if allowed),
        args.drain_seconds or DEADLINE_S,
    )
    if not wishes.wanted:
        return NodeView()
    from sexton.cli.cluster import node_name

    return read_view(cluster_of(args), node_name(args.node), wishes)


def diagnosed(args: argparse.Namespace) -> tuple[Diagnosis, Window]:
    from sexton.explain.diagnosis import diagnose

    if args.recording not in (None, "live"):
        if args.seconds is not None:
            raise CommandError("--seconds has no effect with --from")
        recording = open_recording(args.recording, live=True, key=args.key)
        from sexton.replay.window import window as replayed

        window = replayed(recording, requested_span(args, recording)).window
        return diagnose(window), window
    if args.around is not None or args.window is not None:
        raise CommandError("--around and --window require --from")
    if args.key is not None:
        raise CommandError("--key requires --from DIR")
    args.root, args.stacks, args.probe, args.no_trace = "/", False, False, False
    window, cost = watch(args, "diagnose")
    return diagnose(window, cost), window


def needs_of(diagnosis: Diagnosis, window: Window, rules: tuple[Rule, ...]) -> dict[str, Subject]:
    """Audit results of the node's units; skipped if no unit would be stopped."""
    from sexton.detect.detectors.cgroups import crash_looping_unit
    from sexton.host.host import open_host
    from sexton.prevent.audit import audit

    loop = diagnosis.by_id.get(crash_looping_unit.NAME)
    if loop is None or not loop.is_problem:
        return {}
    try:
        return {subject.unit: subject for subject in audit(open_host(), window, rules).subjects}
    except SextonError:  # then the step says that it is unknown
        return {}


def _save(plan: Plan, path: str) -> None:
    """Write it atomically, readable only by its owner: it describes the node."""
    import json

    from sexton.model.plan import as_json

    write_whole(path, (json.dumps(as_json(plan), indent=2).encode("ascii"), b"\n"))
