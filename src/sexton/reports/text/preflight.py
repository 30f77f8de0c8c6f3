"""What the recorder would do on this node, as text and as `sexton.preflight/1`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from sexton.host.host import open_host
from sexton.model.text import count, printable, seconds, shorten, size
from sexton.record.budget import memory_limit
from sexton.record.preflight import (
    EXPECTED_RSS,
    KernelUse,
    Parts,
    Planned,
    Preflight,
    Program,
    Right,
    Wanted,
    preflight,
)
from sexton.store.retention import Limits

SCHEMA = "sexton.preflight/1"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_EVERY = "{:>6}{:>10}{:>11}"


def run_preflight(args: argparse.Namespace) -> int:
    """What ``sexton record --preflight`` does: exit 0 if the recorder can start, else 2."""
    parts = Parts(
        probe=not args.no_probe,
        trace=not args.no_trace,
        ring=not args.no_ring,
        stacks=args.stacks,
    )
    limits = Limits(args.retain, args.size)
    memory = memory_limit(args.stacks)
    wanted = Wanted(Path(args.directory), limits, parts, args.cpu, memory, args.ship or "")
    found = preflight(open_host(), wanted)
    if args.json:
        json.dump(preflight_json(found), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        width = shutil.get_terminal_size((88, 24)).columns
        sys.stdout.write(preflight_text(found, width, colour=sys.stdout.isatty()))
    return 2 if found.problem else 0


def preflight_text(found: Preflight, width: int = 88, colour: bool = False) -> str:
    """The verdict first, then everything in groups; at most 60 lines."""
    width = min(max(width, 72), 120)
    lines = [_headline(found)]
    reads = sorted(found.reads, key=lambda each: (each.read_s is None, -each.share, each.id))
    seen = [each for each in reads if each.read_s is not None]
    head = _EVERY.format("EVERY", "ONE READ", "OF A CORE")
    title = "READS (* every second for a minute after an alarm)"
    lines += [_title(f"{title:{width - len(head)}}{head}", colour)]
    lines += [_read(each, width) for each in seen]
    lost = [each for each in reads if each.read_s is None]
    if lost:
        lines += [_title("NOT READABLE HERE", colour), *_lost(lost, width)]
    lines += [_title("KERNEL EVENTS AND THEIR BUFFERS", colour)]
    lines += [line for each in found.kernel for line in _kernel(each, width)] or [" none"]
    lines += [_title("PROGRAMS STARTED", colour)]
    lines += [_program(each, width) for each in found.programs]
    lines += [_title("CAPABILITIES", colour), *_rights(found.rights, width)]
    lines += [_title("ESTIMATED COST", colour), *_cost(found)]
    sent = f"pinned minutes to {found.ship}, at each alarm" if found.ship else "nothing"
    lines += [_cut(f"SENDS: {sent}", width)]
    lines += _wrapped(f"NEVER READ: {'; '.join(found.not_read)}", "", width)
    return "\n".join(lines) + "\n"


def _title(text: str, colour: bool) -> str:
    return f"{_BOLD}{text}{_PLAIN}" if colour else text


def _headline(found: Preflight) -> str:
    if found.problem:
        return f"cannot start: {printable(found.problem)}"
    seen = sum(1 for each in found.reads if each.read_s is not None)
    return (
        f"ready to record into {printable(found.directory)}: {seen} of "
        f"{count(len(found.reads), 'source')} readable; nothing was started or changed"
    )


def _read(each: Planned, width: int) -> str:
    every = _period(each.period_s)
    numbers = _EVERY.format(
        f"{every}*" if each.closer else every, seconds(each.read_s or 0.0), f"{each.share:.3%}"
    )
    room = width - len(numbers) - 1
    name = f"{each.id:21} {printable(each.path)}"
    return f" {shorten(name, room):{room}}{numbers}"


def _period(period_s: float) -> str:
    """In one unit.

    >>> _period(1.0), _period(120.0), _period(3600.0)
    ('1 s', '2 min', '1 h')
    """
    for unit, length in (("h", 3600), ("min", 60)):
        if period_s >= length:
            return f"{period_s / length:g} {unit}"
    return f"{period_s:g} s"


def _lost(lost: Sequence[Planned], width: int) -> Iterator[str]:
    """Sources grouped by reason."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in lost:
        reasons.setdefault((each.state, each.detail, each.grant), []).append(each.id)
    for (state, detail, grant), names in reasons.items():
        helps = f" → {grant}" if grant else ""
        yield _cut(f" {', '.join(names):21} {state}: {detail}{helps}", width)


