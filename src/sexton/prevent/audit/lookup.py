"""The units of a file tree: which files, links and drop-ins systemd would find, and what they say.

The search path, the rules for links, masks, templates and drop-ins are those of systemd.unit(5).
Nothing is run. The tree may be hostile: every file is bounded, every list too, and what could not
be read stands in `notes`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError, SourceMalformed
from sexton.host.reader import Files, exists, text
from sexton.prevent.audit.unitfile import Settings

#: In the order systemd looks: what is found first counts.
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


class Pull(NamedTuple):
    """One unit makes systemd start another: how, which, and where that is written."""

    kind: str
    unit: str
    at: str


class UnitTree:
    """See the module."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.notes: list[str] = []
        self._unread = 0
        self._odd = 0
        self._where: dict[str, str] = {}
        self._pulls: dict[str, list[Pull]] = defaultdict(list)
        self._drop_in_places: dict[str, list[str]] = defaultdict(list)
        self._targets: dict[str, str | None] = {}
        self._settings: dict[str, Settings] = {}
        self._drop_ins: dict[str, tuple[str, ...]] = {}
        #: Was there any directory of units at all?
        self.told = False
        for directory in self._distinct(DIRECTORIES):
            self._index(directory)
        if self._odd:
            self.note(f"{self._odd:,} names in unit directories are no unit's: passed over")

    def note(self, words: str) -> None:
        """Something a reader must know; the first few are kept."""
        if len(self.notes) < _MOST_NOTES and words not in self.notes:
            self.notes.append(words)

    @property
    def names(self) -> list[str]:
        """Every unit that has a file or a link."""
        return sorted(self._where)

    def path(self, name: str) -> str:
        """Its file, or its template's; "" where it has none."""
        found = self._where.get(name)
        if found is None:
            found = self._where.get(template(name) or "", "")
        return found

    def canonical(self, name: str) -> str:
        """The name a unit goes by, through links from one unit file to another."""
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
        self.note(f"{name}: its links lead in circles")
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
            return False  # a vendor does not mask; reading every file for it would be dear
        try:
            return not self.files.read(path, MOST_FILE)
        except SourceError:
            return False

    def settings(self, name: str) -> Settings:
        """What its file and its drop-ins say together."""
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
        """What the links in its .wants, .requires and .upholds directories pull in."""
        own = self._pulls.get(name, [])
        of_template = self._pulls.get(template(name) or "", [])
        return [*own, *of_template]

    @property
    def pulling(self) -> list[str]:
        """Every unit that has such a directory."""
        return sorted(self._pulls)

    def listing(self, directory: str) -> list[str]:
        """The names in a directory, sorted; none where it cannot be listed, which is noted."""
        try:
            return sorted(self.files.names(directory))[:MOST_UNITS]
        except SourceAbsent:
            return []
        except SourceError as error:
            self.note(str(error))
            return []

    def has(self, path: str) -> bool | None:
        """Is it there? `None` where that cannot be told."""
        try:
            return exists(self.files, path)
        except SourceError:
            return None

    def text(self, path: str, limit: int = MOST_FILE) -> str | None:
        """A file as text; `None` where there is none, or none that can be read, which is noted."""
        try:
            return text(self.files, path, limit)
        except SourceAbsent:
            return None
        except SourceError as error:
            self._unread += 1
            self.note(str(error))
            return None

    def _distinct(self, directories: tuple[str, ...]) -> list[str]:
        """Without those that are another one's by a link on the way (/lib, since it is usr/lib)."""
        merged = self._target("/lib") is not None
        return [each for each in directories if not (merged and each.startswith("/lib/"))]

    def _index(self, directory: str) -> None:
        names = self.listing(directory)
        self.told = self.told or bool(names)
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
        """Where a link points; `None` for what is no link or not there."""
        if not path:
            return None
        if path not in self._targets:
            target = None
            try:
                target = self.files.link(path)
            except (SourceAbsent, SourceMalformed):
                pass
            except SourceError as error:
                self.note(str(error))
            self._targets[path] = target
        return self._targets[path]

    def _add(self, settings: Settings, path: str) -> None:
        content = self.text(path)
        if content is not None:
            settings.read(content, path)

    def _find_drop_ins(self, name: str) -> list[str]:
        found: dict[str, str] = {}
        for stem in drop_in_names(name):
            for directory in self._drop_in_places.get(stem, ()):
                for each in self.listing(directory):
                    if each.endswith(".conf") and len(found) < MOST_DROP_INS:
                        found.setdefault(each, f"{directory}/{each}")
        return [
            path
            for _, path in sorted(found.items())
            if not (self._target(path) or "").rstrip("/").endswith("/dev/null")
        ]


def is_unit(name: str) -> bool:
    """Could systemd have a unit of this name?"""
    return _UNIT.fullmatch(name) is not None


def template(name: str) -> str | None:
    """The template an instance is made of.

    >>> template("getty@tty1.service"), template("getty@.service"), template("ssh.service")
    ('getty@.service', None, None)
    """
    stem, _, suffix = name.rpartition(".")
    head, at, instance = stem.partition("@")
    return f"{head}@.{suffix}" if at and instance else None


def drop_in_names(name: str) -> list[str]:
    """The names under which a unit's drop-ins may lie, the most special first.

    >>> drop_in_names("foo-bar@1.service")
    ['foo-bar@1.service', 'foo-bar@.service', 'foo-.service', 'service']
    """
    stem, _, suffix = name.rpartition(".")
    made_of = template(name)
    head = stem.partition("@")[0]
    parts = head.split("-")
    prefixes = [f"{'-'.join(parts[:cut])}-.{suffix}" for cut in range(len(parts) - 1, 0, -1)]
    return [name, *([made_of] if made_of else []), *prefixes, suffix]
