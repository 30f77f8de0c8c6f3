"""The only code that changes a host.

What it can do at all is this short list, and each is checked again here whatever its caller says:

- an order to the kernel (`memory.force_empty`, `memory.reclaim` in a mounted cgroup hierarchy,
  ``/proc/sys/vm/drop_caches``), given by a child that can be killed (`sexton.cure.ordering`);
- `rmdir` of a cgroup, which the kernel refuses while anything lives in it;
- files, links and directories right below systemd's configuration directories, or one level down;
- four verbs of `systemctl`, on one unit whose name is one.

Nothing is ever overwritten: a file or link is made where nothing is, and removed only if it is what
the caller believes it to be. A change to a directory is on the disk before the call returns, and a
file appears whole or not at all. Paths are opened component by component without following a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sexton.cure.entry import DIRECTORY, FILE, LINK, Entry, look
from sexton.cure.opening import components, opened_parent
from sexton.cure.ordering import Ordered, Terms, give
from sexton.errors import CommandError, SourceError, SourceTimeout
from sexton.host.host import Host
from sexton.host.runner import run
from sexton.model.text import printable
from sexton.sources.cgroupfs.layout import cgroup_mounts

UNIT_DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/etc/systemd/system",
    "/run/systemd/system",
)
ORDERS = ("memory.force_empty", "memory.reclaim")
DROP_CACHES = "/proc/sys/vm/drop_caches"
VERBS = ("stop", "start", "daemon-reload", "reset-failed")
#: systemd's rule for a unit's name (unit_name_is_valid in its unit-name.c): nothing a shell, a
#: pattern or a path could make more of.
UNIT_NAME = re.compile(
    r"[A-Za-z0-9:_.\\@-]{1,240}\.(service|socket|timer|path|scope|slice|target|mount|automount|swap)",
    re.ASCII,
)
_TEMPORARY = ".sexton-new"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unit_name(name: str) -> str:
    """`name` if it is a unit's.

    >>> unit_name("getty@tty1.service")
    'getty@tty1.service'
    >>> unit_name("*.service")
    Traceback (most recent call last):
    sexton.errors.CommandError: '*.service' is not a unit's name
    """
    if UNIT_NAME.fullmatch(name) is None or name.startswith((".", "@")) or name.count("@") > 1:
        raise CommandError(f"{printable(name)!r} is not a unit's name")
    return name


class Writer(Protocol):
    """What a remedy may do. `like` is how an entry was before: its mode, owner, time, label."""

    def order(self, path: str, value: str, terms: Terms) -> Ordered:
        """Write `value` to a control file, in a child that can be killed."""

    def remove_cgroup(self, path: str) -> None:
        """`rmdir` an empty cgroup, by its path in the file system."""

    def write_file(self, path: str, content: bytes, like: Entry | None = None) -> None:
        """Make a file where nothing is."""

    def make_link(self, path: str, target: str, like: Entry | None = None) -> None:
        """Make a symbolic link where nothing is."""

    def make_directory(self, path: str, like: Entry | None = None) -> None:
        """Make a directory where nothing is."""

    def remove_file(self, path: str, content: bytes) -> None:
        """Remove a file with this very content."""

    def remove_link(self, path: str, target: str) -> None:
        """Remove a link with this very target."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sweep(self, path: str) -> None:
        """Remove what a `write_file` of this path left if it was killed half-way."""

    def systemctl(self, *args: str, deadline_s: float = 30.0) -> str:
        """One of `VERBS`; what it printed."""


