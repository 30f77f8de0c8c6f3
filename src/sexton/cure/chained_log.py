"""An append-only log in which each entry contains the hash of the one before.

One JSON object per line::

    {"seq": 7, "prev": "<hash of entry 6>", …, "hash": "<SHA-256 of this line before its hash>"}

So an entry that was changed, removed, inserted or moved is found. Whoever may write the file can
rewrite all of it: keep the hash of a late entry elsewhere and compare (`verify(…, known=HASH)`).
Entries removed at the end are found by ``NAME.head``, which holds the number and the hash of the
last entry.

A line that a crash cut off stays; if only its newline is missing, it is an entry. The next entry
stands on a line of its own and names it by its hash (`torn`), so that a changed entry cannot pass
for one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

NOTHING = "0" * 64
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_END = re.compile(rb',"hash":"([0-9a-f]{64})"\}$')
_HEAD = re.compile(r"([0-9]{1,18}) ([0-9a-f]{64})\n")
_MOST_LINE = 1 << 20
HEAD = ".head"


class Entry(NamedTuple):
    """One entry of the log, and its place in the chain."""

    seq: int
    prev: str
    hash: str
    content: Mapping[str, Any]


def entry_of(line: bytes) -> Entry | None:
    """The entry on a line (without its newline) whose hash is right; `None` if there is none."""
    end = _END.search(line)
    if end is None or hashlib.sha256(line[: end.start()] + b"}").hexdigest() != end[1].decode():
        return None
    try:
        content = json.loads(line)
        seq, prev = content["seq"], content["prev"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(seq) is not int or not isinstance(prev, str):
        return None
    return Entry(seq, prev, end[1].decode(), content)


def append(directory: int, name: str, content: Mapping[str, Any]) -> bool:
    """Append one entry; it is synced to disk when this returns. True if the file is new."""
    with _locked(directory, name) as log:
        size = os.fstat(log).st_size
        seq, prev, torn = _end_of(directory, name, log, size)
        apart = b"\n" if size and os.pread(log, 1, size - 1) != b"\n" else b""
        place: dict[str, Any] = {"seq": seq + 1, "prev": prev}
        if torn:
            place["torn"] = hashlib.sha256(torn).hexdigest()
        line = json.dumps({**place, **content}, separators=(",", ":")).encode("ascii")
        digest = hashlib.sha256(line).hexdigest()
        whole = line[:-1] + f',"hash":"{digest}"}}\n'.encode("ascii")
        _write(log, apart + whole)
        os.fsync(log)
        _write_head(directory, name, f"{seq + 1} {digest}\n")
    return size == 0


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


@contextmanager
def _locked(directory: int, name: str) -> Iterator[int]:
    """The open log; who else appends waits."""
    log = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(log).st_mode):
            raise OSError(0, "not a regular file")
        fcntl.flock(log, fcntl.LOCK_EX)
        yield log
    finally:
        os.close(log)


def _end_of(directory: int, name: str, log: int, size: int) -> tuple[int, str, bytes]:
    """Number and hash of the last entry, and what crashes left behind it.

    An entry that its head file knows and the log does not was written and is gone: the next one
    follows it all the same, so that `verify` finds the gap.
    """
    start = max(0, size - 2 * _MOST_LINE)
    lines = os.pread(log, size - start, start).splitlines(keepends=True)
    torn: list[bytes] = []
    last: Entry | None = None
    while lines and last is None:
        line = lines.pop()
        last = entry_of(line.removesuffix(b"\n"))
        if last is None:
            torn.insert(0, line)
    seq, prev = (last.seq, last.hash) if last is not None else (0, NOTHING)
    head = _HEAD.fullmatch(_read_head(directory, name) or "")
    if head is not None and int(head[1]) > seq:
        seq, prev = int(head[1]), head[2]
    return seq, prev, b"".join(torn)


def _read_head(directory: int, name: str) -> str | None:
    try:
        descriptor = os.open(f"{name}{HEAD}", os.O_RDONLY | _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(200).decode("ascii", "replace")


def _write_head(directory: int, name: str, content: str) -> None:
    """Complete or not at all; after a crash before it, the head of the entry before is true too."""
    fresh = f"{name}{HEAD}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
    descriptor = os.open(fresh, flags, 0o600, dir_fd=directory)
    try:
        _write(descriptor, content.encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(fresh, f"{name}{HEAD}", src_dir_fd=directory, dst_dir_fd=directory)


class Damage(NamedTuple):
    """Something that is not as it was written; `line` counts from 1, 0 is the whole file."""

    line: int
    what: str


@dataclass(slots=True)
class Checked:
    """What a check found. `torn` counts lines that a crash cut off, which are no damage."""

    entries: int = 0
    head: str = NOTHING
    torn: int = 0
    damage: list[Damage] = field(default_factory=list)


#: More are the same damage over and over.
_MOST_DAMAGE = 100


def verify(log: IO[bytes], head: str | None, known: str = "") -> Checked:
    """Check a whole log. `head` is the content of its head file; `known` the hash (or its first
    digits) of an entry that must be in it."""
    found = Checked()
    anchor = _anchor(found, head)
    seen_known = not known
    broken: list[bytes] = []
    number = last = 0
    while line := log.readline(_MOST_LINE + 1):
        number += 1
        entry = entry_of(line.removesuffix(b"\n"))
        if entry is None:
            if len(broken) < _MOST_DAMAGE:
                broken.append(line)
            continue
        _link(found, entry, number, broken)
        broken, last = [], entry.seq
        found.entries += 1
        found.head = entry.hash
        seen_known = seen_known or entry.hash.startswith(known)
        if anchor is not None and entry.seq == anchor[0] and entry.hash != anchor[1]:
            _damaged(found, number, f"entry {entry.seq} is another one than was written")
    if broken:
        if anchor is None and broken[-1].endswith(b"\n"):  # no crash ends in a newline
            _damaged(found, number, "changed or not an entry")
        else:
            found.torn += 1
    if anchor is not None and last < anchor[0]:
        _damaged(found, 0, f"ends with entry {last}, but entry {anchor[0]} was written")
    if not seen_known:
        _damaged(found, 0, f"no entry has the hash {known}")
    return found


def _anchor(found: Checked, head: str | None) -> tuple[int, str] | None:
    if head is None:
        return None
    match = _HEAD.fullmatch(head)
    if match is None:
        _damaged(found, 0, "its head file was changed")
        return None
    return int(match[1]), match[2]


def _link(found: Checked, entry: Entry, number: int, broken: list[bytes]) -> None:
    """Whether an entry follows the one before, across what crashes cut off."""
    torn = entry.content.get("torn")
    if broken:
        whole = b"".join(broken)
        if torn in (hashlib.sha256(whole).hexdigest(), hashlib.sha256(whole[:-1]).hexdigest()):
            found.torn += 1
        else:
            _damaged(found, number - len(broken), "changed or not an entry")
    elif torn is not None:
        _damaged(found, number, "what a crash cut off before it was removed")
    if entry.prev != found.head:
        what = f"entry {entry.seq} does not follow the one before it"
        _damaged(found, number, f"{what}: one was changed, removed, inserted or moved")


def _damaged(found: Checked, line: int, what: str) -> None:
    if len(found.damage) < _MOST_DAMAGE:
        found.damage.append(Damage(line, what))
