r"""The unit files of a file tree: the files, links and drop-ins systemd would read.

The search path and the rules for links, masks, templates and drop-ins are those of systemd.unit(5),
the syntax that of systemd.syntax(7) and systemd.time(7). Nothing is executed. The tree is not
trusted: files and lists are bounded, and what could not be read is in `UnitTree.unread`.

>>> settings = Settings()
>>> settings.read("[Unit]\nAfter=a.service \\\n  b.service\n[Service]\nRestart=always\n", "/x")
>>> settings.words("Unit", "After"), settings.last("Service", "Restart")
(['a.service', 'b.service'], 'always')
>>> settings.read("[Unit]\nAfter=\n", "/x.d/1.conf")
>>> settings.words("Unit", "After")
[]
>>> [span_s(text) for text in ("10", "1min 30s", "2h30min", "100ms", "infinity", "soon")]
[10.0, 90.0, 9000.0, 0.1, inf, None]
>>> [calendar_s(text) for text in ("hourly", "*:0/5", "*-*-* *:*:0/10", "Mon 03:10", "*:*")]
[3600.0, 300.0, 10.0, 604800.0, 60.0]
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from math import inf
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError, SourceMalformed
from sexton.host.reader import Files, exists, read_regular

#: In systemd's order: the first match wins.
DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
MOST_FILE = 1 << 20
MOST_UNITS = 20_000
MOST_DROP_INS = 200
_MOST_ALIASES = 8
_MOST_NOTES = 20
_SUFFIXES = "service|timer|socket|path|target|mount|automount|swap|slice|scope|device"
_UNIT = re.compile(rf"[A-Za-z0-9:_.\\@-]{{1,240}}\.({_SUFFIXES})", re.ASCII)
_PULLS = {".wants": "wants", ".requires": "requires", ".upholds": "upholds"}
#: Longer than systemd accepts, and more lines than any unit has.
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
    """A value and the file it was read from."""

    value: str
    origin: str


class Settings:
    """The settings of a unit file and its drop-ins, in the order they are read."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[Line]] = defaultdict(list)
        self.sections: set[str] = set()

    def read(self, text: str, origin: str) -> None:
        """Add a file. Invalid lines are skipped, as in systemd."""
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
                lines.clear()  # an empty assignment resets the list

    def lines(self, section: str, key: str) -> list[Line]:
        return list(self._lines.get((section, key), ()))

    def last(self, section: str, key: str) -> str | None:
        found = self._lines.get((section, key))
        return found[-1].value if found else None

    def words(self, section: str, key: str) -> list[str]:
        """The words of all lines of a list setting."""
        found = self._lines.get((section, key), ())
        return [word.strip("\"'") for line in found for word in line.value.split()]

    def origin(self, section: str, key: str) -> str:
        """The file of the last line, which is the effective one."""
        found = self._lines.get((section, key))
        return found[-1].origin if found else ""

    def with_prefix(self, section: str, prefixes: tuple[str, ...]) -> list[str]:
        """``Key=Value`` of every key with one of these prefixes, sorted."""
        return sorted(
            f"{key}={line.value}"
            for (where, key), found in self._lines.items()
            if where == section and key.startswith(prefixes)
            for line in found
        )


