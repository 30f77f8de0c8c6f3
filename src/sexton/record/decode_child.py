"""The child that decodes: ``python -m sexton.record.decode_child DIR FILES [CACHE-BYTES [KEY]]``.

For each perf file: read it, resolve symbols, seal the result into the segment of its minutes,
delete it; one line on standard error reports the result (``done NAME SAMPLES BYTES``, ``waits NAME
[WHY]``, ``gone NAME``, ``failed NAME WHY``). `sexton.record.decoding` starts it and reads these.

It may be killed at any point. Before the annex is renamed into its segment nothing has changed;
after that the annex names the file it was made from, and the next child deletes that file. A lock
on ``stacks/``, which ends with the process, allows one child per recording.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import SextonError, StoreError, first_line
from sexton.sandbox import confine_child
from sexton.store.sealer import signer_of

if TYPE_CHECKING:
    from sexton.model.profile import Profile
    from sexton.profile.symbols.symbols import Symbols
    from sexton.store.signing import Signer

#: A child's own memory; a file of 1.1 million samples takes less.
MEMORY_BYTES = 200 << 20
_MOST_CPU_S = 300
_MOST_WORDS = 200
#: Bytes read for the symbols of one program, which are in memory beside the samples.
_MOST_PROGRAM = 32 << 20
#: Errors of the disk and not of the file: there may be room the next time.
_LATER = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
#: mallopt(3): freed blocks from this size on are returned to the kernel at once.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _LARGE = -3, -1, 128 << 10


class Request(NamedTuple):
    """One file: its name, its boot ("" if not the current one), about when it was written
    (monotonic seconds), and whether to wait for a segment that is still open."""

    name: str
    boot_id: str
    start_s: float
    end_s: float
    patient: bool


def main(arguments: list[str]) -> int:
    directory, requests = Path(arguments[0]), json.loads(arguments[1])
    signer = None
    with contextlib.suppress(StoreError):  # the child that seals reports it
        signer = signer_of(directory, "".join(arguments[3:]))
    _bound()
    lock = os.open(directory / "stacks", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another process is decoding here", file=sys.stderr)
        return 1
    decoder = Decoder(directory, *map(int, arguments[2:3]))
    decoder.signer = signer
    for request in requests:
        _say(decoder.answer(Request(*request)))
    return 0


def _bound() -> None:
    """One thread, bounded memory and CPU time; freed memory is returned at once.

    Arrow is loaded later, after decoding, when most of the memory is free again.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    with contextlib.suppress(AttributeError):  # another C library
        allocator = ctypes.CDLL(None).mallopt
        allocator(_MMAP_THRESHOLD, _LARGE)
        allocator(_TRIM_THRESHOLD, _LARGE)
    import numpy  # noqa: F401 - what it reserves is not counted as the file's

    # Programs of containers are read for their symbols: they are untrusted.
    confine_child(MEMORY_BYTES, _MOST_CPU_S, symbols=True)


def _say(words: str) -> None:
    print(words.replace("\n", " "), file=sys.stderr, flush=True)


class Decoder:
    """Decodes files of one recording; symbols are kept between them."""

    def __init__(self, directory: Path, cache_bytes: int = 16 << 20) -> None:
        self.directory = directory
        self._cache_bytes = cache_bytes
        self._symbols: dict[str, Symbols] = {}
        self.signer: Signer | None = None

    def answer(self, request: Request) -> str:
        """Decode one file; returns the line that reports the result."""
        try:
            words = self.decode(request)
        except FileNotFoundError as error:
            if error.filename is None or os.path.basename(str(error.filename)) != request.name:
                words = f"failed {request.name} {first_line(error)[:_MOST_WORDS]}"
            else:
                words = f"gone {request.name}"  # deleted by retention
        except MemoryError:
            words = f"failed {request.name} takes more than {MEMORY_BYTES >> 20} MB of memory"
        except (SextonError, OSError) as error:
            later = getattr(error, "errno", None) in _LATER
            result = "waits" if later else "failed"
            words = f"{result} {request.name} {first_line(error)[:_MOST_WORDS]}"
        gc.collect()
        return words

    def decode(self, request: Request) -> str:
        from sexton.store.annex import Origin, boot_at, home_of, sealed_from

        path = self.directory / "stacks" / request.name
        status = path.lstat()
        origin = Origin(request.name, status.st_size, status.st_mtime_ns)
        if sealed_from(self.directory, origin) is not None:  # a child was killed before deleting it
            path.unlink()
            return f"done {request.name} 0 0"
        boot_id = request.boot_id or boot_at(self.directory, status.st_mtime)
        home = home_of(self.directory, boot_id, (request.start_s, request.end_s))
        if (home.waits or home.path is None) and request.patient:
            return f"waits {request.name}"
        if home.path is None:
            return f"failed {request.name} no segment of its boot is left to seal it into"
        profile = self._profile(path, boot_id)
        if not len(profile):
            path.unlink()
            return f"done {request.name} 0 0"
        size = self._seal(profile, boot_id, origin)
        path.unlink()
        return f"done {request.name} {len(profile)} {size}"

    def _profile(self, path: Path, boot_id: str) -> Profile:
        from sexton.profile.decode import decode
        from sexton.profile.perf.perfdata import read_raw

        if boot_id not in self._symbols:
            self._symbols = {boot_id: self._named_by(boot_id)}
        return decode(read_raw(path), self._symbols[boot_id])

    def _named_by(self, boot_id: str) -> Symbols:
        from sexton.profile.symbols import SymbolOptions
        from sexton.profile.symbols.symbols import Symbols

        kallsyms = self.directory / "stacks" / f"kallsyms-{boot_id}.gz"
        known = str(kallsyms) if kallsyms.exists() else None
        return Symbols(
            SymbolOptions(
                kallsyms=known,
                cache=str(self.directory / "symbols"),
                most_bytes=_MOST_PROGRAM,
                cache_bytes=self._cache_bytes,
            )
        )

    def _seal(self, profile: Profile, boot_id: str, origin: Any) -> int:
        from sexton.profile.heat import heat_of

        heat = heat_of(profile)
        import pyarrow as pa

        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        from sexton.profile.recorded import annex_facts, annex_tables
        from sexton.store.annex import free_name, home_of, write_annex

        if profile.facts.clock.kind not in ("monotonic", "none"):
            raise StoreError(f"its clock is {profile.facts.clock.kind}, not the monotonic one")
        edges = [
            int(time_ns) // 1000 / 1e6 for time_ns in (profile.time_ns[0], profile.time_ns[-1])
        ]
        home = home_of(self.directory, boot_id, (edges[0], edges[1]))
        if home.path is None:
            raise StoreError("no segment of its boot is left to seal it into")
        header = {
            "boot_id": boot_id,
            "start": [edges[0], edges[0] + home.ahead_s],
            "end": [edges[1], edges[1] + home.ahead_s],
            "origin": list(origin),
            "profile": annex_facts(profile),
        }
        name = free_name(home.path, origin.name)
        whole = write_annex(home.path, name, header, annex_tables(profile, heat), self.signer)
        return sum(path.stat().st_size for path in whole.iterdir())


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
