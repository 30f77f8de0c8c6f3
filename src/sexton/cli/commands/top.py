"""A live screen: every core, its worst task, zombies, network cards, kernel events.

Each core's bar tells user, system and softirq time apart; beside it stands the thread
that burnt most of it. Readable on 96 cores. q quits.

  sexton top
  sexton top --frames 1 | cat     one screen as plain text

Piped, it prints one screen after one interval and ends.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_root, seconds

if TYPE_CHECKING:
    from sexton.cli.screen.terminal import Keys
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import Source

#: How far back a screen remembers, in seconds; rates of zombies are over that.
_MEMORY_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="N",
        help="seconds between two screens (default 1)",
    )
    parser.add_argument(
        "--frames", type=_positive, metavar="N", help="end after so many screens (piped: 1)"
    )
    add_root(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.host.host import open_host
    from sexton.record.sampler import Sampler

    interval = max(args.interval, 0.1)
    with Sampler(open_host(args.root), _sources(interval)) as sampler:
        if sys.stdout.isatty():
            _live(sampler, interval, args.frames)
        else:
            _print(sampler, interval, args.frames or 1)
    return 0


def _sources(interval: float) -> list[Source]:
    """Those the screen shows; what changes quickly is read once per screen."""
    from dataclasses import replace

    from sexton.model import cgroup, cpu, event, net, node, task
    from sexton.sources.registry import giving

    quick = (cpu.CoreTimes, task.Thread, net.NetDevice, cgroup.CgroupCensus)
    slow = (cgroup.CgroupEvent, event.KernelEvent, net.Nic, net.NicCounter)
    chosen = giving(*quick, *slow, node.Node)
    return [
        replace(each, period_s=interval) if set(each.rows) & set(quick) else each for each in chosen
    ]


def _live(sampler: Sampler, interval: float, frames: int | None) -> None:
    import contextlib

    from rich.console import Console
    from rich.live import Live

    from sexton.cli.screen.frame import frame
    from sexton.cli.screen.terminal import keyboard

    console = Console(markup=False, highlight=False, emoji=False)
    shown = 0
    with (
        contextlib.suppress(KeyboardInterrupt),
        keyboard() as key,
        Live(console=console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        _first(sampler, interval)
        while frames is None or shown < frames:
            began = _read(sampler)
            width, height = console.size
            live.update(frame(sampler.window(), width, height), refresh=True)
            shown += 1
            if _quit(key, began + interval):
                return


def _quit(key: Keys, until: float) -> bool:
    """Wait for the next screen; true where somebody wants to go."""
    import time

    while (left := until - time.monotonic()) > 0:
        pressed = key(left)
        if "q" in pressed or "Q" in pressed or "\x03" in pressed:
            return True
    return False


def _print(sampler: Sampler, interval: float, frames: int) -> None:
    import shutil
    import sys
    import time

    from sexton.cli.screen.frame import frame

    width, height = shutil.get_terminal_size((100, 40))
    began = _first(sampler, interval)
    for number in range(frames):
        time.sleep(max(began + interval - time.monotonic(), 0.0))
        began = _read(sampler)
        text = frame(sampler.window(), width, height).plain
        lines = [line.rstrip() for line in text.splitlines()]
        sys.stdout.write(("\n" if number else "") + "\n".join(lines) + "\n")
        sys.stdout.flush()


def _first(sampler: Sampler, interval: float) -> float:
    """Two readings close together: who burns is known by the first whole interval then."""
    import time

    began = _read(sampler)
    time.sleep(min(interval / 4, 0.25))
    sampler.read_all()
    return began


def _read(sampler: Sampler) -> float:
    import time

    from sexton.model.event import KernelEvent

    now = time.monotonic()
    sampler.read_due(now)
    sampler.forget(now - _MEMORY_S, events=(KernelEvent,))
    return now


def _positive(text: str) -> int:
    plain = text.isascii() and text.isdecimal() and len(text) <= 9
    if not plain or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of screens")
    return int(text)