def span_s(text: str | None) -> float | None:
    """A time span in seconds; `None` if it is not one."""
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
    """Approximate seconds between two elapses of ``OnCalendar=``; `None` if unknown.

    The shortest interval that its finest field allows: the worst case.
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
    """The smallest step within one field; `None` if it has a single value."""
    if part == "*":
        return 1.0
    if "/" in part:
        step = part.rpartition("/")[2]
        return float(step) if step.isdigit() and int(step) else 1.0
    if ".." in part:
        return 1.0
    if "," in part:
        values = sorted(int(word) for word in part.split(",") if word.isdigit())
        gaps = [after - before for before, after in pairwise(values)]
        return float(min(gaps, default=most) or 1)
    return None


class Pull(NamedTuple):
    """A dependency that makes systemd start `unit`; `at` is the file or link that declares it."""

    kind: str
    unit: str
    at: str


class UnitTree:
    """The units of a file tree."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.notes: list[str] = []
        #: Units and directories that exist but could not be read, a line each: not seen is not
        #: absent.
        self.unread: list[str] = []
        self._odd = 0
        self._where: dict[str, str] = {}
        self._pulls: dict[str, list[Pull]] = defaultdict(list)
        self._drop_in_places: dict[str, list[str]] = defaultdict(list)
        self._targets: dict[str, str | None] = {}
        self._settings: dict[str, Settings] = {}
        self._drop_ins: dict[str, tuple[str, ...]] = {}
        #: At least one unit directory has entries.
        self.has_units = False
        for directory in self._distinct(DIRECTORIES):
            self._index(directory)
        if self._odd:
            self.note(f"{self._odd:,} names in unit directories are not unit names: skipped")

    def note(self, words: str) -> None:
        """Add a note for the report; only the first few are kept."""
        if len(self.notes) < _MOST_NOTES and words not in self.notes:
            self.notes.append(words)

    def note_unread(self, words: str) -> None:
        """Record what could not be read; only the first few are kept."""
        if len(self.unread) < _MOST_NOTES and words not in self.unread:
            self.unread.append(words)

    @property
    def names(self) -> list[str]:
        """Every unit with a file or a link."""
        return sorted(self._where)

    def path(self, name: str) -> str:
        """Its file, or its template's; "" if it has none."""
        found = self._where.get(name)
        if found is None:
            found = self._where.get(template(name) or "", "")
        return found

    def canonical(self, name: str) -> str:
        """The name a unit has after following aliases (links between unit files)."""
        for _ in range(_MOST_ALIASES):
            target = self._target(self._where.get(name, ""))
            if target is None or target == "/dev/null":
                return name
            base = target.rpartition("/")[2]
            if base == name or not _UNIT.fullmatch(base) or base == template(name):
                return name
            if base not in self._where or base.rpartition(".")[2] != name.rpartition(".")[2]:
                return name
            name = base
        self.note(f"{name}: alias loop")
        return name

    def masked(self, name: str) -> bool:
        """Linked to /dev/null, or an empty file."""
        path = self.path(name)
        if not path:
            return False
        target = self._target(path)
        if target is not None:
            return target.rstrip("/").endswith("/dev/null")
        if path.startswith(("/usr/", "/lib/")):
            return False  # vendors do not mask; reading every file to check is expensive
        try:
            return not read_regular(self.files, path, MOST_FILE)
        except SourceError:
            return False

    def settings(self, name: str) -> Settings:
        """The settings of its file and its drop-ins."""
        known = self._settings.get(name)
        if known is not None:
            return known
        found = self._settings[name] = Settings()
        path = self.path(name)
        if path:
            self._add(found, path)
        self._drop_ins[name] = tuple(self._find_drop_ins(name))
        for drop_in in self._drop_ins[name]:
            self._add(found, drop_in)
        return found

    def drop_ins(self, name: str) -> tuple[str, ...]:
        self.settings(name)
        return self._drop_ins[name]

    def linked(self, name: str) -> list[Pull]:
        """Units that its .wants, .requires and .upholds directories link to."""
        own = self._pulls.get(name, [])
        of_template = self._pulls.get(template(name) or "", [])
        return [*own, *of_template]

    @property
    def pulling(self) -> list[str]:
        """Every unit with a .wants, .requires or .upholds directory."""
        return sorted(self._pulls)

    def listing(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it cannot be listed, which is recorded."""
        try:
            found = sorted(self.files.names(directory))
        except SourceAbsent:
            return []
        except SourceError as error:
            self.note_unread(str(error))
            return []
        if len(found) > MOST_UNITS:
            self.note_unread(f"{directory}: more than {MOST_UNITS:,} names")
        return found[:MOST_UNITS]

    def has(self, path: str) -> bool | None:
        """Whether the path exists; `None` if unknown."""
        try:
            return exists(self.files, path)
        except SourceError:
            return None

    def text(self, path: str, limit: int = MOST_FILE) -> str | None:
        """A file as text; `None` if there is none, or if it cannot be read, which is recorded."""
        try:
            return read_regular(self.files, path, limit).decode("utf-8", "surrogateescape")
        except SourceAbsent:
            return None
        except SourceError as error:
            self.note_unread(str(error))
            return None

    def _distinct(self, directories: tuple[str, ...]) -> list[str]:
        """Leave out /lib if it is a link to /usr/lib."""
        merged = self._target("/lib") is not None
        return [
            directory for directory in directories if not (merged and directory.startswith("/lib/"))
        ]

    def _index(self, directory: str) -> None:
        names = self.listing(directory)
        self.has_units = self.has_units or bool(names)
        for name in names:
            stem, dot, last = name.rpartition(".")
            path = f"{directory}/{name}"
            kind = _PULLS.get(dot + last)
            if kind is not None and _UNIT.fullmatch(stem):
                self._index_pulls(kind, stem, path)
            elif dot + last == ".d":
                self._drop_in_places[stem].append(path)
            elif _UNIT.fullmatch(name):
                if len(self._where) < MOST_UNITS:
                    self._where.setdefault(name, path)
                else:
                    self.note_unread(f"more than {MOST_UNITS:,} units")
            else:
                self._odd += 1

    def _index_pulls(self, kind: str, puller: str, directory: str) -> None:
        known = Counter(pull.unit for pull in self._pulls[puller] if pull.kind == kind)
        for name in self.listing(directory):
            if not _UNIT.fullmatch(name):
                self._odd += 1
            elif name not in known and len(self._pulls[puller]) < MOST_UNITS:
                target = self._target(f"{directory}/{name}")
                if target is None or not target.rstrip("/").endswith("/dev/null"):
                    self._pulls[puller].append(Pull(kind, name, f"{directory}/{name}"))

    def _target(self, path: str) -> str | None:
        """The target of a link; `None` if the path is not a link or does not exist."""
        if not path:
            return None
        if path not in self._targets:
            target = None
            try:
                target = self.files.link(path)
            except (SourceAbsent, SourceMalformed):
                pass
            except SourceError as error:
                self.note_unread(str(error))
            self._targets[path] = target
        return self._targets[path]

    def _add(self, settings: Settings, path: str) -> None:
        content = self.text(path)
        if content is not None:
            if content.count("\n") > MOST_LINES:
                self.note_unread(f"{path}: more than {MOST_LINES:,} lines")
            settings.read(content, path)

    def _find_drop_ins(self, name: str) -> list[str]:
        found: dict[str, str] = {}
        for stem in drop_in_names(name):
            for directory in self._drop_in_places.get(stem, ()):
                for item in self.listing(directory):
                    if item.endswith(".conf") and len(found) < MOST_DROP_INS:
                        found.setdefault(item, f"{directory}/{item}")
                    elif item.endswith(".conf") and item not in found:
                        self.note_unread(f"{name}: more than {MOST_DROP_INS} drop-ins")
        return [
            path
            for _, path in sorted(found.items())
            if not (self._target(path) or "").rstrip("/").endswith("/dev/null")
        ]


def is_unit(name: str) -> bool:
    """Whether it is a valid unit name."""
    return _UNIT.fullmatch(name) is not None


def template(name: str) -> str | None:
    """The template of an instance.

    >>> template("getty@tty1.service"), template("getty@.service"), template("ssh.service")
    ('getty@.service', None, None)
    """
    stem, _, suffix = name.rpartition(".")
    head, at, instance = stem.partition("@")
    return f"{head}@.{suffix}" if at and instance else None


def drop_in_names(name: str) -> list[str]:
    """Names of a unit's drop-in directories without ``.d``, the most specific first.

    >>> drop_in_names("foo-bar@1.service")
    ['foo-bar@1.service', 'foo-bar@.service', 'foo-.service', 'service']
    """
    stem, _, suffix = name.rpartition(".")
    of_template = template(name)
    head = stem.partition("@")[0]
    parts = head.split("-")
    prefixes = [f"{'-'.join(parts[:cut])}-.{suffix}" for cut in range(len(parts) - 1, 0, -1)]
    return [name, *([of_template] if of_template else []), *prefixes, suffix]
