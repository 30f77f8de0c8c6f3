r"""Unit files as systemd.syntax(7) and systemd.time(7) describe them, as far as we read them.

>>> settings = Settings()
>>> settings.read("[Unit]\nAfter=a.service \\\n  b.service\n[Service]\nRestart=always\n", "/x")
>>> settings.words("Unit", "After"), settings.last("Service", "Restart")
(['a.service', 'b.service'], 'always')
>>> settings.read("[Unit]\nAfter=\n", "/x.d/1.conf")
>>> settings.words("Unit", "After")
[]
>>> [span_s(each) for each in ("10", "1min 30s", "2h30min", "100ms", "infinity", "soon")]
[10.0, 90.0, 9000.0, 0.1, inf, None]
>>> [calendar_s(each) for each in ("hourly", "*:0/5", "*-*-* *:*:0/10", "Mon 03:10", "*:*")]
[3600.0, 300.0, 10.0, 604800.0, 60.0]
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from math import inf
from typing import NamedTuple

#: systemd itself refuses longer lines, and no unit has so many.
MOST_LINE = 1 << 16
MOST_LINES = 20_000
_SECONDS = {
    "ns": 1e-9, "nsec": 1e-9,
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "μs": 1e-6,
    "ms": 1e-3, "msec": 1e-3,
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
    "M": 2629800.0, "month": 2629800.0, "months": 2629800.0,
    "y": 31557600.0, "year": 31557600.0, "years": 31557600.0,
}  # fmt: skip
_SPAN = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-zµμ]*)", re.ASCII)
_SHORTHANDS = {
    "minutely": 60.0,
    "hourly": 3600.0,
    "daily": 86400.0,
    "weekly": 604800.0,
    "monthly": 2629800.0,
    "quarterly": 7889400.0,
    "semiannually": 15778800.0,
    "yearly": 31557600.0,
    "annually": 31557600.0,
}
_TIME = re.compile(r"([0-9*/,.~]{1,64}):([0-9*/,.~]{1,200})(?::([0-9*/,.~]{1,200}))?")


class Line(NamedTuple):
    """A value and the file it stands in."""

    value: str
    origin: str


class Settings:
    """Everything a unit's file and its drop-ins say, in the order they are read."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[Line]] = defaultdict(list)
        self.sections: set[str] = set()

    def read(self, text: str, origin: str) -> None:
        """Add a file. Lines that make no sense are passed over, as systemd does."""
        section = ""
        pending = ""
        for raw in text.split("\n")[:MOST_LINES]:
            line = raw[:MOST_LINE].strip()
            if line[:1] in ("#", ";"):  # also in the middle of a continued line
                continue
            if line.endswith("\\"):
                pending = f"{pending}{line[:-1]} "[:MOST_LINE]
                continue
            line, pending = pending + line, ""
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                self.sections.add(section)
                continue
            key, equals, value = line.partition("=")
            if not equals or not section:
                continue
            lines = self._lines[section, key.strip()]
            if value.strip():
                lines.append(Line(value.strip(), origin))
            else:
                lines.clear()  # an empty assignment takes back the ones before it

    def lines(self, section: str, key: str) -> list[Line]:
        return list(self._lines.get((section, key), ()))

    def last(self, section: str, key: str) -> str | None:
        found = self._lines.get((section, key))
        return found[-1].value if found else None

    def words(self, section: str, key: str) -> list[str]:
        """The words of all lines of a list."""
        found = self._lines.get((section, key), ())
        return [word.strip("\"'") for line in found for word in line.value.split()]

    def origin(self, section: str, key: str) -> str:
        """The file whose line counts."""
        found = self._lines.get((section, key))
        return found[-1].origin if found else ""

    def starting(self, section: str, prefixes: tuple[str, ...]) -> list[str]:
        """``Key=Value`` of every key that starts so, sorted."""
        return sorted(
            f"{key}={line.value}"
            for (where, key), found in self._lines.items()
            if where == section and key.startswith(prefixes)
            for line in found
        )


def span_s(text: str | None) -> float | None:
    """Seconds of a time span; `None` where it is none."""
    if text is None or not text.strip():
        return None
    if text.strip() == "infinity":
        return inf
    total, at = 0.0, 0
    text = text.strip()[:200]
    while at < len(text):
        found = _SPAN.match(text, at)
        if found is None or found[2] not in _SECONDS:
            return None
        total += float(found[1]) * _SECONDS[found[2]]
        at = found.end()
    return total


def calendar_s(text: str) -> float | None:
    """About how many seconds lie between two elapses of ``OnCalendar=``; `None`: cannot tell.

    The shortest distance its finest part allows; that is what a unit costs at worst.
    """
    expression = text.strip()[:500]
    known = _SHORTHANDS.get(expression.lower())
    if known is not None:
        return known
    found = _TIME.search(expression)
    if found is None:
        return 86400.0 if re.fullmatch(r"[A-Za-z0-9*,.~/ -]+", expression) else None
    hours, minutes, seconds = found[1], found[2], found[3] or "0"
    for part, unit, most in ((seconds, 1.0, 60), (minutes, 60.0, 60), (hours, 3600.0, 24)):
        step = _step(part, most)
        if step is not None:
            return step * unit
    return 604800.0 if re.match(r"[A-Za-z]{3}\b(?!\.\.|,)", expression) else 86400.0


def _step(part: str, most: int) -> float | None:
    """The smallest step within one field; `None` where it has a single value."""
    if part == "*":
        return 1.0
    if "/" in part:
        step = part.rpartition("/")[2]
        return float(step) if step.isdigit() and int(step) else 1.0
    if ".." in part:
        return 1.0
    if "," in part:
        values = sorted(int(each) for each in part.split(",") if each.isdigit())
        gaps = [after - before for before, after in pairwise(values)]
        return float(min(gaps, default=most) or 1)
    return None
