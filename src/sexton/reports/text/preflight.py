"""What the recorder would do on this node, as text and as `sexton.preflight/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from sexton.model.text import count, printable, seconds, shorten, size
from sexton.record.preflight import EXPECTED_RSS, KernelUse, Planned, Preflight, Program, Right
from sexton.reports.text.blocks import bold, picked

SCHEMA = "sexton.preflight/1"
_EVERY = "{:>6}{:>10}{:>11}"


def preflight_text(found: Preflight, width: int = 88, colour: bool = False) -> str:
    """The verdict first, then everything in groups; at most 60 lines."""
    width = min(max(width, 72), 120)
    lines = [_headline(found)]
    reads = sorted(
        found.reads, key=lambda source: (source.read_s is None, -source.share, source.id)
    )
    seen = [source for source in reads if source.read_s is not None]
    head = _EVERY.format("EVERY", "ONE READ", "OF A CORE")
    title = "READS (* every second for a minute after an alarm)"
    lines += [bold(f"{title:{width - len(head)}}{head}", colour)]
    lines += [_read(source, width) for source in seen]
    lost = [source for source in reads if source.read_s is None]
    if lost:
        lines += [bold("NOT READABLE HERE", colour), *_lost(lost, width)]
    lines += [bold("KERNEL EVENTS AND THEIR BUFFERS", colour)]
    lines += [line for use in found.kernel for line in _kernel(use, width)] or [" none"]
    lines += [bold("PROGRAMS STARTED", colour)]
    lines += [_program(program, width) for program in found.programs]
    lines += [bold("CAPABILITIES", colour), *_rights(found.rights, width)]
    lines += [bold("ESTIMATED COST", colour), *_cost(found)]
    sent = f"pinned minutes to {found.ship}, at each alarm" if found.ship else "nothing"
    lines += [_cut(f"SENDS: {sent}", width)]
    lines += _wrapped(f"NEVER READ: {'; '.join(found.not_read)}", "", width)
    return "\n".join(lines) + "\n"


def _headline(found: Preflight) -> str:
    if found.problem:
        return f"cannot start: {printable(found.problem)}"
    seen = sum(1 for source in found.reads if source.read_s is not None)
    return (
        f"ready to record into {printable(found.directory)}: {seen} of "
        f"{count(len(found.reads), 'source')} readable; nothing was started or changed"
    )


def _read(source: Planned, width: int) -> str:
    every = _period(source.period_s)
    numbers = _EVERY.format(
        f"{every}*" if source.closer else every,
        seconds(source.read_s or 0.0),
        f"{source.share:.3%}",
    )
    room = width - len(numbers) - 1
    name = f"{source.id:21} {printable(source.path)}"
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
    for source in lost:
        reasons.setdefault((source.state, source.detail, source.grant), []).append(source.id)
    for (state, detail, grant), names in reasons.items():
        helps = f" → {grant}" if grant else ""
        yield _cut(f" {', '.join(names):21} {state}: {detail}{helps}", width)


def _kernel(use: KernelUse, width: int) -> Iterator[str]:
    head = f" {use.what:13} "
    if use.problem:
        yield _cut(f"{head}unavailable: {use.problem} → {use.grant}", width)
        return
    names = ", ".join(name.rpartition(":")[2] for name in use.events)
    text = f"{size(use.buffer_bytes)}: {use.how}: {names}"
    yield from _wrapped(text, head, width)


def _wrapped(text: str, head: str, width: int) -> list[str]:
    return wrap(printable(text), width, initial_indent=head, subsequent_indent=" " * len(head))


def _program(program: Program, width: int) -> str:
    words = f"unavailable: {program.problem} → {program.grant}" if program.problem else program.what
    return _cut(f" {program.name:17} {words.removesuffix(' → ')}", width)


def _rights(rights: Sequence[Right], width: int) -> Iterator[str]:
    """Capabilities needed on this node, each with its reason; the others by name."""
    for right in rights:
        if right.needed and right.held:
            yield _cut(f" {right.name:17} held     {right.reason}", width)
        elif right.needed:
            yield _cut(f" {right.name:17} MISSING  {right.without}", width)
    spare = [right.name for right in rights if not right.needed]
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
                "id": source.id,
                "path": printable(source.path),
                "period_s": source.period_s,
                "every_second_on_alarm": source.closer,
                "state": source.state,
                "detail": printable(source.detail),
                "grant": printable(source.grant),
                "read_s": None if source.read_s is None else round(source.read_s, 6),
                "rows": source.rows,
                "core_share": None if source.read_s is None else round(source.share, 6),
            }
            for source in found.reads
        ],
        "kernel": [
            {
                "what": use.what,
                "events": list(use.events),
                **picked(use, "buffer_bytes", "how"),
                "problem": printable(use.problem),
                "grant": printable(use.grant),
            }
            for use in found.kernel
        ],
        "programs": [program._asdict() for program in found.programs],
        "capabilities": [right._asdict() for right in found.rights],
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
