"""Stacks in a recording: decoding cost, size on disk, and how fast hours are drawn."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.programs import SEXTON
from bench.table import Measured, against_limit, log, spread
from lab.synthetic.perf_data import Capture, write_perf_data

_CORES = 96
_NAME = "perf.data.2026111502140000"
#: 40 million samples of 96 cores at 97 Hz, and a quarter of that.
_HOURS = 1.2
#: For the symbol cache: the recorder's share of its 2 GB.
_CACHE_BYTES = 64 << 20


class ChildRun(NamedTuple):
    """Resources and output of a child process."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: str


def measure(scratch: Path, capture: Path, take: Callable[[Measured], None]) -> None:
    for line in (*_decoding(scratch, capture), *_hours(scratch)):
        take(line)


def _decoding(scratch: Path, capture: Path) -> list[Measured]:
    """Two minutes of 96 cores through the recorder's decoder, and the size of the real capture."""
    directory = scratch / "decoded"
    _synthetic(directory, 0.1, 0)
    manifest = sorted((directory / "segments").iterdir())[0] / "manifest.json"
    document = json.loads(manifest.read_bytes().partition(b"\n")[2])
    kallsyms = Path("/proc/kallsyms").read_bytes()
    symbols = directory / "stacks" / f"kallsyms-{document['boot_id']}.gz"
    symbols.write_bytes(gzip.compress(kallsyms, 1))
    raw = directory / "stacks" / _NAME
    made = Capture(cores=_CORES, seconds=120, start_s=document["start"][0], stacks=30_000)
    samples = write_perf_data(raw, made, _functions(kallsyms))
    what = f"decoding {samples:,} samples in the recorder's child"
    size = raw.stat().st_size
    ran, words = _decoded(directory, document)
    if words[:1] != ["done"]:
        return [against_limit(f"{what}, memory", None, 200, "MB", ran.output.strip()[-80:])]
    share = 100 * ran.cpu_s / 120 / _CORES
    lines = [
        against_limit(f"{what}, memory", ran.peak_bytes / 1e6, 200, "MB", ""),
        Measured(
            f"{what}, CPU",
            f"{ran.cpu_s:.1f} s",
            f"two minutes of {_CORES} cores",
            *(None, None, f"{share:.3f} % of that machine"),
        ),
        _room("stacks of those two minutes as kept", int(words[3]), size),
    ]
    segment = scratch / "kept" / "segments" / "one"
    segment.mkdir(parents=True)
    ran = run([sys.executable, "-m", "bench.profile.seal", str(capture), str(segment)])
    size, kept_bytes = capture.stat().st_size, int(ran.output.split()[-1])
    return [*lines, _room("the capture of stacks that hardly repeat as kept", kept_bytes, size)]


def _decoded(directory: Path, manifest: Mapping[str, Any]) -> tuple[ChildRun, list[str]]:
    request = [[_NAME, manifest["boot_id"], manifest["start"][0], manifest["end"][0], False]]
    child = [sys.executable, "-I", "-m", "sexton.record.decode_child"]
    ran = run([*child, str(directory), json.dumps(request), str(_CACHE_BYTES)])
    log(f"  decoded in {ran.wall_s:.1f} s: {ran.output.strip()[:80]}")
    return ran, ran.output.split()


def _room(what: str, kept_bytes: int, size: int) -> Measured:
    return against_limit(f"{what}, of their perf.data", 100 * kept_bytes / size, 10, "%", "")


def _hours(scratch: Path) -> list[Measured]:
    """A tenth of twelve hours of 96 cores: built in one stream, then drawn."""
    costs = []
    for hours in (_HOURS / 4, _HOURS):
        directory = scratch / f"hours-{hours:g}"
        built = _synthetic(directory, hours, 97)
        samples = hours * 3600 * _CORES * 97
        costs.append((samples, built))
        log(f"  {samples / 1e6:.0f} million samples built in {built.wall_s:.0f} s")
    (few, small), (many, large) = costs
    drawn = [_drawn(directory, scratch) for _ in range(2)]
    looked = [_looked(directory, scratch) for _ in range(2)]
    million = f"{looked[0]['samples'] / 1e6:.0f} million samples"
    ranges = [seconds for one in looked for seconds in one["ranges_s"]]
    return [
        against_limit(f"first heatmap of {million}, the whole command", max(drawn), *(2, "s", "")),
        Measured(
            f"heatmap of {million} within the second",
            f"{spread([one['subsecond_s'] for one in looked])} s",
            *("", None, None, "for comparison"),
        ),
        against_limit(
            f"flame graph of 5 s ({looked[0]['range_samples']:,} samples) out of them, "
            f"median {statistics.median(ranges):.2f} s, at worst",
            *(max(ranges), 0.3, "s", ""),
        ),
        against_limit(f"building {million}, memory", large.peak_bytes / 1e6, 2000, "MB", ""),
        Measured(
            f"building {million}, CPU a sample",
            f"{1e6 * large.cpu_s / many:.2f} µs",
            f"a quarter of them: {1e6 * small.cpu_s / few:.2f} µs",
            (large.cpu_s / many) / (small.cpu_s / few),
            1.25,
            "linear: ≤ 1.25",
        ),
    ]


def _synthetic(directory: Path, hours: float, hertz: int) -> ChildRun:
    size = ["--cores", str(_CORES), "--hours", f"{hours:g}", "--stack-hertz", str(hertz)]
    ran = run([sys.executable, "-m", "lab.synthetic", str(directory), *size])
    if not (directory / "segments").is_dir():
        raise RuntimeError(f"lab.synthetic failed: {ran.output[-200:]}")
    return ran


def _drawn(directory: Path, out: Path) -> float:
    """Seconds of ``sexton profile heatmap``, from start to picture."""
    picture = out / "cores.svg"
    ran = run([SEXTON, "profile", "heatmap", str(directory), "--kind", "cores", "--out", picture])
    if not picture.exists():
        raise RuntimeError(f"sexton profile heatmap failed: {ran.output[-200:]}")
    picture.unlink()
    return ran.wall_s


def _looked(directory: Path, out: Path) -> dict[str, float | int | list[float]]:
    ran = run([sys.executable, "-m", "bench.profile.ranges", str(directory), str(out)])
    document: dict[str, float | int | list[float]] = json.loads(ran.output.splitlines()[-1])
    return document


def run(argv: Sequence[str | Path]) -> ChildRun:
    """Run a child and measure its resources."""
    began = time.monotonic()
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - began
    return ChildRun(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, output)


def _functions(kallsyms: bytes) -> list[tuple[int, str]]:
    """The kernel's functions, without modules."""
    found = []
    for line in kallsyms.decode().splitlines():
        address, kind, name, *module = line.split()
        if kind in "tT" and not module and int(address, 16) >> 63:
            found.append((int(address, 16), name))
    return found
