"""The configuration: one line under a verdict, and what `sexton config` prints, as text and JSON.

What a verdict's JSON has of it is `Settings.document`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sexton.detect.registry import all_detectors, key_of
from sexton.model.finding import Finding, Verdict
from sexton.model.settings import Changed, Settings, Silence
from sexton.model.text import count, local_time, printable
from sexton.reports.text.blocks import clamp, labelled

SCHEMA = "sexton.config/1"


def config_line(settings: Settings, width: int, replayed: bool = False) -> Iterator[str]:
    """What differs from the defaults; nothing where nothing does."""
    if not settings.changes:
        return
    today = " as of now, not of the recording" if replayed else ""
    yield from labelled("CONFIG", [in_one_line(settings, today)], width)


def recorded_config(settings: Settings | None) -> str:
    """The configuration that a recorder had."""
    if settings is None:
        return "not recorded by older versions"
    if not settings.changes:
        return "defaults"
    return in_one_line(settings)


def in_one_line(settings: Settings, when: str = "") -> str:
    """What differs from the defaults, and the file that says so."""
    parts = [_change(changed) for changed in settings.thresholds]
    parts += [f"{', '.join(settings.off)} off"] if settings.off else []
    parts += [f"{count(len(settings.silences), 'silence')}"] if settings.silences else []
    parts += [f"silence of {_about(old)} ended {_clock(old.until)}" for old in settings.expired]
    if settings.patterns:
        parts.append(
            f"{count(len(settings.patterns), 'log pattern')} of {printable(settings.patterns_from)}"
        )
    return f"{printable(settings.path) or 'no file'}{when}: {'; '.join(parts)}"


def config_text(settings: Settings, width: int, whole: bool = False) -> str:
    """What is in force and where it comes from; must be called while `settings` are applied."""
    width = clamp(width)
    total = sum(len(check.thresholds) for check in all_detectors())
    if not settings.path:
        lines = ["no configuration file; every threshold is its detector's default", ""]
    elif not settings.changes:
        lines = [f"{printable(settings.path)} changes nothing", ""]
    else:
        lines = [f"{printable(settings.path)} is valid; it changes:", ""]
    lines += labelled("thresholds", map(_shared, settings.thresholds), width)
    lines += labelled("off", settings.off, width)
    lines += labelled("silenced", map(_silence, settings.silences), width)
    ended = (f"{_about(old)}, {_clock(old.until)}: {old.reason}" for old in settings.expired)
    lines += labelled("expired", ended, width)
    if settings.patterns:
        named = f"{', '.join(settings.patterns)} (from {printable(settings.patterns_from)})"
        lines += labelled("patterns", [named], width)
    lines += [""] if settings.changes else []
    if whole:
        lines += _thresholds(settings, width)
    else:
        lines.append(
            f" {total} thresholds of {len(all_detectors())} detectors: sexton config --all"
        )
    return "\n".join(lines) + "\n"


def config_json(settings: Settings) -> dict[str, Any]:
    """`sexton.config/1`: everything in force; must be called while `settings` are applied."""
    changed = {(name, one.name) for one in settings.thresholds for name in one.detectors}
    return {
        "schema": SCHEMA,
        "path": printable(settings.path) or None,
        "detectors": [
            {
                "id": check.id,
                "off": check.id in settings.off,
                "thresholds": [
                    {
                        "name": key_of(limit),
                        "value": limit.value,
                        "default": limit.default,
                        "unit": limit.unit,
                        "from": printable(settings.path)
                        if (check.id, key_of(limit)) in changed
                        else "default",
                    }
                    for limit in check.thresholds
                ],
            }
            for check in all_detectors()
        ],
        "silences": [silence._asdict() for silence in settings.silences],
        "expired": [silence._asdict() for silence in settings.expired],
        "patterns": list(settings.patterns),
        "patterns_from": printable(settings.patterns_from) or None,
    }


def _thresholds(settings: Settings, width: int) -> Iterator[str]:
    changed = {(name, one.name) for one in settings.thresholds for name in one.detectors}
    names = {
        (check.id, key_of(limit)): limit for check in all_detectors() for limit in check.thresholds
    }
    room = max(len(f"{detector}.{name}") for detector, name in names)
    cell = min(width - room - len("   default  "), 36)
    for (detector, name), limit in names.items():
        source = printable(settings.path) if (detector, name) in changed else "default"
        value = f"{limit.value:g} {limit.unit}"
        left = max(room - max(len(value) - cell, 0), 0)  # a long value takes of the name's room
        yield f" {detector + '.' + name:<{left}}  {value:<{cell}}  {source}"


def silenced_lines(findings: Iterable[Finding]) -> list[str]:
    """Silenced findings that are present."""
    return [
        f"{finding.summary} ({_until(*finding.silenced)})"
        for finding in findings
        if finding.verdict is Verdict.PRESENT and finding.silenced is not None
    ]


def _until(until: float, reason: str) -> str:
    return f"until {_clock(until)}: {reason}"


def _change(changed: Changed) -> str:
    name = f"{changed.detectors[0]}.{changed.name}"
    return f"{name} {changed.value:g} {changed.unit} (default {changed.default:g})"


def _shared(changed: Changed) -> str:
    others = ", ".join(changed.detectors[1:])
    return _change(changed) + (f"; also used by {others}" if others else "")


def _silence(silence: Silence) -> str:
    return f"{_about(silence)}, {_until(silence.until, silence.reason)}"


def _about(silence: Silence) -> str:
    entity = f" {silence.entity}" if silence.entity is not None else ""
    return silence.detector + entity


def _clock(wall_s: float) -> str:
    return local_time(wall_s, "%Y-%m-%d %H:%M")
