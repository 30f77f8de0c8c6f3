"""Lists files on tmpfs that may keep zombies alive, with size, owner and age; deletes nothing.

A dying cgroup with pages of a tmpfs file (shmem) stays until the file is deleted or its pages are
swapped out. Without swap, reclaim cannot help. The kernel does not show which file is charged to
which cgroup, so these are the largest files and directories on the node's tmpfs mounts, the small
ones of each mount together, and System V segments. Mounts inside a container's mount namespace are
not visible from here.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import time
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any, NamedTuple

from sexton.cure.remedy import StepContext, nothing_to_undo
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.plan import Step
from sexton.model.text import count, printable, size
from sexton.model.text import seconds as duration

RECLAIMS = False
undo = nothing_to_undo
#: Limits of the walk, so that it does not load the node; tmpfs is memory, so a walk is quick.
MOST_ENTRIES, MOST_S = 200_000, 3.0
SHOWN = 8
#: Smaller entries of a mount are listed together: one page each holds a thousand zombies.
LEAST_BYTES = 1 << 20
_SYSTEM = ("/run", "/sys", "/proc", "/dev")
_OCTAL = re.compile(r"\\([0-7]{3})")


class TmpfsEntry(NamedTuple):
    """A file or directory at the top of a tmpfs with everything below it, the small ones of a mount
    (`small`), or a System V segment. `uid` is `None` if they have several owners."""

    path: str
    bytes: int
    files: int
    uid: int | None
    written_unix: float
    segment: int | None = None
    small: bool = False

    def line(self, now: float) -> str:
        many = f" in {count(self.files, 'file')}" if self.files > 1 else ""
        many += f" of less than {size(LEAST_BYTES)}" if self.small else ""
        age = duration(max(now - self.written_unix, 0))
        whose = "several owners" if self.uid is None else f"owner {_user(self.uid)}"
        return f"{self.path}: {size(self.bytes)}{many}, {whose}, last written {age} ago"


class TmpfsUse(NamedTuple):
    """The largest entries first; `whole` is false if the walk was cut short."""

    entries: tuple[TmpfsEntry, ...]
    whole: bool


def find_tmpfs_use(host: Host) -> TmpfsUse:
    """Large entries on the tmpfs mounts of this process; limited in number and time."""
    walk = _Walk(time.monotonic() + MOST_S)
    found = [entry for point in _mount_points(host) for entry in walk.entries(point)]
    found += _segments(host)
    large = [entry for entry in found if entry.bytes >= LEAST_BYTES]
    return TmpfsUse(tuple(sorted(large, key=lambda entry: -entry.bytes)), not walk.cut)


def propose(identity: str, found: TmpfsUse, held: str) -> Step:
    """The step, which is only printed; `held` describes the memory charged to zombies."""
    shown = found.entries[:SHOWN]
    more = len(found.entries) - len(shown)
    which = (
        f"the {len(shown)} largest of {len(found.entries)} follow" if more else "these are large"
    )
    if not shown:
        which = "none that is visible here has 1 MiB or more"
    cut = "" if found.whole else "; too many to look at all of them"
    return Step(
        id=identity,
        remedy="delete_tmpfs_files",
        title="by hand: delete the tmpfs files that hold them",
        target="tmpfs",
        risk="high",
        risk_why=f"{held}; the kernel does not say which files they are: {which}{cut}",
        preconditions=(),
        effect="printed only: Sexton deletes no file",
        cannot_undo="the content of the files",
        undo="none",
        proof=(),
        commands=tuple(_commands(shown)),
        parameters={},
        automatic=False,
    )


def _commands(entries: Sequence[TmpfsEntry]) -> Iterator[str]:
    now = time.time()
    for entry in entries:
        yield f"# {entry.line(now)}"
        if entry.segment is not None:
            yield f"ipcs -m -i {entry.segment}   # nattch 0: no process uses it"
            yield f"ipcrm -m {entry.segment}"
        elif _is_system(entry.path):
            yield f"ls -la {quote(entry.path)}   # the system's own: its service deletes it"
        elif entry.small:
            yield f"ls -lat {quote(entry.path)}; fuser -vm {quote(entry.path)}   # in use: leave it"
            yield f"find {quote(entry.path)} -xdev -type f -size -{LEAST_BYTES >> 10}k -delete"
        else:
            # fuser alone says nothing about the files in a directory.
            every = f"find {quote(entry.path)} -xdev -type f"
            yield f"{every} -exec fuser -v {{}} +   # in use: leave it"
            yield f"rm -r -- {quote(entry.path)}"


def _is_system(path: str) -> bool:
    if path == "/dev/shm" or path.startswith("/dev/shm/"):
        return False
    return any(path == top or path.startswith(f"{top}/") for top in _SYSTEM)


def _user(uid: int) -> str:
    try:
        return f"{printable(pwd.getpwuid(uid).pw_name)} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _mount_points(host: Host) -> list[str]:
    """Every tmpfs once, though it may be mounted in several places."""
    try:
        lines = text(host.files, "/proc/self/mountinfo").splitlines()
    except SourceError:
        return []
    by_device: dict[str, str] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 5 and after.startswith("tmpfs ") and fields[3] == "/":
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            by_device.setdefault(fields[2], point)
    return list(by_device.values())


class _Walk:
    """Sums sizes below the entries of a mount, without leaving it or following links."""

    def __init__(self, end_s: float) -> None:
        self._end_s = end_s
        self._seen = 0
        self._inodes: set[tuple[int, int]] = set()
        self.cut = False

    def entries(self, point: str) -> Iterator[TmpfsEntry]:
        try:
            device = os.lstat(point).st_dev
            names = sorted(os.listdir(point))
        except OSError:
            return
        small: list[TmpfsEntry] = []
        for name in names:
            path = f"{point.rstrip('/')}/{name}"
            total = [0, 0, 0.0]
            uid = self._add(path, device, total)
            if uid is not None and total[1]:
                entry = TmpfsEntry(path, int(total[0]), int(total[1]), uid, total[2])
                if entry.bytes >= LEAST_BYTES:
                    yield entry
                else:
                    small.append(entry)
        if small:
            owners = {entry.uid for entry in small}
            yield TmpfsEntry(
                point,
                sum(entry.bytes for entry in small),
                sum(entry.files for entry in small),
                owners.pop() if len(owners) == 1 else None,
                max(entry.written_unix for entry in small),
                small=True,
            )

    def _add(self, top: str, device: int, total: list[float]) -> int | None:
        """Add bytes, files and the last write time to `total`; returns the owner."""
        owner = None
        pending = [top]
        while pending:
            path = pending.pop()
            self._seen += 1
            if self._seen > MOST_ENTRIES or time.monotonic() > self._end_s:
                self.cut = True
                break
            try:
                about = os.lstat(path)
                if about.st_dev != device:
                    continue
                owner = about.st_uid if owner is None else owner
                if stat.S_ISDIR(about.st_mode):
                    pending += [f"{path}/{name}" for name in os.listdir(path)]
                elif (about.st_dev, about.st_ino) not in self._inodes:
                    self._inodes.add((about.st_dev, about.st_ino))
                    total[0] += about.st_blocks * 512
                    total[1] += 1
                    total[2] = max(total[2], about.st_mtime)
            except OSError:  # deleted meanwhile
                continue
        return owner


def _segments(host: Host) -> Iterator[TmpfsEntry]:
    """System V segments, which are tmpfs files without a name."""
    try:
        lines = text(host.files, "/proc/sysvipc/shm").splitlines()
    except SourceError:
        return
    header, rows = (lines[0].split(), lines[1:]) if lines else ([], [])
    for row in rows:
        about = dict(zip(header, row.split(), strict=False))
        try:
            resident = int(about.get("rss", about["size"]))
            identity, uid = int(about["shmid"]), int(about["uid"])
            written = max(float(about["dtime"]), float(about["atime"]), float(about["ctime"]))
        except (KeyError, ValueError):
            continue
        attached = "no process uses it" if about.get("nattch") == "0" else "in use"
        name = f"System V segment {identity} ({attached})"
        yield TmpfsEntry(name, resident, 1, uid, written, identity)


def prepare(step: Step, _context: StepContext) -> dict[str, Any]:
    raise CommandError(f"step {step.id}: Sexton deletes no file")


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    return prepare(step, context)
