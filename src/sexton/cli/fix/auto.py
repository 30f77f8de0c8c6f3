"""Fix this node unattended, within the limits of a policy. One pass, or one every N seconds.

  sudo sexton fix auto --policy FILE --from /var/lib/sexton          one pass
  sudo sexton fix auto --policy FILE --from DIR --every 300          beside node-agent

The policy says which cause chains may be acted on, by which steps, and how many nodes of a
pool may be out of service at once. One node of the cluster acts at a time (a Lease), none
while the kill switch is on. Until the policy says dry_run = false, and in the first week
unless it gives enforce_after, a pass only logs what it would do. An apply that stopped or
was interrupted is left for a person: nothing is done here until it is rolled back. Every
decision, also not to act and why, is in the audit log (`sexton audit-log`).
docs/kubernetes-remedies.md has a policy with every key, and the rights it needs.
Exit: 0 nothing to do, or done and proven; 1 a problem, and it did not act or stopped;
2 failed; 3 cannot tell, or a proof could not be read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sexton.cli.cluster import add_kubeconfig, add_node
from sexton.cli.configuration import VARIABLE, add_config
from sexton.cli.fix import (
    add_protected,
    add_state,
    cluster_of,
    need_root,
    print_progress,
    rules_of,
    state_of,
)
from sexton.cli.options import add_json, seconds
from sexton.cli.output import print_result
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.cure.auto.policy import Policy
    from sexton.cure.auto.proposal import Proposal
    from sexton.cure.auto.unattended import Decision, Unattended

_MOST_BYTES = 1 << 20
#: Reading a recording takes seconds, watching `--seconds` and some more.
_JUDGE_S = 300.0
_LEAST_EVERY_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="FILE", required=True, help="the limits, in TOML")
    parser.add_argument(
        "--from",
        dest="recording",
        metavar="DIR",
        help="judge the last five minutes of a recording of this node instead of watching it",
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch without --from (default 10)"
    )
    parser.add_argument(
        "--every", type=seconds, metavar="N", help="a pass every N seconds, forever"
    )
    parser.add_argument(
        "--max-seconds",
        type=seconds,
        metavar="N",
        help="stop an apply after N seconds (default 300, and as long as the policy gives a drain)",
    )
    add_node(parser)
    add_kubeconfig(parser)
    add_json(parser)
    add_protected(parser)
    add_state(parser)
    add_config(parser)
    parser.add_argument("--auto-part", choices=("propose",), help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    policy = read_policy(args.policy)
    if args.auto_part == "propose":
        return _propose(args, policy)
    need_root("auto")
    if args.every is not None and args.every < _LEAST_EVERY_S:
        raise CommandError(f"--every must be at least {_LEAST_EVERY_S:.0f}")
    unattended = _unattended(args, policy)
    if args.every is None:
        decision = unattended.run()
        _print(args, decision)
        return decision.exit
    return _forever(args, unattended)


def _forever(args: argparse.Namespace, unattended: Unattended) -> int:
    """Until it is ended. Nodes that started together do not ask together."""
    import random
    import time

    time.sleep(random.uniform(0.0, args.every))
    while True:
        _print(args, unattended.run())
        time.sleep(args.every * random.uniform(0.9, 1.1))


def _print(args: argparse.Namespace, decision: Decision) -> None:
    facts = {
        "schema": "sexton.fix_auto/1",
        "how": decision.how,
        "why": decision.why,
        "chain": decision.chain,
        "run": decision.run or None,
    }
    parts = [decision.how.upper(), decision.chain, decision.why]
    parts += [f"sexton fix verify {decision.run}"] if decision.run and not decision.exit else []
    print_result(args, facts, "  ".join(part for part in parts if part) + "\n")


def read_policy(path: str) -> Policy:
    """The policy; a file that others may write is refused."""
    import os
    import stat

    from sexton.cure.auto.policy import policy_of
    from sexton.model.text import printable

    shown = printable(path)
    try:
        with open(path, "rb") as stream:
            about = os.fstat(stream.fileno())
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{shown}: {error.strerror}") from None
    if not stat.S_ISREG(about.st_mode) or len(content) > _MOST_BYTES:
        raise CommandError(f"{shown}: not a file, or over {_MOST_BYTES:,} bytes")
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CommandError(f"{shown}: writable by others; it must belong to root with mode 644")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise CommandError(f"{shown}: not TOML: not UTF-8") from None
    return policy_of(text, shown)


def _unattended(args: argparse.Namespace, policy: Policy) -> Unattended:
    from sexton.cli.cluster import node_name
    from sexton.cure.apply import FixContext
    from sexton.cure.auto.unattended import Unattended
    from sexton.cure.nodes import NO_CREDENTIAL
    from sexton.cure.writer import LiveWriter
    from sexton.host.host import open_host

    cluster = cluster_of(args)
    if cluster is None:
        raise CommandError(NO_CREDENTIAL)
    host = open_host()
    state, rules = state_of(args), rules_of(args)
    fix = FixContext(host, LiveWriter(host), state, rules, print_progress, cluster=cluster)
    judge = _judged_by(_command(args))
    return Unattended(node_name(args.node), policy, fix, judge, args.max_seconds)


def _command(args: argparse.Namespace) -> list[str]:
    """Of the process that reads the recording. Its environment is empty, so what is there is read
    here; it gets no credential."""
    import os

    from sexton.host.runner import module_command

    options = {
        "--policy": os.path.abspath(args.policy),
        "--from": args.recording and os.path.abspath(args.recording),
        "--seconds": args.seconds and str(args.seconds),
        "--protected": args.protected and os.path.abspath(args.protected),
        "--config": os.environ.get(VARIABLE) if args.config is None else args.config,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return module_command("sexton", "fix", "auto", "--auto-part", "propose", *given)


def _judged_by(command: Sequence[str]) -> Callable[[], Proposal]:
    from sexton.cure.auto.proposal import proposal_from_json
    from sexton.errors import SourceError
    from sexton.host import runner

    def judge() -> Proposal:
        ended = runner.run(command, _JUDGE_S)
        if ended.status != 0:
            said = ended.errors.decode("utf-8", "replace").strip().split("\n")[-1]
            raise SourceError("judging", said.removeprefix("sexton: ") or f"exit {ended.status}")
        return proposal_from_json(ended.output)

    return judge


def _propose(args: argparse.Namespace, policy: Policy) -> int:
    """Diagnose, and print what the policy allows to do about it, as JSON."""
    from sexton.cli.fix.plan import diagnosed, needs_of
    from sexton.cure.auto.proposal import propose
    from sexton.cure.plan import PlanContext
    from sexton.host.host import open_host

    rules = rules_of(args)
    args.around = args.window = args.key = None
    if args.recording is None:
        diagnosis, window = diagnosed(args)
    else:  # the last minutes, as node-agent: what was hours ago is no reason to act
        from sexton.cli.window import open_recording
        from sexton.export.work import judge_last

        if args.seconds is not None:
            raise CommandError("--seconds has no effect with --from")
        _, window, diagnosis = judge_last(open_recording(args.recording, live=True))
    context = PlanContext(open_host(), rules, needs=needs_of(diagnosis, window, rules))
    print(propose(diagnosis, window, policy, context).to_json())
    return 0
