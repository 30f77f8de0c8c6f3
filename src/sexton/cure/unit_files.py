"""Which files, links and directories make a unit what it is, in the places people may change.

systemd.unit(5): a unit ``x.service`` is its own file or link, drop-ins in ``x.service.d/``, links
named after it in the ``.wants``, ``.requires`` and ``.upholds`` directories of others (that is what
"enabled" means), and links of other names to it (aliases). Administrators' are in
``/etc/systemd/system`` and, until the next boot, ``/run/systemd/system``; ``system.control`` of
both is what ``systemctl set-property`` writes. All under ``/usr`` is the vendor's and never ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sexton.cure.entry import DIRECTORY, LINK, Entry, look
from sexton.errors import CommandError
from sexton.model.text import printable

#: In systemd's own order: what comes first wins.
DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/etc/systemd/system",
    "/run/systemd/system",
)
DEPENDENCIES = (".wants", ".requires", ".upholds")
MOST_ENTRIES = 2_000
MOST_BYTES = 16 << 20


def concerning(names: Iterable[str], directories: Iterable[str] = DIRECTORIES) -> list[Entry]:
    """Every entry that concerns a unit of these names, directories before what is in them."""
    wanted = frozenset(names)
    found: list[Entry] = []
    size = 0
    for directory in directories:
        for path in _paths(directory, wanted):
            entry = look(path)
            if entry is None:  # removed meanwhile
                continue
            found.append(entry)
            size += len(entry.content)
            if len(found) > MOST_ENTRIES or size > MOST_BYTES:
                raise CommandError(
                    f"{printable(min(wanted))}: more than {MOST_ENTRIES:,} entries or"
                    f" {MOST_BYTES >> 20} MiB in {directory}; too much to keep for an undo"
                )
    return found


def enabling(entries: Iterable[Entry]) -> list[Entry]:
    """The links that have the unit started by others, and its aliases: what *disable* removes."""
    return [
        entry
        for entry in entries
        if entry.kind == LINK
        and not entry.masks
        and (_holder(entry.path).endswith(DEPENDENCIES) or _is_alias(entry))
    ]


def _paths(directory: str, names: frozenset[str]) -> Iterator[str]:
    if look(directory) is not None:
        yield directory
    for inside in _listed(directory):
        path = f"{directory}/{inside}"
        if inside in names or _leads_to(path, names):
            yield path
        elif inside.endswith(".d") and inside.removesuffix(".d") in names:
            yield path
            yield from (f"{path}/{each}" for each in _listed(path))
        elif inside.endswith(DEPENDENCIES):
            yield from (f"{path}/{each}" for each in _listed(path) if each in names)


def _leads_to(path: str, names: frozenset[str]) -> bool:
    """Is it a link to a unit of these names, that is: perhaps an alias systemd has not loaded?"""
    try:
        return os.path.basename(os.readlink(path)) in names
    except OSError:
        return False


def _is_alias(entry: Entry) -> bool:
    """A link in a configuration directory itself whose target has another name. A link of the same
    name is the unit's own file, kept elsewhere ("linked"); an instance's to its template, too."""
    name, target = entry.path.rpartition("/")[2], os.path.basename(entry.target)
    return name != target and template_of(name) != target


def template_of(name: str) -> str:
    """The template an instance is made from, the name itself where it is none.

    >>> template_of("getty@tty1.service"), template_of("ssh.service")
    ('getty@.service', 'ssh.service')
    """
    head, at, tail = name.partition("@")
    return f"{head}@.{tail.rpartition('.')[2]}" if at else name


def _holder(path: str) -> str:
    return path.rpartition("/")[0]


def _listed(directory: str) -> list[str]:
    """Names in a directory that is one, and no link to one elsewhere."""
    entry = look(directory)
    if entry is None or entry.kind != DIRECTORY:
        return []
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CommandError(f"{printable(directory)}: {error.strerror}") from None