class LiveWriter:
    """Changes this machine."""

    def __init__(self, host: Host, unit_directories: tuple[str, ...] = UNIT_DIRECTORIES) -> None:
        host.require_live("/")
        self._host = host
        self._directories = unit_directories

    def order(self, path: str, value: str, terms: Terms) -> Ordered:
        if path != DROP_CACHES:
            *_, name = self._in_cgroups(path)
            if name not in ORDERS:
                raise CommandError(f"{printable(path)}: no order that is ever given; refused")
        with _telling(path), opened_parent(path) as (parent, name):
            # No O_CREAT and no O_TRUNC: it is there, or there is no such order on this kernel.
            descriptor = os.open(
                name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=parent
            )
        try:
            return give(descriptor, value, terms)
        finally:
            os.close(descriptor)

    def remove_cgroup(self, path: str) -> None:
        self._in_cgroups(path)
        with _telling(path), opened_parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def write_file(self, path: str, content: bytes, like: Entry | None = None) -> None:
        self._among_units(path)
        with _telling(path), opened_parent(path) as (parent, name), _whole(name, parent) as new:
            descriptor = os.open(new, _CREATE, 0o600, dir_fd=parent)
            try:
                _fill(descriptor, content, like or Entry(path, FILE))
            finally:
                os.close(descriptor)

    def make_link(self, path: str, target: str, like: Entry | None = None) -> None:
        self._among_units(path)
        with _telling(path), opened_parent(path) as (parent, name), _whole(name, parent) as new:
            os.symlink(target, new, dir_fd=parent)
            if like is not None:
                _dress(new, parent, like)

    def make_directory(self, path: str, like: Entry | None = None) -> None:
        if path not in self._directories:
            self._among_units(path)
        with _telling(path), opened_parent(path) as (parent, name):
            os.mkdir(name, 0o755, dir_fd=parent)
            if like is not None:
                os.chmod(name, like.mode, dir_fd=parent)
                os.chown(name, like.uid, like.gid, dir_fd=parent, follow_symlinks=False)
            os.fsync(parent)

    def remove_file(self, path: str, content: bytes) -> None:
        self._remove(path, Entry(path, FILE, content=content))

    def remove_link(self, path: str, target: str) -> None:
        self._remove(path, Entry(path, LINK, target=target))

    def remove_directory(self, path: str) -> None:
        if path not in self._directories or not path.endswith(".control"):
            self._among_units(path)
        with _telling(path), opened_parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)
            os.fsync(parent)

    def sweep(self, path: str) -> None:
        self._among_units(path)
        with contextlib.suppress(FileNotFoundError), opened_parent(path) as (parent, name):
            _sweep(name, parent)

    def systemctl(self, *args: str, deadline_s: float = 30.0) -> str:
        verb, options, units = _split(args)
        argv = ("systemctl", "--no-ask-password", "--no-pager", verb, *options, "--", *units)
        shown = f"systemctl {' '.join(args)}"
        try:
            ended = run(argv, deadline_s, limit=1 << 16)
        except SourceTimeout:
            raise CommandError(
                f"{shown}: not done within {deadline_s:g} s; systemd goes on with it"
            ) from None
        except SourceError as error:
            raise CommandError(f"{shown}: {error.detail}") from None
        if ended.status != 0:
            said = ended.errors.decode("utf-8", "replace").strip().partition("\n")[0]
            raise CommandError(f"{shown}: {printable(said) or f'exit {ended.status}'}")
        return ended.output.decode("utf-8", "replace")

    def _remove(self, path: str, believed: Entry) -> None:
        self._among_units(path)
        found = look(path)
        if found is None or found.kind == DIRECTORY:
            raise CommandError(f"{printable(path)}: no {believed.kind} is there any more")
        if (found.kind, found.content, found.target) != (
            believed.kind,
            believed.content,
            believed.target,
        ):
            raise CommandError(f"{printable(path)}: is not what it was; left as it is")
        with _telling(path), opened_parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)
            os.fsync(parent)

    def _among_units(self, path: str) -> None:
        """Right below a configuration directory of systemd, or one level down."""
        parts = components(path)
        for directory in self._directories:
            top = components(directory)
            if parts[: len(top)] == top and len(parts) - len(top) in (1, 2):
                return
        raise CommandError(f"{printable(path)}: not a place of units; refused")

    def _in_cgroups(self, path: str) -> tuple[str, ...]:
        """The parts of `path` below the cgroup hierarchy it lies in, and on that file system."""
        parts = components(path)
        for mount in cgroup_mounts(self._host):
            top = components(mount.mount_point)
            if parts[: len(top)] == top and len(parts) > len(top):
                with _telling(path), opened_parent(path) as (parent, _):
                    if os.fstat(parent).st_dev != os.stat(mount.mount_point).st_dev:
                        continue  # another mount lies over it
                return parts[len(top) :]
        raise CommandError(f"{printable(path)}: in no cgroup hierarchy; refused")


