"""What a recording holds, and whether it is intact: as text, and as `sexton.recording.info/1` and
`sexton.recording.verify/1`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sexton.model.row import Row, fields_of
from sexton.model.rows.recorder import Alarm, Mark
from sexton.model.text import count, moment, printable, seconds, size
from sexton.reports.text.blocks import bold, clamp, cut, picked
from sexton.reports.text.settings import recorded_config
from sexton.store.summary import ConfigSum, ProfileSum, SourceSum, Summary, TableSum, TimedRow
from sexton.store.verify import TORN, Trouble, Verified

if TYPE_CHECKING:
    from sexton.store.signing import Signed

INFO = "sexton.recording.info/1"
VERIFY = "sexton.recording.verify/1"
#: So that a night fits a screen; `--json` has all of it.
_MOST_TABLES, _MOST_EVENTS, _MOST_LOST, _MOST_NOTES, _MOST_PROBLEMS = 8, 8, 3, 3, 4
_MOST_TROUBLES = 50
_MOST_CONFIGS = 2


def info_text(found: Summary, width: int = 88, colour: bool = False) -> str:
    """About forty lines: node, span, size, alarms, tables, missing sources, cost."""
    width = clamp(width, 120)
    lines = [*_head(found)]
    for title, part in (
        ("ALARMS, MARKS AND GAPS", _events(found)),
        (f"{'TABLE':26}{'EVERY':>9}{'ROWS':>16}{'BYTES':>12}", _tables(found.tables)),
        ("SOURCES MISSING SOME OR ALL OF THE TIME", _lost(found.sources)),
        ("COST AND NOTES OF THE RECORDER", _itself(found)),
        ("SKIPPED (details: sexton recording verify)", _problems(found.problems)),
    ):
        shown = list(part)
        if shown:
            lines += ["", f" {bold(title, colour)}", *shown]
    return "\n".join(cut(line, width + 8 * ("\x1b" in line)) for line in lines) + "\n"


def _head(found: Summary) -> Iterator[str]:
    node = found.node
    name = (node.hostname if node else "") or found.host or "unknown host"
    who = printable(name)
    if node is not None:
        who += f", Linux {printable(node.kernel)}"
        who += f", {count(node.cores, 'core')}" if node.cores else ""
    yield f"{who}; {'being recorded now' if found.recording_now else 'not being recorded now'}"
    if found.start is None or found.end is None:
        yield "Nothing recorded yet."
        return
    zone = time.strftime("%Z", time.localtime(min(max(found.end[1], 0.0), 2e11)))
    span = f"{moment(found.start[1])} to {moment(found.end[1])} {zone}"
    yield f"{span}: {seconds(found.watched_s)} recorded"
    parts = [count(len(found.boots), "boot")]
    gone = sum(gap.seconds or 0.0 for gap in found.gaps)
    gaps = f"{count(len(found.gaps), 'gap')} of {seconds(gone)} in all" if found.gaps else "no gaps"
    parts.append(gaps)
    if found.jumps:
        parts.append(count(len(found.jumps), "clock jump"))
    yield ", ".join(parts)
    rate = "" if found.bytes_an_hour is None else f", {size(found.bytes_an_hour)} an hour"
    held = f", {size(found.pinned_bytes)} of it pinned" if found.pins else ""
    held = f"{size(found.bytes)}{held}{rate}"
    yield f"{count(found.sealed, 'sealed segment')}, {found.opened} open: {held}"
    yield from _profiles(found.profiles)
    yield f"{size(found.disk_bytes)} on disk in all"
    yield from _configs(found.configs)


def _configs(found: Sequence[ConfigSum]) -> Iterator[str]:
    for config in found[:1]:
        yield f"Configuration: {recorded_config(config.settings)}"
    earlier = len(found) - 1 - _MOST_CONFIGS
    if earlier > 0:
        yield f"   {count(earlier, 'earlier change')}: --json lists them"
    for config in found[1:][-_MOST_CONFIGS:]:
        yield f"   since {moment(config.since)}: {recorded_config(config.settings)}"


def _profiles(found: ProfileSum) -> Iterator[str]:
    if found.annexes and found.start is not None and found.end is not None:
        lost = "" if not found.lost else f" ({found.lost:,} lost)"
        span = f"{moment(found.start[1])} to {moment(found.end[1])}"
        yield f"Stacks: {found.samples:,} samples{lost} from {span}, {size(found.bytes)}"
    if found.waiting:
        lead = "   and " if found.annexes else "Stacks: "
        waiting = f"{count(found.waiting, 'file')} recorded and not decoded yet"
        yield f"{lead}{waiting}, {size(found.waiting_bytes)}"


def _events(found: Summary) -> Iterator[str]:
    # Not the alarm of a mark: the mark itself is listed.
    alarms = [alarm for alarm in found.alarms if alarm.row.kind != "mark"]
    events = [(alarm.wall_s, _words(alarm)) for alarm in (*alarms, *found.marks)]
    for gap in found.gaps:
        what = "reboot" if gap.reboot else "gap"
        span = "" if gap.seconds is None else f" of {seconds(gap.seconds)}"
        events.append((gap.start, f"{what}{'; nothing recorded' if gap.reboot else ''}{span}"))
    for jump in found.jumps:
        events.append((jump.at, f"clock jumped by {seconds(jump.seconds)}"))
    alarmed = {(alarm.row.kind, alarm.row.about) for alarm in found.alarms}
    for pin in found.pins:  # one that a mark made while no recorder ran, or whose alarm has aged
        if (pin.kind, pin.about) not in alarmed:
            more = "" if pin.detail in ("", pin.about) else f": {pin.detail}"
            events.append((pin.wall_s, printable(f"pinned: {pin.kind} {pin.about}{more}")))
    events.sort()
    shown = events[-_MOST_EVENTS:]
    if len(shown) < len(events):
        yield f"   {count(len(events) - len(shown), 'earlier event')}: --json lists them"
    for wall_s, words in shown:
        yield f"   {moment(wall_s)}  {words}"
    if found.pins:
        last = printable(found.pins[-1].id)
        yield f"   {count(len(found.pins), 'pin')} kept beyond retention, the last: {last}"


def _words(timed: TimedRow) -> str:
    row = timed.row
    if isinstance(row, Alarm):
        about = "" if row.about in row.detail else f" {row.about}"
        return printable(f"{row.kind.replace('_', ' ')}{about}: {row.detail}")
    if isinstance(row, Mark):
        return printable(f"mark: {row.text}")
    return printable(f"{row.kind}: {row.detail}")


def _tables(found: dict[str, TableSum]) -> Iterator[str]:
    order = sorted(found.items(), key=lambda item: (-item[1].bytes, -item[1].rows, item[0]))
    order = [(name, table) for name, table in order if table.readings or table.rows]
    for name, table in order[:_MOST_TABLES]:
        every = "-" if table.period_s is None else seconds(round(table.period_s, 2))
        yield f"   {name:24}{every:>9}{table.rows:>16,}{size(table.bytes):>12}"
    rest = [table for _, table in order[_MOST_TABLES:]]
    if rest:
        rows, held = sum(table.rows for table in rest), sum(table.bytes for table in rest)
        yield f"   {f'{len(rest)} more':24}{'':>9}{rows:>16,}{size(held):>12}"


def _lost(sources: Sequence[SourceSum]) -> Iterator[str]:
    lost = [source for source in sources if set(source.segments) - {"ok"}]
    lost.sort(key=lambda source: (source.last.state == "absent", source.last.id))
    for source in lost[:_MOST_LOST]:
        state = source.last
        bad = sum(number for name, number in source.segments.items() if name != "ok")
        often = "" if "ok" not in source.segments else f" in {count(bad, 'segment')}, else ok"
        shown = (
            state.state if state.state != "ok" else "/".join(sorted({*source.segments} - {"ok"}))
        )
        detail = f": {state.detail}" if state.detail and state.state != "ok" else ""
        yield f"   {printable(state.id):24}{printable(f'{shown}{often}{detail}')}"
    if len(lost) > _MOST_LOST:
        names = ", ".join(printable(source.last.id) for source in lost[_MOST_LOST:])
        yield f"   {len(lost) - _MOST_LOST} more: {names}"


def _itself(found: Summary) -> Iterator[str]:
    cost = found.cost
    if cost is not None:
        parts = []
        if cost.cpu_share is not None:
            parts.append(f"{cost.cpu_share:.2%} of one core")
        if cost.kernel_share is not None:
            parts.append(f"{cost.kernel_share:.2%} in kernel probes")
        parts.append(f"{size(cost.most_bytes)} peak memory")
        parts.append(f"{size(cost.written_bytes)} written")
        yield f"   {', '.join(parts)}"
    # A note for each captured ring must not hide what was paused or lost.
    by_weight = sorted(found.notes, key=lambda note: (note.row.kind == "detail", -note.wall_s))
    shown = sorted(by_weight[:_MOST_NOTES], key=lambda note: note.wall_s)
    if len(shown) < len(found.notes):
        others = len(found.notes) - len(shown)
        yield f"   {count(others, 'other note')}: --json lists them"
    for note in shown:
        yield f"   {moment(note.wall_s)}  {_words(note)}"


def _problems(problems: Sequence[str]) -> Iterator[str]:
    for problem in problems[:_MOST_PROBLEMS]:
        yield f"   {printable(problem)}"
    if len(problems) > _MOST_PROBLEMS:
        yield f"   and {len(problems) - _MOST_PROBLEMS} more"


def info_json(found: Summary) -> dict[str, Any]:
    """The contract of docs/json.md."""
    return {
        "schema": INFO,
        "path": printable(str(found.path)),
        "node": _plain(found.node) if found.node is not None else None,
        "host": printable(found.host),
        "sexton": printable(found.sexton),
        "recording_now": found.recording_now,
        "status": _safe(found.status),
        "start": _pair(found.start),
        "end": _pair(found.end),
        "recorded_s": round(found.watched_s, 3),
        "boots": [printable(boot) for boot in found.boots],
        "gaps": [gap._asdict() for gap in found.gaps],
        "clock_jumps": [jump._asdict() for jump in found.jumps],
        "segments": {"sealed": found.sealed, "open": found.opened},
        "bytes": found.bytes,
        "disk_bytes": found.disk_bytes,
        "pinned_bytes": found.pinned_bytes,
        "bytes_an_hour": None if found.bytes_an_hour is None else round(found.bytes_an_hour),
        "tables": {
            name: {
                **picked(table, "rows", "bytes", "readings"),
                "period_s": None if table.period_s is None else round(table.period_s, 3),
            }
            for name, table in sorted(found.tables.items())
        },
        "sources": [
            _safe(
                {
                    **picked(source.last, "id", "path", "state", "detail", "grant"),
                    "segments": source.segments,
                }
            )
            for source in found.sources
        ],
        "alarms": _timed(found.alarms),
        "marks": _timed(found.marks),
        "notes": _timed(found.notes),
        "pins": [_safe(picked(pin, *type(pin).__slots__)) for pin in found.pins],
        "profiles": {
            **picked(found.profiles, "annexes", "samples", "lost", "bytes"),
            "start": _pair(found.profiles.start),
            "end": _pair(found.profiles.end),
            **picked(found.profiles, "waiting", "waiting_bytes"),
        },
        "configs": [
            {
                "since": config.since,
                "recorded": config.settings is not None,
                "config": None if config.settings is None else config.settings.document,
            }
            for config in found.configs
        ],
        "cost": None if found.cost is None else found.cost._asdict(),
        "problems": [printable(problem) for problem in found.problems],
    }


def _timed(rows: Sequence[TimedRow]) -> list[dict[str, Any]]:
    return [{"wall_s": timed.wall_s, **_plain(timed.row)} for timed in rows]


def _plain(row: Row) -> dict[str, Any]:
    return {name: _safe(getattr(row, name)) for name in fields_of(type(row))}


def _safe(value: Any) -> Any:
    """Untrusted JSON, made safe to print."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(name)): _safe(item) for name, item in value.items()}
    return [_safe(element) for element in value] if isinstance(value, list | tuple) else value


