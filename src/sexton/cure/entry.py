r"""What lies at a path, exactly: enough to put it back byte for byte, or to see that it is as ever.

Read without following any link. `mtime_ns`, owner, mode and extended attributes (an SELinux label,
an ACL) belong to it; the times of the directory around it do not, because systemd goes by them to
notice a change.

>>> made = Entry("/etc/systemd/system/a.service", LINK, target="/dev/null", mtime_ns=7)
>>> from_json(as_json(made)) == made
True
"""

from __future__ import annotations

import base64
import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sexton.cure.opening import opened_parent
from sexton.errors import CommandError
from sexton.model.text import printable

FILE = "file"
LINK = "link"
DIRECTORY = "directory"
#: A device, a FIFO, a socket: named, never read and never put back.
OTHER = "other"
#: No unit file or drop-in comes near this.
MOST_BYTES = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


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


def look(path: str) -> Entry | None:
    """What is there now; `None` where nothing is."""
    try:
        with opened_parent(path) as (parent, name):
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
            raise CommandError(f"{printable(path)}: larger than {MOST_BYTES:,} bytes; left alone")
        attributes = {each: os.getxattr(descriptor, each) for each in _attributes(descriptor)}
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


def same_thing(one: Entry, other: Entry) -> bool:
    """The same kind with the same content or target, whoever owns it and since when."""
    return (one.kind, one.content, one.target) == (other.kind, other.content, other.target)


def as_json(entry: Entry) -> dict[str, Any]:
    """For the journal."""
    return {
        "path": entry.path,
        "kind": entry.kind,
        "content": base64.b64encode(entry.content).decode("ascii"),
        "target": entry.target,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "mtime_ns": entry.mtime_ns,
        "attributes": {
            name: base64.b64encode(value).decode("ascii")
            for name, value in entry.attributes.items()
        },
    }


def from_json(value: Mapping[str, Any]) -> Entry:
    """The inverse; `CommandError` where it is none."""
    try:
        attributes = {
            str(name): base64.b64decode(each, validate=True)
            for name, each in value["attributes"].items()
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
        raise CommandError(f"the journal holds no entry where one was expected: {error}") from None
    if entry.kind not in (FILE, LINK, DIRECTORY, OTHER) or not isinstance(entry.path, str):
        raise CommandError("the journal holds no entry where one was expected")
    return entry
