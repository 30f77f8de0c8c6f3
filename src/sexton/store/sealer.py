"""Sealing open segments, in this process or in the recorder's child.

``python -m sexton.store.sealer DIR LAST AGE-S MOST-BYTES KEY TASK…`` is the child: Arrow is loaded
there and not in the process that samples. Tasks are "take-over" (clean up after a killed recorder),
"seal" (open segments up to number LAST) and "compact" (finished hours). It runs on one thread with
bounded memory and CPU time and without a network (`sexton.sandbox`), reads KEY (the file to sign
with, or "") before it confines itself, and prints its `Outcome` as one line of JSON on standard
error. A lock on ``segments/`` keeps a second child out; it ends with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sexton import sandbox
from sexton.errors import StoreError, first_line
from sexton.model.text import count, printable
from sexton.store.layout import ASIDE, DIRECTORIES, segments_in
from sexton.store.retention import Limits, drop_replaced

if TYPE_CHECKING:
    from sexton.store.signing import Signer

#: Beyond what the libraries reserve: the systemd unit has 300 MB for the recorder and its children.
MEMORY_BYTES = 200 << 20
_MOST_CPU_S = 600
#: No segment has a higher number.
ALL = 1 << 62


@dataclass(slots=True)
class Outcome:
    """Segments sealed and their bytes, hours compacted, and problems.

    `error` is the errno that kept a segment from being sealed, 0 if there is none.
    """

    sealed: int = 0
    bytes: int = 0
    compacted: int = 0
    notes: list[str] = field(default_factory=list)
    error: int = 0
    why: str = ""


class Sealer(Protocol):
    """Seals the open segments that the writer has finished. Called from the writer's thread."""

    def start(self, last: int) -> None:
        """Seal the open segments up to number `last`, now or soon."""

    def done(self) -> list[Outcome]:
        """Outcomes since the last call; does not wait."""

    def finish(self) -> list[Outcome]:
        """Seal everything, and wait for it."""


class InProcessSealer:
    """Seals in this process, at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._outcomes: list[Outcome] = []

    def start(self, last: int) -> None:
        self._outcomes.append(seal_finished(self._directory, last))

    def done(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def finish(self) -> list[Outcome]:
        return [*self.done(), seal_finished(self._directory)]


def seal_finished(
    directory: Path, last: int = ALL, apart: bool = False, signer: Signer | None = None
) -> Outcome:
    """Seal the open segments up to number `last`; the recorder writes into the one after it.

    With `apart`, each in a child process: a segment that crashes its reader is set aside, so that
    the others, and those of later recorders, are still sealed.
    """
    done = Outcome()
    for name in segments_in(directory / "open"):
        if name.sequence > last:
            continue
        opened, segments = directory / "open" / name.text, directory / "segments"
        one = (_in_child if apart else _seal)(opened, segments, signer)
        done.sealed += one.sealed
        done.bytes += one.bytes
        done.notes += one.notes
        if one.error:
            done.error, done.why = one.error, one.why
    return done


def _seal(opened: Path, segments: Path, signer: Signer | None) -> Outcome:
    """Seal one segment. An error of the disk leaves it open, to be tried again; any other is the
    segment's own and would come back each time."""
    import pyarrow as pa

    from sexton.store.sealed import seal

    try:
        whole, problems = seal(opened, segments, signer)
    except (OSError, pa.ArrowException, MemoryError) as error:
        why = first_line(error)
        number = getattr(error, "errno", None)
        if not number:
            return _aside(opened, segments, why)
        note = printable(f"{opened.name}: left open, cannot be sealed: {why}")
        return Outcome(notes=[note], error=number, why=why)
    done = Outcome(notes=[printable(problem) for problem in problems])
    if whole is not None:
        done.sealed = 1
        done.bytes = sum(path.stat().st_size for path in whole.iterdir() if path.is_file())
    return done


