r"""The files, links and directories that make up a systemd unit, read exactly.

systemd.unit(5): a unit ``x.service`` is its own file or link, drop-ins in ``x.service.d/``, links
named after it in the ``.wants``, ``.requires`` and ``.upholds`` directories of other units (that is
what "enabled" means), and links with other names that point to it (aliases). Administrators keep
them in ``/etc/systemd/system`` and, until the next boot, ``/run/systemd/system``; ``systemctl
set-property`` writes to ``system.control`` in both. Everything under ``/usr`` belongs to the vendor
and is never changed.

An `Entry` holds enough to restore a path byte for byte: content or target, mtime, owner, mode and
extended attributes (SELinux label, ACL). Times of the parent directory are not restored: systemd
uses them to notice a change. Paths are opened component by component and a symbolic link on the way
is refused, because its owner would decide where we write. (`openat2` with RESOLVE_NO_SYMLINKS does
the same in one call since 5.6; Python does not expose it.)

>>> link = Entry("/etc/systemd/system/a.service", LINK, target="/dev/null", mtime_ns=7)
>>> entry_from_json(entry_json(link)) == link
True
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sexton.errors import CommandError
from sexton.model.text import printable

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4095
_LONGEST_NAME = 255
FILE = "file"
LINK = "link"
DIRECTORY = "directory"
#: A device, FIFO or socket: listed, never read, never restored.
OTHER = "other"
#: Far larger than any unit file or drop-in.
MOST_BYTES = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: In systemd's search order: the first match wins.
UNIT_DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/etc/systemd/system",
    "/run/systemd/system",
)
DEPENDENCIES = (".wants", ".requires", ".upholds")
MOST_ENTRIES = 2_000
MOST_TOTAL_BYTES = 16 << 20


def components(path: str) -> tuple[str, ...]:
    """The parts of an absolute path; `..`, empty parts and the like are refused.

    >>> components("/etc/systemd/system/x.service")
    ('etc', 'systemd', 'system', 'x.service')
    >>> components("/etc/../srv/x")
    Traceback (most recent call last):
    sexton.errors.CommandError: /etc/../srv/x: not a plain absolute path; refused
    """
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or not all(map(_is_plain, parts[1:])):
        raise CommandError(f"{printable(path)}: not a plain absolute path; refused")
    if len(path) > _LONGEST_PATH:
        raise CommandError(f"{printable(path[:80])}…: path too long; refused")
    return tuple(parts[1:])


def _is_plain(part: str) -> bool:
    try:
        length = len(os.fsencode(part))
    except UnicodeEncodeError:  # the kernel cannot have returned this name
        return False
    return 0 < length <= _LONGEST_NAME and part not in (".", "..") and "\0" not in part


@contextlib.contextmanager
def open_parent(path: str) -> Iterator[tuple[int, str]]:
    """The opened parent directory of `path`, and the last name. `OSError` if it is absent."""
    *above, name = components(path)
    parent = os.open("/", _STEP)
    try:
        here = ""
        for part in above:
            here = f"{here}/{part}"
            try:
                below = os.open(part, _STEP, dir_fd=parent)
            except OSError as error:
                if error.errno == errno.ELOOP or (
                    error.errno == errno.ENOTDIR and _is_link(part, parent)
                ):
                    raise CommandError(f"{printable(here)} is a link; refused") from None
                raise
            os.close(parent)
            parent = below
        yield parent, name
    finally:
        os.close(parent)


def _is_link(name: str, directory: int) -> bool:
    try:
        os.readlink(name, dir_fd=directory)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, link or directory. `attributes` are the extended ones."""

    path: str
    kind: str
    content: bytes = b""
    target: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    attributes: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def masks(self) -> bool:
        """A link to /dev/null or an empty file in a unit's place masks it (systemd.unit(5))."""
        return (self.kind == LINK and self.target == "/dev/null") or (
            self.kind == FILE and not self.content
        )


def read_entry(path: str) -> Entry | None:
    """What is at `path` now; `None` if nothing."""
    try:
        with open_parent(path) as (parent, name):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                target = os.readlink(name, dir_fd=parent)
                return _entry(path, LINK, found, target=target)
            if stat.S_ISDIR(found.st_mode):
                return _entry(path, DIRECTORY, found)
            if not stat.S_ISREG(found.st_mode):
                return _entry(path, OTHER, found)
            return _read(path, name, parent)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise CommandError(f"{printable(path)}: {error.strerror}") from None


def _read(path: str, name: str, parent: int) -> Entry:
    descriptor = os.open(name, _OPEN, dir_fd=parent)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return _entry(path, OTHER, found)
        content = b""
        while piece := os.read(descriptor, MOST_BYTES + 1 - len(content)):
            content += piece
        if len(content) > MOST_BYTES:
            raise CommandError(f"{printable(path)}: larger than {MOST_BYTES:,} bytes; not changed")
        attributes = {
            attribute: os.getxattr(descriptor, attribute) for attribute in _attributes(descriptor)
        }
        return _entry(path, FILE, found, content=content, attributes=attributes)
    finally:
        os.close(descriptor)


