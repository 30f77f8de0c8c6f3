"""``--prometheus URL --node NAME``: a node that only Prometheus has watched."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.window import parse_span
from sexton.errors import CommandError, SourceError

if TYPE_CHECKING:
    from sexton.replay.prometheus.window import Found

#: An answer of 64 MB becomes 600 MB of numbers before it becomes rows.
_MEMORY_BYTES, _CPU_S = 2 << 30, 120


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """``--prometheus``, ``--node``, ``--prometheus-config``."""
    parser.add_argument(
        "--prometheus", metavar="URL", help="a Prometheus server instead of this node"
    )
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="the node there: its instance with or without port, or its nodename",
    )
    parser.add_argument(
        "--prometheus-config",
        metavar="FILE",
        help="how to be let in: username and password_file, bearer_token_file, ca_file, headers",
    )


def check_prometheus(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    if args.prometheus is None:
        if args.node is not None or args.prometheus_config is not None:
            raise CommandError("--node and --prometheus-config require --prometheus URL")
        return
    if not args.node:
        raise CommandError("--prometheus requires --node NAME")
    if args.recording is not None or args.archive is not None or args.root != "/":
        raise CommandError("--prometheus cannot be combined with --from, --root or an archive")
    if args.seconds is not None or args.stacks or args.probe or args.no_trace:
        raise CommandError(
            "--seconds, --stacks, --probe and --no-trace cannot be combined with --prometheus"
        )


def read_prometheus(args: argparse.Namespace) -> Found:
    """The node's series as a window, in a sandbox that may connect: its answers are untrusted."""
    import time

    from sexton.sandbox import Limits, confine

    start, end = _span(args, time.time())
    confine(Limits(_MEMORY_BYTES, _CPU_S, live=True, what=args.prometheus))
    from sexton.replay.prometheus.client import Access, Client
    from sexton.replay.prometheus.window import window

    try:
        file = args.prometheus_config
        with Client(args.prometheus, None if file is None else Access.read(file)) as client:
            return window(client, args.node, start, end)
    except SourceError as error:
        hint = f"; use {error.grant}" if error.grant else ""
        raise CommandError(f"{error}{hint}") from None


def _span(args: argparse.Namespace, now: float) -> tuple[float, float]:
    """The window that was asked for, else the last minutes."""
    from sexton.replay.prometheus.window import MOST_S, USUAL_S

    start, end = parse_span(args, (now - USUAL_S, now)) or (now - USUAL_S, now)
    end = min(end, now)
    if end <= start:
        raise CommandError("the window is empty or in the future")
    if end - start > MOST_S:
        raise CommandError(f"at most {MOST_S / 3600:.0f} hours can be judged at once")
    return start, end
