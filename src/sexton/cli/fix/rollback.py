"""Put back what an apply changed: enablement, masks, drop-ins, byte for byte, and what ran.

  sudo sexton fix rollback                  the last apply that is not undone
  sudo sexton fix rollback ID               one by its id (sexton fix status)

Works from the journal alone, also after an apply or a rollback that was killed half-way,
and may be run again. What somebody else changed meanwhile is left as it is, and said.
What no undo brings back (evicted cache, a process's memory, restart counters) is named.
Exit: 0 everything is back, 1 something could not be put back (it says what), 2 failed.
"""

from __future__ import annotations

import argparse

from sexton.cli.fix.options import add_state
from sexton.cli.options import add_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="an apply (default: the last one)")
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.fix.options import need_root, page, show, state_of
    from sexton.cure.executor import Bench
    from sexton.cure.rollback import choose, rollback
    from sexton.cure.watchdog import Watchdog
    from sexton.cure.writer import LiveWriter
    from sexton.host.host import open_host
    from sexton.reports.json.plan import rolled_back_json
    from sexton.reports.text.plan import rolled_back_text

    need_root("rollback")
    host = open_host()
    state = state_of(args)
    bench = Bench(
        host,
        LiveWriter(host),
        state,
        lambda limit_s: Watchdog(host, limit_s),
        tell=lambda line: print(f"  {line}", file=sys.stderr, flush=True),
    )
    done = rollback(choose(state, args.id), bench)
    width, colour = page()
    show(args, rolled_back_json(done), rolled_back_text(done, width, colour))
    return 1 if done.failed else 0
