"""Live view of cores, their busiest threads, zombies, NICs and kernel events.

Each core's bar shows user, system and softirq time, with the thread that used most of
it. Readable on 96 cores. Press q to quit.

  sexton top
  sexton top --frames 1 | cat     one screen as plain text
  sexton top --json --frames 60   one JSON object a line

When piped, or on a terminal whose cursor cannot be moved (TERM=dumb), it prints one
screen after one interval and exits.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_json, add_root, seconds, whole_up_to

if TYPE_CHECKING:
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import Source

#: Readings are kept for this many seconds; zombie rates are over that span.
_MEMORY_S = 30.0
#: Waits this long for a key; returns it, or "" if none was pressed.
Keys = Callable[[float], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="N",
        help="seconds between updates (default 1)",
    )
    parser.add_argument(
        "--frames", type=whole_up_to(1_000_000), metavar="N", help="exit after N screens (piped: 1)"
    )
    add_json(parser)
    add_root(parser)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.image import open_tree
    from sexton.record.sampler import Sampler

    interval = max(args.interval, 0.1)
    with Sampler(open_tree(args.root, None), _sources(interval)) as sampler:
        if output.has_cursor(sys.stdout) and not args.json:
            _live(sampler, interval, args.frames)
        else:
            _print(sampler, interval, args.frames or 1, as_json=args.json)
    return 0


def _sources(interval: float) -> list[Source]:
    """The sources shown; those that change quickly are read once per screen."""
    from dataclasses import replace

    from sexton.model.rows import cgroup, cpu, event, net, node, task
    from sexton.sources.registry import sources_of

    quick = (cpu.CoreTimes, task.Thread, net.NetDevice, cgroup.CgroupCensus)
    slow = (cgroup.CgroupEvent, event.KernelEvent, net.Nic, net.NicCounter)
    chosen = sources_of(*quick, *slow, node.Node)
    return [
        replace(source, period_s=interval) if set(source.rows) & set(quick) else source
        for source in chosen
    ]


def _live(sampler: Sampler, interval: float, frames: int | None) -> None:
    import contextlib

    from rich.console import Console
    from rich.live import Live

    from sexton.cli.screen import frame

    plain = not output.colour()
    console = Console(markup=False, highlight=False, emoji=False, no_color=plain)
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
    """Wait for the next screen; true if the user quits."""
    import time

    while (left := until - time.monotonic()) > 0:
        pressed = key(left)
        if "q" in pressed or "Q" in pressed or "\x03" in pressed:
            return True
    return False


def _print(sampler: Sampler, interval: float, frames: int, *, as_json: bool) -> None:
    import json
    import shutil
    import time

    from sexton.cli.load import top_json
    from sexton.cli.screen import frame

    width, height = shutil.get_terminal_size((100, 40))
    began = _first(sampler, interval)
    for number in range(frames):
        time.sleep(max(began + interval - time.monotonic(), 0.0))
        began = _read(sampler)
        if as_json:  # one line each, so that a stream of them can be read
            sys.stdout.write(json.dumps(top_json(sampler.window())) + "\n")
            sys.stdout.flush()
            continue
        text = frame(sampler.window(), width, height).plain
        lines = [line.rstrip() for line in text.splitlines()]
        sys.stdout.write(("\n" if number else "") + "\n".join(lines) + "\n")
        sys.stdout.flush()


def _first(sampler: Sampler, interval: float) -> float:
    """Two readings in quick succession: busy threads are then known after one interval."""
    import time

    began = _read(sampler)
    time.sleep(min(interval / 4, 0.25))
    sampler.read_all()
    return began


def _read(sampler: Sampler) -> float:
    import time

    from sexton.model.rows.event import KernelEvent

    now = time.monotonic()
    sampler.read_due(now)
    sampler.forget(now - _MEMORY_S, events=(KernelEvent,))
    return now


@contextmanager
def keyboard() -> Iterator[Keys]:
    """Single keys from standard input, without Enter; without a terminal it only waits.

    SIGTERM ends the block like Ctrl-C, so that the terminal is restored then, too.
    """
    import termios
    import tty

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not sys.stdin.isatty():
            yield _no_key
            return
        descriptor = sys.stdin.fileno()
        saved = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            yield _key
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
    finally:
        signal.signal(signal.SIGTERM, before)


def _key(timeout_s: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], max(timeout_s, 0.0))
    if not ready:
        return ""
    # Bypasses Python's buffer: what it read ahead would not wake the next select.
    return os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")


def _no_key(timeout_s: float) -> str:
    select.select([], [], [], max(timeout_s, 0.0))
    return ""
