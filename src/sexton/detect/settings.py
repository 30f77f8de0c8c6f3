"""Parses ``config.toml`` to `Settings` and checks it against what the detectors declare.

::

    [thresholds]
    DETECTOR.NAME = 4                   # in its unit; the detector's page lists its names

    [detectors]
    off = ["DETECTOR"]

    [[silence]]
    detector = "DETECTOR"
    entity = "ecs.service"              # optional: only findings about it
    until = 2026-12-01                  # the end of that day, or a time: 2026-12-01T08:00:00Z
    reason = "fixed in the next image"

    [patterns]
    directory = "/etc/sexton/patterns.d"    # your own log patterns; "" for none

Pure: the command line reads the file and passes its text. Every mistake is a `CommandError` that
names the file, the key and what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from difflib import get_close_matches
from typing import Any, NoReturn

from sexton.detect.custom_patterns import finding_id
from sexton.detect.registry import Threshold, all_detectors, key_of
from sexton.errors import CommandError
from sexton.model.settings import Changed, Settings, Silence
from sexton.model.text import printable
from sexton.model.toml import parse_toml

#: Log patterns of the node's owner.
PATTERNS = "/etc/sexton/patterns.d"
_PATTERN = finding_id("")
#: A threshold this many times above or below its default is a mistake in the unit.
_FACTOR = 1000
_MOST = 1000
_LONGEST_S = 366 * 86400
_REASON = 500


def parse(text: str, path: str, now_s: float) -> Settings:
    """The settings in `text`; a silence that ended before `now_s` is listed as expired.

    Of log patterns only the directory is set: the names come from its files.
    """
    try:
        document = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not TOML: {error}") from None
    reader = _Reader(path, now_s)
    reader.only(document, ("thresholds", "detectors", "silence", "patterns"), "")
    silences = list(reader.silences(document.get("silence", [])))
    return Settings(
        path,
        tuple(reader.thresholds(reader.table(document, "thresholds"))),
        tuple(reader.off(reader.table(document, "detectors"))),
        tuple(silence for silence in silences if silence.until > now_s),
        tuple(silence for silence in silences if silence.until <= now_s),
        patterns_from=reader.directory(reader.table(document, "patterns")),
    )


class _Reader:
    """Checks one file; `path` is for error messages."""

    def __init__(self, path: str, now_s: float) -> None:
        self._path = path
        self._now_s = now_s
        self._detectors = {check.id: check for check in all_detectors()}

    def wrong(self, key: str, what: str) -> NoReturn:
        raise CommandError(printable(f"{self._path}: {key}: {what}"))

    def unknown(self, key: str, what: str, name: object, known: Iterable[str]) -> NoReturn:
        near = get_close_matches(str(name), list(known), 1)
        self.wrong(key, f"no {what} {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))

    def only(self, table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
        for key in table:
            if key not in keys:
                self.unknown(f"{where}{key}", "setting", key, keys)

    def table(self, document: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = document.get(key, {})
        if not isinstance(found, dict):
            self.wrong(key, "must be a table")
        return found

    def detector(self, key: str, name: object) -> str:
        if not isinstance(name, str) or name not in self._detectors:
            self.unknown(key, "detector", name, self._detectors)
        return name

    def thresholds(self, table: Mapping[str, Any]) -> Iterator[Changed]:
        seen: dict[int, tuple[str, float]] = {}
        for detector, values in table.items():
            self.detector(f"thresholds.{detector}", detector)
            if not isinstance(values, dict):
                self.wrong(f"thresholds.{detector}", "write detector.threshold = number")
            known = {key_of(limit): limit for limit in self._detectors[detector].thresholds}
            for name, value in values.items():
                key = f"thresholds.{detector}.{name}"
                if name not in known:
                    self.unknown(key, f"threshold of {detector}", name, known)
                limit = known[name]
                number = self._number(key, value, limit)
                before = seen.setdefault(id(limit), (key, number))
                if before[1] != number:
                    self.wrong(key, f"the same threshold as {before[0]}, with another value")
                if before[0] == key:
                    others = (
                        check.id
                        for check in self._detectors.values()
                        if check.id != detector and any(one is limit for one in check.thresholds)
                    )
                    yield Changed((detector, *others), name, number, limit.default, limit.unit)

    def _number(self, key: str, value: object, limit: Threshold) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(key, f"must be a number ({limit.unit})")
        most = 100.0 if limit.unit.startswith("%") else limit.default * _FACTOR
        least = limit.default / _FACTOR
        if not math.isfinite(value) or not least <= value <= most:
            self.wrong(key, f"{value}: must be {least:g} to {most:g} {limit.unit}")
        return value

    def off(self, table: Mapping[str, Any]) -> list[str]:
        self.only(table, ("off",), "detectors.")
        names = table.get("off", [])
        if not isinstance(names, list):
            self.wrong("detectors.off", "must be a list of detectors")
        return sorted({self.detector("detectors.off", name) for name in names})

    def directory(self, table: Mapping[str, Any]) -> str:
        self.only(table, ("directory",), "patterns.")
        found = table.get("directory", PATTERNS)
        if not isinstance(found, str) or (found and not found.startswith("/")):
            self.wrong("patterns.directory", "must be an absolute path, or empty")
        return found

    def silences(self, entries: object) -> Iterator[Silence]:
        if not isinstance(entries, list) or len(entries) > _MOST:
            self.wrong("silence", f"write [[silence]], at most {_MOST} times")
        for number, entry in enumerate(entries, 1):
            key = f"silence {number}"
            if not isinstance(entry, dict):
                self.wrong(key, "write [[silence]]")
            self.only(entry, ("detector", "entity", "until", "reason"), f"{key}: ")
            for name in ("detector", "until", "reason"):
                if name not in entry:
                    self.wrong(key, f"{name} is required")
            entity = entry.get("entity")
            if entity is not None:
                entity = self._text(f"{key}: entity", entity)
            name = entry["detector"]
            if not isinstance(name, str) or not name.startswith(_PATTERN):  # of a log pattern
                self.detector(f"{key}: detector", name)
            yield Silence(
                name,
                entity,
                self._until(f"{key}: until", entry["until"]),
                self._text(f"{key}: reason", entry["reason"]),
            )

    def _text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > _REASON:
            self.wrong(key, f"must be a string of 1 to {_REASON} characters")
        return printable(value.strip())

    def _until(self, key: str, value: object) -> float:
        """UNIX time of the end; a date means the end of that day in this machine's time zone."""
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, date):
            moment = datetime.combine(value, time())
        else:
            self.wrong(key, "must be a date or a time: 2026-12-01 or 2026-12-01T08:00:00Z")
        try:
            if not isinstance(value, datetime):
                moment += timedelta(days=1)
            until = moment.timestamp()
        except (ValueError, OverflowError, OSError):
            self.wrong(key, "is out of range for this machine")
        if until > self._now_s + _LONGEST_S:
            self.wrong(key, "is more than a year ahead: a silence needs an end")
        return until
