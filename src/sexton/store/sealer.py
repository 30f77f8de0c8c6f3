"""The recorder's child that needs Arrow: ``python -m sexton.store.sealer DIR AGE-S MOST-BYTES``.

It compacts finished hours and says on standard error, as one line of JSON, what it did. It works on
one thread with bounded memory and CPU time. A lock on ``segments/`` keeps a second one out; it ends
with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import sys
from pathlib import Path

#: Beyond what the libraries reserve. An hour of 96 cores takes 250 MB, for a second or two.
MEMORY_BYTES = 512 << 20
_MOST_CPU_S = 600


def main(arguments: list[str]) -> int:
    directory, age_s, most_bytes = Path(arguments[0]), float(arguments[1]), int(arguments[2])
    _bound()
    from dataclasses import asdict

    from sexton.store.compaction import compact
    from sexton.store.retention import Limits

    lock = os.open(directory / "segments", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another process compacts this recording", file=sys.stderr)
        return 1
    told = asdict(compact(directory, Limits(age_s, most_bytes)))
    print(json.dumps(told), file=sys.stderr, flush=True)
    return 0


def _bound() -> None:
    """One thread, bounded memory and CPU time; set before Arrow is imported."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with open("/proc/self/statm", "rb") as stream:
        reserved = int(stream.read().split()[5]) * resource.getpagesize()
    limit = reserved + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
