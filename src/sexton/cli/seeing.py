"""Where a verdict's window comes from: this node, watched for some seconds, or a recording.

`diagnose` and `why` take the same options and look the same way.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_root, need_recorder, seconds

if TYPE_CHECKING:
    from sexton.model.diagnosis import Cost
    from sexton.model.window import Window
    from sexton.replay.span import Span
    from sexton.replay.window import Replay
    from sexton.store.recording import Recording

#: So many new objects between two looks for cycles.
_SELDOM = 50_000


def add_watching(parser: argparse.ArgumentParser) -> None:
    """``--seconds``, ``--root``, ``--stacks``, ``--probe``, ``--no-trace``."""
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch (default 10)"
    )
    add_root(parser)
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="sample kernel stacks with perf meanwhile (root; proves what held a core)",
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="measure how long softirqs wait for their core, in the kernel (root; BPF)",
    )
    parser.add_argument(
        "--no-trace", action="store_true", help="follow no cgroup events through tracefs"
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """``--from DIR``."""
    parser.add_argument(
        "--from", dest="recording", metavar="DIR", help="judge a recording instead of this node"
    )


def check_recording(args: argparse.Namespace) -> None:
    """Options that say nothing of a recording."""
    from sexton.errors import CommandError

    if args.root != "/":
        raise CommandError("--from and --root exclude each other")
    if args.seconds is not None or args.stacks or args.probe or args.no_trace:
        raise CommandError(
            "a recording was made already: --seconds, --stacks, --probe, --no-trace say nothing"
        )
    need_recorder()


def watch(args: argparse.Namespace, verb: str) -> tuple[Window, Cost]:
    """This node, or the one at `--root`, for some seconds; `verb` is what asks."""
    import gc

    gc.set_threshold(_SELDOM)  # rows make no cycles: to look for some costs more than most sources
    from sexton.cli.progress import countdown
    from sexton.host.host import open_host
    from sexton.record.sampler import Sampler, default_sources
    from sexton.sources.registry import left_out

    span = args.seconds or 10.0
    asked = [name for name in ("--stacks", "--probe") if getattr(args, name[2:])]
    chosen = default_sources(*asked)
    if args.no_trace:
        again = f"sudo sexton {verb}  # without --no-trace"
        chosen = tuple(
            left_out(each, "left out by --no-trace", again)
            if each.id.startswith("tracefs.")
            else each
            for each in chosen
        )
    with Sampler(open_host(args.root), chosen) as sampler, countdown(span) as tick:
        window = sampler.run(span, tick)
    return window, cost_of(window, _touched(window))


def _touched(window: Window) -> str:
    """What was more than reading."""
    ok = {name.partition(".")[0] for name, state in window.states.items() if state.state == "ok"}
    more = [
        words
        for family, words in (
            ("tracefs", "a private trace instance, removed"),
            ("perf", "perf's samples, deleted"),
            ("bpf", "two small BPF programs, gone"),
        )
        if family in ok
    ]
    return f"read-only but for {' and '.join(more)}" if more else "read-only"


def asked_of(args: argparse.Namespace, recording: Recording) -> Span:
    """The span that `--around` and `--window` mean; all of the last boot without them."""
    from sexton.cli.times import AROUND_S, asked_span, parse_moment
    from sexton.errors import CommandError
    from sexton.replay.span import around, between, edges, everything, reach

    try:
        if args.around is not None:
            moment = parse_moment(args.around, edges(recording))
            return around(recording, moment, moment, AROUND_S)
        asked = asked_span(args, edges(recording))
    except CommandError as error:
        raise CommandError(f"{error}; {reach(recording)}") from None
    return everything(recording) if asked is None else between(recording, *asked)


def read_back(recording: Recording, span: Span) -> Replay:
    """The span as a window."""
    from sexton.replay.window import window

    return window(recording, span)


def cost_of(window: Window, touched: str) -> Cost:
    """What we have used so far, children included."""
    import resource

    from sexton.model.diagnosis import Cost

    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return Cost(window.seconds, spent, own.ru_maxrss * 1024, touched)
