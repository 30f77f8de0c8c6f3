"""``make demo``: a restarting process leaves 2,000 real zombies, and the verdict changes.

As root, on the running kernel, under a separate cgroup: the verdict before, the verdict while
zombies pile up, the whole diagnosis, which names their parent, and the count after they are freed.
Takes under a minute; Ctrl-C cleans up. Without root it replays a recorded run and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.zombie_maker import CannotMakeZombies, ZombieMaker, zombie_maker
from sexton.detect.registry import all_detectors
from sexton.host.host import open_host
from sexton.model.finding import Finding
from sexton.model.rows.cgroup import CgroupCensus
from sexton.record.sampler import Sampler
from sexton.sources.registry import Source, all_sources

ZOMBIES = 2_000
#: The cgroup that every restart creates and removes.
NAME = "agent.service"
#: Recorded with ``--record`` in the lab's machine: Linux 6.1 with cgroup v2.
RECORDING = Path(__file__).with_name("demo.jsonl")
BEFORE, AFTER = "before", "the process is stopped; its zombies are freed"
DURING = "sexton diagnose, while it keeps restarting five times a second"
THE_END = "Its files are deleted, its parent's pages are reclaimed, the cgroup is removed."
#: Cheap sources, read four times a second for the status line.
_COUNTERS = ("cgroupfs.census", "procfs.node")
#: So many readings in a row without a fall: bursts are a grace period apart, longer under load.
_STILL = 4


class Output:
    """Prints; with `record`, also saves what it printed and when."""

    def __init__(self, record: Path | None) -> None:
        self._began = time.monotonic()
        self._file = record.open("w") if record else None

    def write(self, text: str = "", end: str = "\n") -> None:
        sys.stdout.write(text + end)
        sys.stdout.flush()
        if self._file is not None:
            at = round(time.monotonic() - self._began, 2)
            self._file.write(json.dumps({"at": at, "text": text + end}) + "\n")

    def title(self, text: str) -> None:
        self.write(f"\n── {text} " + "─" * max(0, 76 - len(text)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--record", type=Path, help="save the run, to replay it without root")
    parser.add_argument("--replay", action="store_true", help="show the recorded run")
    args = parser.parse_args()
    if args.replay or os.geteuid() != 0:
        return replay("--replay" if args.replay else "making cgroups needs root")
    output = Output(args.record)
    try:
        return show(output)
    except CannotMakeZombies as reason:
        return replay(str(reason))
    except KeyboardInterrupt:
        print("\ninterrupted; the zombies are freed and the cgroup is removed")
        return 130
    finally:
        output.close()


def show(output: Output) -> int:
    with zombie_maker("sexton-demo") as maker, Sampler(open_host(), _sources()) as sampler:
        output.title(BEFORE)
        before = _read(sampler)
        output.write(_headline(before))
        live = (sampler.window().latest(CgroupCensus) or (None,))[0]
        number = max(ZOMBIES, 5 * (live.live or 0) // 2 if live else 0)
        output.title(f"a process under {maker.path} restarts {number:,} times")
        _make_zombies(output, sampler, maker, number)
        output.title(DURING)
        with _restarting(maker):
            output.write(_diagnose(), end="")
        output.title(AFTER)
        began = time.monotonic()
        maker.free()
        freed = time.monotonic() - began
        after = _wait_until_freed(sampler, before)
        output.write(f"{_headline(after)}   (took {freed:.2f} s)")
        output.write(f"\n{THE_END}")
    return 0


def _make_zombies(output: Output, sampler: Sampler, maker: ZombieMaker, number: int) -> None:
    process = maker.start(number, NAME)
    shown = ""
    try:
        while process.poll() is None:
            line = _headline(_read(sampler))
            if sys.stdout.isatty():
                output.write(f"\r\x1b[K{line}", end="")
            elif line.split()[0] != shown:
                output.write(line)  # piped: only when the verdict changes
                shown = line.split()[0]
            time.sleep(0.25)
    finally:
        process.kill()
        process.wait()
    if sys.stdout.isatty():
        output.write()


@contextmanager
def _restarting(maker: ZombieMaker) -> Iterator[None]:
    process = maker.start(10_000, NAME, pause_s=0.2)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _sources() -> list[Source]:
    return [source for source in all_sources() if source.id in _COUNTERS]


def _read(sampler: Sampler) -> Finding:
    sampler.read_all()
    sampler.forget(time.monotonic() - 5)
    (zombies,) = (detector for detector in all_detectors() if detector.id == "zombie_memcgs")
    return zombies.run(sampler.window())


def _headline(finding: Finding) -> str:
    return f"{'SICK' if finding.is_problem else 'HEALTHY':<8} {finding.summary}"


def _wait_until_freed(sampler: Sampler, before: Finding) -> Finding:
    """Wait until the count has stopped falling: a kernel worker frees the last ones, in bursts."""
    lowest, still = float("inf"), 0
    for _ in range(60):
        after = _read(sampler)
        number = next(
            (evidence.number for evidence in after.evidence if evidence.number is not None), 0.0
        )
        still = still + 1 if number >= lowest else 0
        lowest = min(lowest, number)
        if after.is_problem == before.is_problem and still >= _STILL:
            break
        time.sleep(0.25)
    return after


def _diagnose() -> str:
    command = [sys.executable, "-m", "sexton", "diagnose"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    return ended.stdout


def replay(reason: str) -> int:
    print(f"RECORDED RUN ({reason}); to run it on your own kernel: sudo make demo")
    print("Recorded in an emulated machine, where all takes many times as much CPU time.")
    began = time.monotonic()
    for line in RECORDING.read_text().splitlines():
        step = json.loads(line)
        if sys.stdout.isatty():
            time.sleep(max(0.0, began + step["at"] - time.monotonic()))
        sys.stdout.write(step["text"])
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
