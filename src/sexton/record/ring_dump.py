"""The event ring, written to a file by a child process so that the recorder does not wait.

``python -m sexton.record.ring_dump INSTANCE OUT SINCE_NS`` reads a held instance core by core,
merges them by time and writes Parquet (zstd) with a `TraceEvent`'s columns, under a temporary name
until it is complete. It holds some thousand events in memory at a time, whatever the ring's size.

The instance is usually reached through a detached mount, by a descriptor of the recorder:
``/proc/self/fd/7/instances/…``. The child inherits it under the same number, so the path works in
both. Text is escaped as in a recording (`sexton.store.encoding`).
"""

from __future__ import annotations

import sys
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sexton.errors import SextonError
from sexton.host.runner import ChildOptions, Running, module_command, start
from sexton.model.row import fields_of
from sexton.model.rows.trace import TraceEvent
from sexton.sources.tracefs.ring import EventRing, events
from sexton.store.layout import ASIDE, sync_directory, written_aside

_BATCH = 16_384
_PATIENCE_S = 120.0
#: As the recorder, not 19: that would take too long on a busy node, while the ring is paused.
_NICE = 10


class DumpEnd(NamedTuple):
    """How a dump ended: `path` exists if `reason` is empty."""

    path: str
    seconds: float
    reason: str


class Dumping:
    """A dump in progress; the ring is paused until it ends."""

    def __init__(self, ring: EventRing, path: str, seconds: float = 10.0) -> None:
        """Hold the ring and start; raises `SourceError` if no child can be started."""
        self._ring = ring
        self._path = path
        self._began_s = time.monotonic()
        since_ns = ring.hold() - int(seconds * 1e9)
        keep = () if ring.mount is None else (ring.mount,)
        options = ChildOptions(
            nice=_NICE, private=True, keep_stderr=True, dies_with_parent=True, keep=keep
        )
        command = module_command(__name__, ring.path, path, str(max(0, since_ns)))
        self._end: DumpEnd | None = None
        self._child: Running | None = None
        try:
            self._child = start(command, options)
        finally:
            if self._child is None:
                ring.release()

    def poll(self) -> DumpEnd | None:
        """How it ended; `None` while it is running."""
        if self._child is None:
            return self._end
        status = self._child.status()
        if status is not None:
            said = self._child.stderr().strip().rpartition("\n")[2]
            return self._finish("" if status == 0 else said or f"ended with {status}")
        if time.monotonic() - self._began_s > _PATIENCE_S:
            return self._finish(f"not finished after {_PATIENCE_S:g} s; killed")
        return None

    def close(self) -> None:
        """Abort it if it is still running."""
        if self._child is not None:
            self._finish("given up")

    def _finish(self, why: str) -> DumpEnd:
        assert self._child is not None
        self._child.stop(patience_s=1.0)
        self._child = None
        self._ring.release()
        if why:
            path = Path(self._path)
            path.with_name(f"{ASIDE}{path.name}").unlink(missing_ok=True)
        self._end = DumpEnd(self._path, time.monotonic() - self._began_s, why)
        return self._end


def write_dump(instance: str, out: str, since_ns: int) -> int:
    """Write the events of a held instance to `out`; returns how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sexton.store.encoding import escape

    names = fields_of(TraceEvent)
    types = (pa.int64(), pa.int32(), pa.int32(), pa.string(), pa.string(), pa.string())
    schema = pa.schema(list(zip(names, types, strict=True)))
    written = 0
    with (
        written_aside(Path(out)) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        found = events(instance, since_ns)
        while rows := list(islice(found, _BATCH)):
            mono, cpu, pid, comm, event, detail = zip(*rows, strict=True)
            texts = ([escape(text) for text in column] for column in (comm, event, detail))
            columns = [mono, cpu, pid, *texts]
            arrays = [pa.array(v, t) for v, t in zip(columns, types, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            written += len(rows)
    sync_directory(Path(out).parent)
    return written


def main(arguments: list[str]) -> int:
    instance, out, since_ns = arguments
    try:
        print(write_dump(instance, out, int(since_ns)))
    except (SextonError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
