"""How a source is declared, and the list of all sources.

A source is one module per kernel file or interface. A plain file needs only a pure parser::

    @file_source("/proc/stat", rows=(CoreTimes,), period_s=1.0)
    def parse(text: str) -> Iterator[CoreTimes]: ...

Anything else is a class that is opened once per window and may keep state between reads::

    @source("/dev/kmsg", rows=(KernelEvent,), period_s=1.0, grant="sudo sexton diagnose")
    class Kmsg(Reading):
        def collect(self) -> Iterable[Row]: ...
        def close(self) -> None: ...  # only if something must be released

The module's dotted name under `sexton.sources` is the source's id (``procfs.stat``).
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

import sexton.sources
from sexton.errors import SourceAbsent
from sexton.host.host import Host
from sexton.host.reader import Files, text
from sexton.model.frozen import Frozen, frozen
from sexton.model.row import Row

_PACKAGE = "sexton.sources."


class Reading:
    """An opened source. `note` says what the last reading left out, e.g. because of a limit."""

    note = ""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def _files(self) -> Files:
        return self._host.files

    def collect(self) -> Iterable[Row]:
        """The current rows; raises `SourceError` if the source cannot be read."""
        raise NotImplementedError

    def close(self) -> None:
        """Release everything; called exactly once. Most have nothing to release."""


@frozen
class Source(Frozen):
    """A source's declaration.

    `period_s` is how often it is read (0: once per window); `deadline_s` is when the sampler gives
    up on a read. `grant` is a command or setting that makes it available where it is absent or
    denied. `parse` is the pure parser of a source that is a plain file. `opt_in` is the option that
    enables it, for sources too expensive to read by default.
    """

    id: str
    path: str
    rows: tuple[type[Row], ...]
    period_s: float
    deadline_s: float
    grant: str
    open: Callable[[Host], Reading]
    parse: Callable[[str], Iterable[Row]] | None = None
    opt_in: str = ""

    @property
    def page(self) -> str:
        """Its module's docstring."""
        return sys.modules[_PACKAGE + self.id].__doc__ or ""


class _FileReading(Reading):
    def __init__(self, host: Host, path: str, parse: Callable[[str], Iterable[Row]]) -> None:
        super().__init__(host)
        self._path = path
        self._parse = parse

    def collect(self) -> Iterable[Row]:
        return self._parse(text(self._files, self._path))


#: Files that newer kubelets mask with /dev/null in a pod, and where the pod may mount the node's.
UNMASKED = {"/proc/interrupts": "/host/interrupts"}


def _unmasked(host: Host, path: str) -> str:
    """The file itself, or where the node's is if it is masked here."""
    other = UNMASKED.get(path)
    if other is None or not host.live:
        return path
    try:
        return path if stat.S_ISREG(os.stat(path).st_mode) else other
    except OSError:  # reading it says why
        return path


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
    """Declare a source that is one file and a pure parser. ``{self}`` in `path` is the host's
    process directory, ``{net}`` its network directory."""

    def register(parse: Parser) -> Parser:
        def open_file(host: Host) -> Reading:
            place = path.replace("{self}", host.self_dir)
            if "{net}" in place:
                place = place.replace("{net}", host.net_dir)
            return _FileReading(host, _unmasked(host, place), parse)

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
    opt_in: str = "",
) -> Callable[[Opened], Opened]:
    """Declare a source that keeps state; `path` is its name for people."""

    def register(opened: Opened) -> Opened:
        name = opened.__module__.removeprefix(_PACKAGE)
        _found[name] = Source(name, path, rows, period_s, deadline_s, grant, opened, opt_in=opt_in)
        return opened

    return register


@cache
def all_sources() -> tuple[Source, ...]:
    """Every source in the folders, sorted by id."""
    _import(None)
    return tuple(_found[name] for name in sorted(_found))


@cache
def enabled_sources(*options: str) -> tuple[Source, ...]:
    """All sources except opt-in ones whose option is not in `options`."""
    _import(options)
    found = (_found[name] for name in sorted(_found))
    return tuple(reader for reader in found if not reader.opt_in or reader.opt_in in options)


def _import(options: Sequence[str] | None) -> None:
    """Import the modules of every folder; modules beside the folders are not sources.

    A folder's `SOURCES` names its sources where some modules are expensive to import; a folder
    whose `OPT_IN` is not in `options` is skipped (`None`: import everything).
    """
    for folder in pkgutil.iter_modules(sexton.sources.__path__, _PACKAGE):
        if not folder.ispkg:
            continue
        inside = importlib.import_module(folder.name)
        if options is not None and getattr(inside, "OPT_IN", None) not in (None, *options):
            continue
        named = getattr(inside, "SOURCES", None)
        for module in pkgutil.iter_modules(inside.__path__):
            if named is None or module.name in named:
                importlib.import_module(f"{folder.name}.{module.name}")


def disabled(source: Source, why: str, grant: str) -> Source:
    """The same source, which only reports why it was not read."""

    def refuse(_: Host) -> Reading:
        raise SourceAbsent(source.path, why, grant)

    return replace(source, open=refuse)


def sources_of(*kinds: type[Row]) -> tuple[Source, ...]:
    """The sources that provide any of these rows, for commands that need only a few."""
    return tuple(source for source in all_sources() if set(source.rows) & set(kinds))
