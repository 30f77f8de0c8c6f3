"""A real capture of a load whose stacks hardly repeat, which is hard for every stack reader."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.table import log

_LOAD = Path(__file__).parent / "load.c"
_HERTZ = 24_000  # many samples in little time: only the reader is measured
_SPARE = 1.35  # some are lost while a virtual core does not run
_BUILD = ("-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")


class Captured(NamedTuple):
    """A perf.data, or the reason why there is none."""

    path: Path
    reason: str = ""


@contextlib.contextmanager
def captured(scratch: Path, samples: int) -> Iterator[Captured]:
    """Capture about `samples` samples of all cores; the load ends with the block."""
    compiler, perf = shutil.which("cc"), shutil.which("perf")
    out = scratch / "perf.data"
    if compiler is None or perf is None:
        yield Captured(out, "no C compiler" if compiler is None else "no perf")
        return
    cores = os.cpu_count() or 1
    seconds = 1 + math.ceil(samples / (_HERTZ * cores) * _SPARE)
    load = scratch / "load"
    subprocess.run([compiler, *_BUILD, "-o", load, _LOAD], check=True)
    log(f"profile: capturing about {samples:,} samples in {seconds} s")
    with contextlib.ExitStack() as running:
        for _ in range(cores):
            _beside(running, [str(load), str(seconds + 5)])
        _beside(running, ["dd", "if=/dev/zero", "of=/dev/null", "bs=4096"])
        what = ["-F", str(_HERTZ), "-e", "cpu-clock", "-a", "-g", "--all-cgroups"]
        how = ["--buildid-mmap", "-k", "CLOCK_MONOTONIC", "-m", "4M", "-o", str(out)]
        taken = subprocess.run(
            [perf, "record", "-q", *what, *how, "--", "sleep", str(seconds)],
            capture_output=True,
            text=True,
            check=False,
        )
        if taken.returncode:
            yield Captured(out, f"perf record failed: {' '.join(taken.stderr.split()[:12])}")
            return
    yield Captured(out)


def _beside(running: contextlib.ExitStack, argv: list[str]) -> None:
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running.callback(child.wait)
    running.callback(child.kill)


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sexton-bench-")
