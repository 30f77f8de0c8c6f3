"""One function per promise; peers and Sexton take turns, so that both see the same machine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.crowd import cgroup_tree
from bench.programs import SEXTON, find
from bench.table import Measured
from sexton.host.reader import LiveFiles, walk


def start_up(rounds: int = 20) -> Measured:
    """`sexton --version` against the bare interpreter."""
    ours, bare = _in_turn(
        lambda: _run([SEXTON, "--version"]), lambda: _run([sys.executable, "-c", "pass"]), rounds
    )
    return Measured(
        "sexton --version",
        f"{ours * 1000:.0f} ms",
        f"python -c pass {bare * 1000:.0f} ms",
        ours / bare,
        5,
        "≤ 5 ×",
    )


def census(cgroups: int, rounds: int = 9) -> Measured:
    """Counting live memory cgroups against `find -type d | wc -l` on the same tree."""
    with cgroup_tree(cgroups) as root:
        found = int(_run(["sh", "-c", 'find "$0" -type d | wc -l', str(root)]))
        counted = sum(1 for _ in walk(LiveFiles(), str(root)))
        assert counted == found == cgroups, (counted, found, cgroups)
        ours, theirs = _in_turn(
            lambda: sum(1 for _ in walk(LiveFiles(), str(root))),
            lambda: _run(["sh", "-c", 'find "$0" -type d | wc -l', str(root)]),
            rounds,
        )
    return Measured(
        f"counting {cgroups:,} live memory cgroups",
        f"{ours * 1000:.0f} ms",
        f"find -type d | wc -l {theirs * 1000:.0f} ms",
        ours / theirs,
        0.5,
        "≤ 0.5 ×",
    )


def diagnose_cost(seconds: int) -> Iterator[Measured]:
    """CPU and memory of a live diagnosis on a crowded machine."""
    runs = [_cost([SEXTON, "diagnose", "--seconds", str(seconds)]) for _ in range(3)]
    peak = max(run[1] for run in runs)
    share = 100 * statistics.median(run[0] for run in runs) / seconds
    yield Measured(
        f"diagnose --seconds {seconds}, CPU of one core",
        f"{share:.1f} %",
        "1,000 processes, 1,000 cgroups",
        share / 100,
        0.12,
        "≤ 0.12",
    )
    yield Measured(
        f"diagnose --seconds {seconds}, peak memory",
        f"{peak / 1e6:.0f} MB",
        "limit 120 MB",
        peak / 120e6,
        1,
        "≤ 1",
    )


def watchers(seconds: int) -> Iterator[Measured]:
    """Cost of the usual monitors on the same crowded machine, once a second."""
    ours, _ = _cost([SEXTON, "diagnose", "--seconds", str(seconds)])
    peers = {
        "top -b": ["top", "-b", "-d", "1", "-n", str(seconds)],
        "pidstat -t": ["pidstat", "-t", "1", str(seconds)],
        "atop": ["atop", "1", str(seconds)],
        "mpstat -P ALL": ["mpstat", "-P", "ALL", "1", str(seconds)],
    }
    for name, argv in peers.items():
        found = find(argv[0])
        if found is None:
            yield Measured(f"diagnose against {name}", "", "not installed here", None, None, "")
            continue
        theirs, _ = _cost([found, *argv[1:]])
        yield Measured(
            f"diagnose against {name}, CPU over {seconds} s",
            f"{ours:.2f} s",
            f"{theirs:.2f} s",
            ours / theirs if theirs else None,
            None,
            "for comparison",
        )


def _in_turn(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, taken in zip((ours, theirs), times, strict=True):
            began = time.perf_counter()
            function()
            taken.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def _run(argv: list[str]) -> bytes:
    return subprocess.run(argv, check=True, capture_output=True).stdout


def _cost(argv: list[str]) -> tuple[float, int]:
    """CPU seconds of a program and its children, and its peak memory in bytes."""
    child = os.posix_spawnp(
        argv[0],
        argv,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, _, usage = os.wait4(child, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