class Deed(NamedTuple):
    """One thing that would be done."""

    verb: str
    path: str
    detail: str = ""


@dataclass(slots=True)
class DryWriter:
    """Does nothing, and remembers what it was asked. It sees the host as it is now, so that what
    would fail there for being absent or present is not found out."""

    deeds: list[Deed] = field(default_factory=list)

    def order(self, path: str, value: str, terms: Terms) -> Ordered:  # noqa: ARG002
        components(path)
        self.deeds.append(Deed("order", path, value))
        return Ordered("dry", 0, 0.0, 0.0)

    def remove_cgroup(self, path: str) -> None:
        self._note("remove cgroup", path)

    def write_file(self, path: str, content: bytes, like: Entry | None = None) -> None:  # noqa: ARG002
        self._note("write file", path, content.decode("utf-8", "surrogateescape"))

    def make_link(self, path: str, target: str, like: Entry | None = None) -> None:  # noqa: ARG002
        self._note("make link", path, target)

    def make_directory(self, path: str, like: Entry | None = None) -> None:  # noqa: ARG002
        self._note("make directory", path)

    def remove_file(self, path: str, content: bytes) -> None:  # noqa: ARG002
        self._note("remove file", path)

    def remove_link(self, path: str, target: str) -> None:
        self._note("remove link", path, target)

    def remove_directory(self, path: str) -> None:
        self._note("remove directory", path)

    def sweep(self, path: str) -> None:
        components(path)

    def systemctl(self, *args: str, deadline_s: float = 30.0) -> str:  # noqa: ARG002
        _split(args)
        self.deeds.append(Deed("systemctl", "", " ".join(args)))
        return ""

    def _note(self, verb: str, path: str, detail: str = "") -> None:
        components(path)
        self.deeds.append(Deed(verb, path, detail))


def _split(args: tuple[str, ...]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Verb, options and units of a call, each of a kind that is allowed."""
    if not args or args[0] not in VERBS:
        raise CommandError(f"systemctl {printable(' '.join(args))}: never done; refused")
    options = tuple(each for each in args[1:] if each == "--no-block")
    units = tuple(unit_name(each) for each in args[1:] if each != "--no-block")
    if bool(units) == (args[0] == "daemon-reload"):
        raise CommandError(f"systemctl {args[0]}: {'no ' if not units else ''}unit given; refused")
    return args[0], options, units


@contextlib.contextmanager
def _whole(name: str, parent: int) -> Iterator[str]:
    """A name to make something under; it gets its own `name` once it is whole, if that is free."""
    temporary = _sweep(name, parent)
    try:
        yield temporary
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        _sweep(name, parent)
    os.fsync(parent)


def _sweep(name: str, parent: int) -> str:
    """The name under which `name` is made, with nothing there."""
    temporary = f".{name}{_TEMPORARY}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    return temporary


def _fill(descriptor: int, content: bytes, like: Entry) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fchown(descriptor, like.uid, like.gid)
    os.fchmod(descriptor, like.mode)
    for name, value in like.attributes.items():
        os.setxattr(descriptor, name, value)
    if like.mtime_ns:
        os.utime(descriptor, ns=(like.mtime_ns, like.mtime_ns))
    os.fsync(descriptor)


def _dress(name: str, parent: int, like: Entry) -> None:
    os.chown(name, like.uid, like.gid, dir_fd=parent, follow_symlinks=False)
    if like.mtime_ns:
        times = (like.mtime_ns, like.mtime_ns)
        os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)


@contextlib.contextmanager
def _telling(path: str) -> Iterator[None]:
    """`OSError` as the one line a person can use."""
    try:
        yield
    except OSError as error:
        why = {
            errno.EEXIST: "something is there already; left as it is",
            errno.EBUSY: "still in use; the kernel refused",
            errno.ENOTEMPTY: "not empty; left as it is",
        }.get(error.errno or 0, error.strerror or str(error))
        raise CommandError(f"{printable(path)}: {why}") from None
