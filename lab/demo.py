"""``make demo``: a restarting process leaves 2,000 real zombies, and the verdict turns.

As root, on the running kernel, under a cgroup of its own: the verdict before, the verdict while
they pile up, the whole diagnosis that names their parent, and the count after they were laid to
rest. Under a minute; Ctrl-C cleans up. Without root it replays a recorded run and says so.
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

from lab.graveyard import CannotDig, Graveyard, graveyard
from sexton.detect.registry import all_detectors
from sexton.host.host import open_host
from sexton.model.finding import Finding
from sexton.model.rows.cgroup import CgroupCensus
from sexton.record.sampler import Sampler
from sexton.sources.registry import Source, all_sources

ZOMBIES = 2_000
#: The cgroup that is made and removed with every restart.
NAME = "agent.service"
RECORDING = Path(__file__).with_name("demo.jsonl")
#: What the turning line needs: counting is cheap, so it can be done four times a second.
_COUNTERS = ("cgroupfs.census", "procfs.node")


class Stage:
    """Prints, and where asked writes down what it printed and when."""

    def __init__(self, record: Path | None) -> None:
        self._began = time.monotonic()
        self._file = record.open("w") if record else None

    def say(self, text: str = "", end: str = "\n") -> None:
        sys.stdout.write(text + end)
        sys.stdout.flush()
        if self._file is not None:
            at = round(time.monotonic() - self._began, 2)
            self._file.write(json.dumps({"at": at, "text": text + end}) + "\n")

    def title(self, text: str) -> None:
        self.say(f"\n── {text} " + "─" * max(0, 76 - len(text)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--record", type=Path, help="write down the run, for those without root")
    parser.add_argument("--replay", action="store_true", help="show the recorded run")
    args = parser.parse_args()
    if args.replay or os.geteuid() != 0:
        return replay("as you asked" if args.replay else "making cgroups needs root")
    stage = Stage(args.record)
    try:
        return show(stage)
    except CannotDig as reason:
        return replay(str(reason))
    except KeyboardInterrupt:
        print("\ninterrupted; the zombies were laid to rest and the cgroup removed")
        return 130
    finally:
        stage.close()


def show(stage: Stage) -> int:
    with graveyard("sexton-demo") as yard, Sampler(open_host(), _sources()) as sampler:
        stage.title("before")
        before = _look(sampler)
        stage.say(_headline(before))
        live = (sampler.window().latest(CgroupCensus) or (None,))[0]
        number = max(ZOMBIES, 5 * (live.live or 0) // 2 if live else 0)
        stage.title(f"a process under {yard.path} restarts {number:,} times")
        _dig(stage, sampler, yard, number)
        stage.title("sexton diagnose, while it goes on restarting five times a second")
        with _restarting(yard):
            stage.say(_diagnose(), end="")
        stage.title("the process is stopped; its zombies are laid to rest")
        began = time.monotonic()
        yard.lay_to_rest()
        freed = time.monotonic() - began
        after = _settle(sampler, before)
        stage.say(f"{_headline(after)}   (took {freed:.2f} s)")
        stage.say(
            "\nIts files went, its parent gave up the pages, and the cgroup is removed again."
        )
    return 0


def _dig(stage: Stage, sampler: Sampler, yard: Graveyard, number: int) -> None:
    digger = yard.start_digging(number, NAME)
    shown = ""
    try:
        while digger.poll() is None:
            line = _headline(_look(sampler))
            if sys.stdout.isatty():
                stage.say(f"\r\x1b[K{line}", end="")
            elif line.split()[0] != shown:
                stage.say(line)  # piped: only when it turns
                shown = line.split()[0]
            time.sleep(0.25)
    finally:
        digger.kill()
        digger.wait()
    if sys.stdout.isatty():
        stage.say()


@contextmanager
def _restarting(yard: Graveyard) -> Iterator[None]:
    digger = yard.start_digging(10_000, NAME, pause_s=0.2)
    try:
        yield
    finally:
        digger.kill()
        digger.wait()


def _sources() -> list[Source]:
    return [source for source in all_sources() if source.id in _COUNTERS]


def _look(sampler: Sampler) -> Finding:
    sampler.read_all()
    sampler.forget(time.monotonic() - 5)
    (zombies,) = (detector for detector in all_detectors() if detector.id == "zombie_memcgs")
    return zombies.run(sampler.window())


def _headline(finding: Finding) -> str:
    return f"{'SICK' if finding.is_problem else 'HEALTHY':<8} {finding.summary}"


def _settle(sampler: Sampler, before: Finding) -> Finding:
    """The kernel frees the last ones from a worker: look again until their number stays."""
    last = float("inf")
    for _ in range(60):
        after = _look(sampler)
        number = next(
            (evidence.number for evidence in after.evidence if evidence.number is not None), 0.0
        )
        if after.is_problem == before.is_problem and number >= last:
            break
        last = number
        time.sleep(0.25)
    return after


def _diagnose() -> str:
    command = [sys.executable, "-m", "sexton", "diagnose"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    return ended.stdout


def replay(reason: str) -> int:
    print(f"RECORDED RUN ({reason}); as root this happens on your own kernel: sudo make demo")
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
