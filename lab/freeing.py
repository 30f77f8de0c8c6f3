"""``python -m lab.freeing``: what freeing zombies does on the running kernel, and what it costs.

Four experiments, each under a cgroup of our own, on whichever hierarchy memory is on:

- *ours*: page-cache zombies beside a live neighbour, freed as ``sexton fix`` frees them;
- *thorough*: the same, and then those on active lists as well, at the neighbour's expense;
- *blunt*: the same made again, and freed as the guides say (``echo 0 >memory.force_empty``, or
  ``echo 4G >memory.reclaim``), for what the neighbour loses by that;
- *stuck*: zombies that tmpfs holds, which nothing can reclaim: it has to stop by itself.

A table for people, ``--out DIR`` for machines (``freeing.json``). Exit 0 where every expectation
held, 1 where one did not, 3 where this kernel leaves no zombies or has no way to free them. In a
machine of its own: ``python -m lab.vm run 6.1 v2 check_freeing --out DIR``.
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

from lab.graveyard import CannotDig, Graveyard, graveyard
from lab.neighbour import memory_of, neighbour
from sexton.cure.reclaim.count import PARENT, Dying, Parent, dying, parent_at, settled
from sexton.cure.reclaim.free import Limits, free, reclaim_file
from sexton.cure.writer import LiveWriter
from sexton.errors import CommandError
from sexton.host.host import Host, open_host
from sexton.model.text import seconds, size

#: Not `sexton-…`: that would be refused as our own.
PREFIX = "lab-freeing"
CACHE, ANON = 256 << 20, 16 << 20
UNFIT = 3
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_BACKLOG_S = 60.0


@dataclass
class Outcome:
    """What an experiment showed, and which expectations failed."""

    name: str
    numbers: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def expect(self, what: str, held: bool) -> None:
        if not held:
            self.failed.append(what)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.freeing", description=__doc__)
    few = 300 if os.environ.get("SEXTON_LAB_VM") else 1000  # emulated, each takes a while
    parser.add_argument("--number", type=int, default=few, help=f"of zombies (default: {few})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where freeing.json goes")
    args = parser.parse_args(argv)
    # A killed one cleans up as one that was interrupted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcomes = [
            ours(args.number),
            ours(args.number, thorough=True),
            blunt(args.number),
            stuck(args.number),
        ]
    except (CannotDig, CommandError, NoZombies) as reason:
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
    """This kernel leaves none."""


@contextlib.contextmanager
def dug(number: int, pin: str) -> Iterator[tuple[Graveyard, int]]:
    """A graveyard and how many of its dead the kernel still has."""
    host = open_host()
    with graveyard(PREFIX, pin) as yard:
        parent = parent_at(host, yard.path)
        reclaim_file(host, parent)
        _wait_for_backlog(host, parent)
        yard.dig(number)
        os.sync()  # a dirty page cannot be reclaimed
        found = settled(host, parent)
        if found.number is None:
            raise NoZombies("the dying cannot be counted here: run in the host's cgroup namespace")
        stayed = min(number, dead_below(found))
        if stayed < number / 2:
            raise NoZombies(f"{number} cgroups died and {stayed} stayed: none to free")
        yield yard, stayed


def _wait_for_backlog(host: Host, parent: Parent) -> None:
    """On v1 freeing watches the count of the whole node, and the kernel may still be releasing
    cgroups that others removed: wait until two settled counts are the same."""
    end = time.monotonic() + _MOST_BACKLOG_S
    last = settled(host, parent).number
    while (current := settled(host, parent).number) != last and time.monotonic() < end:
        last = current


def dead_below(found: Dying) -> int:
    """The dead of this parent alone. v1 counts only the whole node's, but it has the bytes charged
    to the dead of a parent, and each of ours was left with one page."""
    if found.scope == PARENT:
        return found.number or 0
    return (found.bytes or 0) // _PAGE


def ours(number: int, thorough: bool = False) -> Outcome:
    outcome = Outcome("thorough" if thorough else "ours")
    with dug(number, "page cache") as (yard, there), neighbour(yard.parent, CACHE, ANON) as home:
        before = memory_of(home)
        lines: list[str] = []
        limits = Limits(seconds=120, thorough=thorough)
        done = free(open_host(), yard.path, limits, LiveWriter(open_host()), lines.append)
        after = memory_of(home)
        # Bytes of v1 include up to 64 pages that each core keeps at hand for the parent.
        left = min(dead_below(done.after.dying), there - min(done.freed or 0, there))
        outcome.numbers = {
            **done.as_json(),
            "zombies": there,
            "neighbour_before_bytes": before,
            "neighbour_after_bytes": after,
            "said": [done.sentence, *lines, *done.experiment],
            "estimate": done.estimate._asdict(),
        }
        most = 0.95 if thorough else 0.5
        outcome.expect(f"{most:.0%} are freed at least", there - left >= there * most)
        outcome.expect("anonymous memory stays", after[1] >= before[1] * 0.9)
    return outcome


def blunt(number: int) -> Outcome:
    outcome = Outcome("blunt")
    host = open_host()
    with dug(number, "page cache") as (yard, there), neighbour(yard.parent, CACHE, ANON) as home:
        before, parent = memory_of(home), parent_at(host, yard.path)
        name = reclaim_file(host, parent)
        began = time.monotonic()
        with contextlib.suppress(OSError):  # EAGAIN: there was not as much
            (yard.parent / name).write_text("0" if parent.version == 1 else "4G")
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
    with dug(number, "tmpfs") as (yard, there), neighbour(yard.parent, CACHE, ANON) as home:
        before = memory_of(home)
        done = free(open_host(), yard.path, Limits(), LiveWriter(open_host()))
        after = memory_of(home)
        outcome.numbers = {
            **done.as_json(),
            "zombies": there,
            "neighbour_before_bytes": before,
            "neighbour_after_bytes": after,
            "said": [done.sentence],
        }
        # Bytes of v1 include up to 64 pages that each core keeps at hand for the parent.
        left = min(dead_below(done.after.dying), there - min(done.freed or 0, there))
        outcome.expect("it freed next to none", there - left <= there * 0.1)
        outcome.expect("it stopped by itself", "deadline" not in done.why_stopped)
        outcome.expect("anonymous memory stays", after[1] >= before[1] * 0.9)
    return outcome


def report(outcome: Outcome) -> str:
    numbers = outcome.numbers
    before, after = numbers["neighbour_before_bytes"], numbers["neighbour_after_bytes"]
    lines = [
        f"{outcome.name}: {numbers['zombies']:,} zombies, {numbers['dying_after']:,} dying after,"
        f" {seconds(numbers.get('order_s', numbers['seconds']))} of a core",
        f"  the neighbour's cache {size(before[0])} -> {size(after[0])},"
        f" anonymous {size(before[1])} -> {size(after[1])}",
        *(f"  {line}" for line in numbers.get("said", ())),
        *(f"  NOT SO: {what}" for what in outcome.failed),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