def _kernel(each: KernelUse, width: int) -> Iterator[str]:
    head = f" {each.what:13} "
    if each.problem:
        yield _cut(f"{head}unavailable: {each.problem} → {each.grant}", width)
        return
    names = ", ".join(name.rpartition(":")[2] for name in each.events)
    text = f"{size(each.buffer_bytes)}: {each.how}: {names}"
    yield from _wrapped(text, head, width)


def _wrapped(text: str, head: str, width: int) -> list[str]:
    return wrap(printable(text), width, initial_indent=head, subsequent_indent=" " * len(head))


def _program(each: Program, width: int) -> str:
    words = f"unavailable: {each.problem} → {each.grant}" if each.problem else each.what
    return _cut(f" {each.name:17} {words.removesuffix(' → ')}", width)


def _rights(rights: Sequence[Right], width: int) -> Iterator[str]:
    """Capabilities needed on this node, each with its reason; the others by name."""
    for each in rights:
        if each.needed and each.held:
            yield _cut(f" {each.name:17} held     {each.reason}", width)
        elif each.needed:
            yield _cut(f" {each.name:17} MISSING  {each.without}", width)
    spare = [each.name for each in rights if not each.needed]
    if spare:
        yield _cut(f" not needed here: {', '.join(spare)}", width)


def _cost(found: Preflight) -> Iterator[str]:
    room = found.room
    yield (
        f" CPU      {found.share:.1%} of one core of {found.cores} "
        f"(limit {found.cpu_percent:g} %: above it sources are paused)"
    )
    yield (
        f" memory   about {size(EXPECTED_RSS)} (limit {size(found.memory_bytes)}); "
        f"{size(found.kernel_bytes)} of kernel buffers"
    )
    stacks = f", stacks up to {size(room.stacks_an_hour)}" if room.stacks_an_hour else ""
    yield f" disk     about {size(room.an_hour)} an hour{stacks}; events on top"
    free = "unknown" if room.free_bytes is None else size(room.free_bytes)
    tight = room.free_bytes is not None and room.free_bytes < room.full
    yield (
        f"          --retain {_period(room.limits.age_s)} and --size "
        f"{size(room.limits.most_bytes)}: {size(room.full)} when full"
        f"{', MORE THAN IS FREE' if tight else ''}; {free} free"
    )


def _cut(text: str, width: int) -> str:
    """In one line, cut at its end."""
    whole = printable(text)
    return whole if len(whole) <= width else f"{whole[: width - 2].rstrip()} …"


def preflight_json(found: Preflight) -> dict[str, Any]:
    """The contract of docs/json.md."""
    room = found.room
    return {
        "schema": SCHEMA,
        "directory": printable(found.directory),
        "could_start": not found.problem,
        "problem": printable(found.problem),
        "reads": [
            {
                "id": each.id,
                "path": printable(each.path),
                "period_s": each.period_s,
                "every_second_on_alarm": each.closer,
                "state": each.state,
                "detail": printable(each.detail),
                "grant": printable(each.grant),
                "read_s": None if each.read_s is None else round(each.read_s, 6),
                "rows": each.rows,
                "core_share": None if each.read_s is None else round(each.share, 6),
            }
            for each in found.reads
        ],
        "kernel": [
            {
                "what": each.what,
                "events": list(each.events),
                "buffer_bytes": each.buffer_bytes,
                "how": each.how,
                "problem": printable(each.problem),
                "grant": printable(each.grant),
            }
            for each in found.kernel
        ],
        "programs": [each._asdict() for each in found.programs],
        "capabilities": [each._asdict() for each in found.rights],
        "estimate": {
            "core_share": round(found.share, 5),
            "core_percent_limit": found.cpu_percent,
            "rss_bytes": EXPECTED_RSS,
            "rss_bytes_limit": found.memory_bytes,
            "kernel_bytes": found.kernel_bytes,
            "bytes_an_hour": round(room.an_hour),
            "stacks_bytes_an_hour": round(room.stacks_an_hour),
            "bytes_when_full": round(room.full),
        },
        "disk": {
            "place": printable(room.place),
            "free_bytes": room.free_bytes,
            "retain_s": room.limits.age_s,
            "size_bytes": room.limits.most_bytes,
            "pinned_share": room.pinned_share,
        },
        "sends_to": printable(found.ship) or None,
        "never_read": list(found.not_read),
    }
