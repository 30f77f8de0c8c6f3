"""How a source declares itself, and how they are all found.

A source is one module per kernel file or interface. A plain file needs only a pure parser::

    @file_source("/proc/stat", rows=(CoreTimes,), period_s=1.0)
    def parse(text: str) -> Iterator[CoreTimes]: ...

Anything else is a class that is opened once per window and may keep state between reads::

    @source("/dev/kmsg", rows=(KernelEvent,), period_s=1.0, grant="sudo sexton diagnose")
    class Kmsg:
        def __init__(self, host: Host) -> None: ...
        def collect(self) -> Iterable[Row]: ...
        def close(self) -> None: ...

The module's dotted name under `sexton.sources` is the source's id (``procfs.stat``).
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import sexton.sources
from sexton.errors import SourceAbsent
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.frozen import Frozen, frozen
from sexton.model.row import Row

_PACKAGE = "sexton.sources."


class Reading(Protocol):
    """An opened source."""

    def collect(self) -> Iterable[Row]:
        """Rows as of now; raises `SourceError` where there are none to be had."""

    def close(self) -> None:
        """Give back whatever was held; called exactly once."""


@frozen
class Source(Frozen):
    """What the registry knows of a source.

    `period_s` is how often it wants to be read (0: once per window); `deadline_s` is when its
    guard gives up on it. `grant` tells a person how to get it where it is absent or denied.
    `parse` is the pure parser where the source is a plain file. `asked_by` is the option without
    which it is not opened at all, for sources that cost more than a glance.
    """

    id: str
    path: str
    rows: tuple[type[Row], ...]
    period_s: float
    deadline_s: float
    grant: str
    open: Callable[[Host], Reading]
    parse: Callable[[str], Iterable[Row]] | None = None
    asked_by: str = ""

    @property
    def page(self) -> str:
        """Its module's docstring."""
        return sys.modules[_PACKAGE + self.id].__doc__ or ""


class _FileReading(NamedTuple):
    host: Host
    path: str
    parse: Callable[[str], Iterable[Row]]

    def collect(self) -> Iterable[Row]:
        return self.parse(text(self.host.files, self.path))

    def close(self) -> None:
        pass


_found: dict[str, Source] = {}
Parser = TypeVar("Parser", bound=Callable[[str], Iterable[Row]])
Opened = TypeVar("Opened", bound=Callable[[Host], Reading])


def file_source(
    path: str,
    *,
    rows: tuple[type[Row], ...],
    period_s: float,
    deadline_s: float = 1.0,
    grant: str = "",
) -> Callable[[Parser], Parser]:
    """A source that is one file and a pure parser. ``{self}`` in `path` is the host's own
    process directory, ``{net}`` its network directory."""

    def register(parse: Parser) -> Parser:
        def open_file(host: Host) -> Reading:
            place = path.replace("{self}", host.self_dir)
            if "{net}" in place:
                place = place.replace("{net}", host.net_dir)
            return _FileReading(host, place, parse)

        name = parse.__module__.removeprefix(_PACKAGE)
        shown = path.replace("{self}", "/proc/self").replace("{net}", "/proc/net")
        _found[name] = Source(name, shown, rows, period_s, deadline_s, grant, open_file, parse)
        return parse

    return register


def source(  # noqa: PLR0913 - all but one are named at the call
    path: str,
    *,
    rows: tuple[type[Row], ...],
    period_s: float,
    deadline_s: float = 1.0,
    grant: str = "",
    asked_by: str = "",
) -> Callable[[Opened], Opened]:
    """A source with a life of its own; `path` is what a person would call it."""

    def register(opened: Opened) -> Opened:
        name = opened.__module__.removeprefix(_PACKAGE)
        declared = Source(name, path, rows, period_s, deadline_s, grant, opened)
        _found[name] = replace(declared, asked_by=asked_by)
        return opened

    return register


@cache
def all_sources() -> tuple[Source, ...]:
    """Every source there is, by walking the folders; sorted by id."""
    _import(None)
    return tuple(_found[name] for name in sorted(_found))


@cache
def asked_sources(*asked: str) -> tuple[Source, ...]:
    """Those that wait for no option, and those whose option is among `asked`."""
    _import(asked)
    found = (_found[name] for name in sorted(_found))
    return tuple(each for each in found if not each.asked_by or each.asked_by in asked)


def _import(asked: Sequence[str] | None) -> None:
    """Modules beside the folders are no sources, and some are dear to import (`archive`). So are
    some in a folder whose `SOURCES` names those that are, and all in one whose `ASKED_BY` is an
    option that nobody gave."""
    for folder in pkgutil.iter_modules(sexton.sources.__path__, _PACKAGE):
        if not folder.ispkg:
            continue
        inside = importlib.import_module(folder.name)
        if asked is not None and getattr(inside, "ASKED_BY", None) not in (None, *asked):
            continue
        named = getattr(inside, "SOURCES", None)
        for module in pkgutil.iter_modules(inside.__path__):
            if named is None or module.name in named:
                importlib.import_module(f"{folder.name}.{module.name}")


def left_out(source: Source, why: str, grant: str) -> Source:
    """The same source, which only says why it was not asked."""

    def refuse(_: Host) -> Reading:
        raise SourceAbsent(source.path, why, grant)

    return replace(source, open=refuse)


def giving(*kinds: type[Row]) -> tuple[Source, ...]:
    """The sources that give any of these rows, for commands that need only a few."""
    return tuple(each for each in all_sources() if set(each.rows) & set(kinds))