def _attributes(descriptor: int) -> list[str]:
    try:
        return sorted(os.listxattr(descriptor))
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise


def _entry(path: str, kind: str, found: os.stat_result, **more: Any) -> Entry:
    return Entry(
        path,
        kind,
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=found.st_mtime_ns,
        **more,
    )


def same_content(one: Entry, other: Entry) -> bool:
    """Same kind with the same content or target; owner and times are not compared."""
    return (one.kind, one.content, one.target) == (other.kind, other.content, other.target)


def entry_json(entry: Entry) -> dict[str, Any]:
    """For the journal."""
    return {
        **{field.name: getattr(entry, field.name) for field in fields(entry)},
        "content": base64.b64encode(entry.content).decode("ascii"),
        "attributes": {
            name: base64.b64encode(value).decode("ascii")
            for name, value in entry.attributes.items()
        },
    }


def entry_from_json(value: Mapping[str, Any]) -> Entry:
    """The inverse of `entry_json`; `CommandError` if it is malformed."""
    try:
        attributes = {
            str(name): base64.b64decode(attribute, validate=True)
            for name, attribute in value["attributes"].items()
        }
        entry = Entry(
            path=value["path"],
            kind=value["kind"],
            content=base64.b64decode(value["content"], validate=True),
            target=value["target"],
            mode=int(value["mode"]),
            uid=int(value["uid"]),
            gid=int(value["gid"]),
            mtime_ns=int(value["mtime_ns"]),
            attributes=attributes,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"malformed file entry in the journal: {error}") from None
    if entry.kind not in (FILE, LINK, DIRECTORY, OTHER) or not isinstance(entry.path, str):
        raise CommandError("malformed file entry in the journal")
    return entry


def unit_entries(names: Iterable[str]) -> list[Entry]:
    """All entries of a unit with these names; directories come before their contents."""
    wanted = frozenset(names)
    found: list[Entry] = []
    size = 0
    for directory in UNIT_DIRECTORIES:
        for path in _paths(directory, wanted):
            entry = read_entry(path)
            if entry is None:  # removed meanwhile
                continue
            found.append(entry)
            size += len(entry.content)
            if len(found) > MOST_ENTRIES or size > MOST_TOTAL_BYTES:
                raise CommandError(
                    f"{printable(min(wanted))}: more than {MOST_ENTRIES:,} entries or"
                    f" {MOST_TOTAL_BYTES >> 20} MiB in {directory}; too much to save for an undo"
                )
    return found


def enabling_links(entries: Iterable[Entry]) -> list[Entry]:
    """Links by which other units start it, and its aliases: what *disable* removes."""
    return [
        entry
        for entry in entries
        if entry.kind == LINK
        and not entry.masks
        and (os.path.dirname(entry.path).endswith(DEPENDENCIES) or _is_alias(entry))
    ]


def _paths(directory: str, names: frozenset[str]) -> Iterator[str]:
    if read_entry(directory) is not None:
        yield directory
    for name in _names(directory):
        path = f"{directory}/{name}"
        if name in names or _leads_to(path, names):
            yield path
        elif name.endswith(".d") and name.removesuffix(".d") in names:
            yield path
            yield from (f"{path}/{other}" for other in _names(path))
        elif name.endswith(DEPENDENCIES):
            yield from (f"{path}/{other}" for other in _names(path) if other in names)


def _leads_to(path: str, names: frozenset[str]) -> bool:
    """A link to a unit with one of these names may be an alias systemd has not loaded."""
    try:
        return os.path.basename(os.readlink(path)) in names
    except OSError:
        return False


def _is_alias(entry: Entry) -> bool:
    """A link directly in a configuration directory whose target has another name. A link with the
    same name ("linked") or from an instance to its template is the unit's own file."""
    name, target = entry.path.rpartition("/")[2], os.path.basename(entry.target)
    return name != target and template_of(name) != target


def template_of(name: str) -> str:
    """The template of an instance; the name itself if it is not an instance.

    >>> template_of("getty@tty1.service"), template_of("ssh.service")
    ('getty@.service', 'ssh.service')
    """
    head, at, tail = name.partition("@")
    return f"{head}@.{tail.rpartition('.')[2]}" if at else name


def _names(directory: str) -> list[str]:
    """Names in a real directory; a link to a directory counts as empty."""
    entry = read_entry(directory)
    if entry is None or entry.kind != DIRECTORY:
        return []
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CommandError(f"{printable(directory)}: {error.strerror}") from None