def _pair(pair: tuple[float, float] | None) -> dict[str, float] | None:
    return None if pair is None else {"mono_s": pair[0], "wall_s": pair[1]}


def verify_text(found: Verified, signed: Signed | None = None) -> str:
    """The verdict first, then who sealed it, then each problem with its place."""
    read = (
        f"{count(found.segments, 'segment')}, {count(found.files, 'file')}, "
        f"{count(found.rows, 'row')}, {size(found.bytes)} read"
    )
    lines = [f"{'intact' if found.whole else _numbers(found.troubles)}: {read}"]
    if signed is not None:
        number = count(len(signed.segments), "segment")
        lines.append(f"signed with this key, none missing in between: {number}")
        lines += [f"   {words}" for words in signed.left_out[:_MOST_TROUBLES]]
    for trouble in found.troubles[:_MOST_TROUBLES]:
        lines.append(f"   {trouble.kind:8} {trouble.place}: {trouble.detail}")
    if len(found.troubles) > _MOST_TROUBLES:
        lines.append(f"   and {len(found.troubles) - _MOST_TROUBLES} more: --json lists them")
    return "\n".join(lines) + "\n"


def _numbers(troubles: Sequence[Trouble]) -> str:
    kinds = [trouble.kind for trouble in troubles if trouble.kind != TORN]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))


def verify_json(found: Verified, signed: Signed | None = None) -> dict[str, Any]:
    """The contract of docs/json.md."""
    return {
        "schema": VERIFY,
        **picked(found, "whole", "recording_now", "segments", "files", "rows", "bytes"),
        "signed": None if signed is None else sorted(signed.segments),
        "unsigned": None if signed is None else list(signed.left_out),
        "troubles": [trouble._asdict() for trouble in found.troubles],
    }
