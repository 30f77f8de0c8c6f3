"""Undo an apply: restore enablement, masks and drop-ins exactly, and start stopped units.

  sudo sexton fix rollback                  the last apply that has not been undone
  sudo sexton fix rollback ID               an apply by its ID (sexton fix status)

Needs only the journal, and for steps on a Node the API server. Works after an apply or
rollback that was killed, and can be repeated. Changes made by others since are kept and
reported, and so is what cannot be restored (evicted cache, process memory, restart
counters).
Exit: 0 everything restored, 1 something could not be restored, 2 failed.
"""

from __future__ import annotations

import argparse

from sexton.cli.cluster import add_kubeconfig
from sexton.cli.fix import (
    add_id,
    add_state,
    cluster_of,
    need_root,
    print_progress,
    state_of,
    terminal,
)
from sexton.cli.options import add_json
from sexton.cli.output import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_id(parser)
    add_kubeconfig(parser)
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cure.apply import FixContext
    from sexton.cure.rollback import choose, rollback
    from sexton.cure.writer import LiveWriter
    from sexton.host.host import open_host
    from sexton.reports.text.fix import rolled_back_json, rolled_back_text

    need_root("rollback")
    host = open_host()
    state = state_of(args)
    fix = FixContext(
        host, LiveWriter(host), state, progress=print_progress, cluster=cluster_of(args)
    )
    done = rollback(choose(state, args.id), fix)
    width, colour = terminal()
    print_result(args, rolled_back_json(done), rolled_back_text(done, width, colour))
    return 1 if done.failed else 0
