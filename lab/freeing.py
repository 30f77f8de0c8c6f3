"""``python -m lab.freeing``: what freeing zombies does on the running kernel, and what it costs.

Four experiments, each under a separate cgroup, on whichever hierarchy has the memory controller:

- *ours*: page-cache zombies beside a running neighbour, freed as ``sexton fix`` frees them;
- *thorough*: the same, plus zombies on active LRU lists, at the neighbour's expense;
- *blunt*: new zombies, freed the way guides recommend (``echo 0 >memory.force_empty`` or
  ``echo 4G >memory.reclaim``), to measure what the neighbour loses;
- *stuck*: zombies pinned by tmpfs, which cannot be reclaimed: freeing must stop without a deadline.

Prints a table; ``--out DIR`` writes ``freeing.json``. Exit status: 0 all expectations held, 1 one
failed, 3 this kernel keeps no zombies or has no way to free them. In a virtual machine:
``python -m lab.vm run 6.1 v2 check_freeing --out DIR``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.deadlines import in_lab_vm
from lab.neighbour import memory_of, neighbour
from lab.zombie_maker import CannotMakeZombies, ZombieMaker, zombie_maker
from sexton.cure.reclaim.count import PARENT, Dying, Parent, dying, parent_at, settled
from sexton.cure.reclaim.free import Limits, free, reclaim_file
from sexton.cure.writer import LiveWriter
from sexton.errors import CommandError
from sexton.host.host import Host, open_host
from sexton.model.text import seconds, size

#: Not `sexton-…`: `fix` refuses its own cgroups.
PREFIX = "lab-freeing"
CACHE, ANON = 256 << 20, 16 << 20
UNFIT = 3
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_BACKLOG_S = 60.0


@dataclass
class Outcome:
    """Measurements of one experiment, and the expectations that failed."""

    name: str
    numbers: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def expect(self, what: str, held: bool) -> None:
        if not held:
            self.failed.append(what)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.freeing", description=__doc__)
    number = 300 if in_lab_vm() else 1000  # making them is slow under emulation
    parser.add_argument(
        "--number", type=int, default=number, help=f"zombies to make (default: {number})"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write freeing.json here")
    args = parser.parse_args(argv)
    # Clean up on SIGTERM as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcomes = [
            ours(args.number),
            ours(args.number, thorough=True),
            blunt(args.number),
            stuck(args.number),
        ]
    except (CannotMakeZombies, CommandError, NoZombies) as reason:
        sys.stderr.write(f"lab.freeing: {reason}\n")
        return UNFIT
    for outcome in outcomes:
        print(report(outcome))
    if args.out is not None:
        whole = {
            "schema": "sexton.check/1",
            "kernel": platform.release(),
            "experiments": {outcome.name: outcome.numbers for outcome in outcomes},
            "failed": {outcome.name: outcome.failed for outcome in outcomes if outcome.failed},
        }
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "freeing.json").write_text(json.dumps(whole, indent=1, default=str) + "\n")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


class NoZombies(Exception):
    """This kernel keeps no zombies."""


@contextlib.contextmanager
def some_zombies(number: int, pin: str) -> Iterator[tuple[ZombieMaker, int]]:
    """A `ZombieMaker`, and how many of its zombies the kernel kept."""
    host = open_host()
    with zombie_maker(PREFIX, pin) as maker:
        parent = parent_at(host, maker.path)
        reclaim_file(host, parent)
        _wait_for_backlog(host, parent)
        maker.make(number)
        os.sync()  # a dirty page cannot be reclaimed
        found = settled(host, parent)
        if found.number is None:
            raise NoZombies("cannot count dying cgroups: run in the host's cgroup namespace")
        stayed = min(number, zombies_below(found))
        if stayed < number / 2:
            raise NoZombies(f"removed {number} cgroups, {stayed} became zombies: nothing to free")
        yield maker, stayed


def _wait_for_backlog(host: Host, parent: Parent) -> None:
    """On v1 only the whole node's count is known, and the kernel may still be releasing other
    removed cgroups: wait until two settled counts are equal."""
    end = time.monotonic() + _MOST_BACKLOG_S
    last = settled(host, parent).number
    while (current := settled(host, parent).number) != last and time.monotonic() < end:
        last = current


def zombies_below(found: Dying) -> int:
    """Zombies of this parent only. v1 counts the whole node's, but it has the bytes charged to a
    parent's zombies, and each of ours holds one page."""
    if found.scope == PARENT:
        return found.number or 0
    return (found.bytes or 0) // _PAGE