def _aside(opened: Path, segments: Path, why: str) -> Outcome:
    """Set an unreadable segment aside, so that the next attempt does not meet it again."""
    from sexton.store.sealed import set_aside

    try:
        kept = set_aside(opened, segments / opened.name)
    except OSError as error:
        kept = [f"{opened.name}: {error.strerror}"]
    notes = [f"{opened.name}: cannot be read: {why}", *kept]
    return Outcome(notes=[printable(note) for note in notes])


def _in_child(opened: Path, segments: Path, signer: Signer | None) -> Outcome:
    import sexton.store.sealed  # noqa: F401 - before the fork: the next child has it already

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            with open(writer, "w") as stream:
                json.dump(asdict(_seal(opened, segments, signer)), stream)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader) as stream:
        said = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return Outcome(**json.loads(said))
    if code > 0:
        why = f"its reader failed (exit status {code}): damaged or hostile input, or a bug"
    else:
        why = sandbox.cause_of_death(-code, opened.name)
    if not why:  # killed by another process
        return Outcome(error=errno.EIO, why=f"sealing {opened.name} failed (exit status {code})")
    return _aside(opened, segments, why)


def take_over(directory: Path, apart: bool = False, signer: Signer | None = None) -> list[str]:
    """Clean up after a killed recorder: remove half-written files, seal open segments.

    Only for the process that holds the `Lock`, or its child. A segment that cannot be sealed now
    (full disk) stays open and readable until the next start. Returns a line for each thing found.
    """
    notes = []
    removed = sum(_remove_aside(directory / place) for place in ("", *DIRECTORIES))
    if removed:
        notes.append(f"removed {count(removed, 'half-written leftover')}")
    drop_replaced(directory / "segments")
    done = seal_finished(directory, apart=apart, signer=signer)
    notes += done.notes
    if done.sealed:
        notes.append(f"sealed {count(done.sealed, 'segment')} that an earlier recorder left open")
    return notes


def needs_take_over(directory: Path) -> bool:
    """Whether an earlier recorder left anything to clean up."""
    if segments_in(directory / "open"):
        return True
    for place in ("", *DIRECTORIES):
        try:
            if any(name.startswith(ASIDE) for name in os.listdir(directory / place)):
                return True
        except OSError:
            continue
    return False


def _remove_aside(place: Path) -> int:
    """Delete everything with a temporary name, without following links; returns how many."""
    try:
        with os.scandir(place) as entries:
            found = [entry for entry in entries if entry.name.startswith(ASIDE)]
    except OSError:
        return 0
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
    return sum(not os.path.lexists(entry.path) for entry in found)


def main(arguments: Sequence[str]) -> int:
    directory, last = Path(arguments[0]), int(arguments[1])
    limits, tasks = Limits(float(arguments[2]), int(arguments[3])), arguments[5:]
    lock = os.open(directory / "segments", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the child of a killed recorder may still be exiting
    done = Outcome()
    signer = None
    try:
        signer = signer_of(directory, arguments[4])
    except StoreError as error:  # an unsigned segment is worth more than none
        done.notes.append(f"not signed: {error}")
    _bound()
    if "take-over" in tasks:
        done.notes += take_over(directory, apart=True, signer=signer)
    if "seal" in tasks:
        sealed = seal_finished(directory, last, apart=True, signer=signer)
        sealed.notes = done.notes + sealed.notes
        done = sealed
    if "compact" in tasks:
        from sexton.store.compaction import compact

        compacted = compact(directory, limits, signer=signer)
        done.compacted = compacted.segments
        done.bytes += compacted.bytes
        done.notes += compacted.problems
    print(json.dumps(asdict(done)), file=sys.stderr, flush=True)
    return 0


def signer_of(directory: Path, key: str) -> Signer | None:
    """What signs with the key in this file; `None` without one. `StoreError` if it cannot be used.

    For a child that is going to confine itself: the key is read here, and nowhere else.
    """
    if not key:
        return None
    from sexton.store.signing import Signer, read_private

    return Signer(directory, read_private(key))


def _bound() -> None:
    """One thread, bounded memory and CPU time, no network: segments may come from elsewhere."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    sandbox.confine_child(MEMORY_BYTES, _MOST_CPU_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