def ours(number: int, thorough: bool = False) -> Outcome:
    outcome = Outcome("thorough" if thorough else "ours")
    with (
        some_zombies(number, "page cache") as (maker, there),
        neighbour(maker.parent, CACHE, ANON) as home,
    ):
        before = memory_of(home)
        lines: list[str] = []
        limits = Limits(seconds=120, thorough=thorough)
        done = free(open_host(), maker.path, limits, LiveWriter(open_host()), lines.append)
        after = memory_of(home)
        # Bytes of v1 include up to 64 pages that each core keeps at hand for the parent.
        left = min(zombies_below(done.after.dying), there - min(done.freed or 0, there))
        outcome.numbers = {
            **done.as_json(),
            "zombies": there,
            "neighbour_before_bytes": before,
            "neighbour_after_bytes": after,
            "said": [done.sentence, *lines, *done.experiment],
            "estimate": done.estimate._asdict(),
        }
        most = 0.95 if thorough else 0.5
        outcome.expect(f"at least {most:.0%} are freed", there - left >= there * most)
        outcome.expect("anonymous memory is kept", after[1] >= before[1] * 0.9)
        return outcome


def blunt(number: int) -> Outcome:
    outcome = Outcome("blunt")
    host = open_host()
    with (
        some_zombies(number, "page cache") as (maker, there),
        neighbour(maker.parent, CACHE, ANON) as home,
    ):
        before, parent = memory_of(home), parent_at(host, maker.path)
        name = reclaim_file(host, parent)
        began = time.monotonic()
        with contextlib.suppress(OSError):  # EAGAIN: less could be reclaimed
            (maker.parent / name).write_text("0" if parent.version == 1 else "4G")
        spent = time.monotonic() - began
        first = dying(host, parent).number
        after = memory_of(home)
        outcome.numbers = {
            "zombies": there,
            "seconds": spent,
            "dying_after": first,
            "neighbour_before_bytes": before,
            "neighbour_after_bytes": after,
        }
    return outcome


def stuck(number: int) -> Outcome:
    outcome = Outcome("stuck")
    with (
        some_zombies(number, "tmpfs") as (maker, there),
        neighbour(maker.parent, CACHE, ANON) as home,
    ):
        before = memory_of(home)
        done = free(open_host(), maker.path, Limits(), LiveWriter(open_host()))
        after = memory_of(home)
        outcome.numbers = {
            **done.as_json(),
            "zombies": there,
            "neighbour_before_bytes": before,
            "neighbour_after_bytes": after,
            "said": [done.sentence],
        }
        # Bytes of v1 include up to 64 pages that each core keeps at hand for the parent.
        left = min(zombies_below(done.after.dying), there - min(done.freed or 0, there))
        outcome.expect("almost none are freed", there - left <= there * 0.1)
        outcome.expect("it stops before the deadline", "deadline" not in done.why_stopped)
        outcome.expect("anonymous memory is kept", after[1] >= before[1] * 0.9)
    return outcome


def report(outcome: Outcome) -> str:
    numbers = outcome.numbers
    before, after = numbers["neighbour_before_bytes"], numbers["neighbour_after_bytes"]
    lines = [
        f"{outcome.name}: {numbers['zombies']:,} zombies, {numbers['dying_after']:,} dying after,"
        f" {seconds(numbers.get('order_s', numbers['seconds']))} of CPU time",
        f"  neighbour's cache {size(before[0])} -> {size(after[0])},"
        f" anonymous {size(before[1])} -> {size(after[1])}",
        *(f"  {line}" for line in numbers.get("said", ())),
        *(f"  FAILED: {what}" for what in outcome.failed),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
