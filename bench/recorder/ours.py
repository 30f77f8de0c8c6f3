"""Sexton's recorder, in the configurations that have promises."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.recorder.account import Program
from bench.recorder.peers import Peer, Run, RunSpec
from sexton.record.stacks import Rotation

HERTZ = Rotation.for_cores(os.cpu_count() or 1).hertz
PLAIN = ("--no-probe", "--no-ring")
STACKS = ("--stacks", "--no-probe", "--no-ring")
PROBE = ("--no-ring",)
FULL = ("--stacks",)

PLAIN_NAME = "sexton record"
STACKS_NAME = "sexton record --stacks"
FULL_NAME = "sexton record --stacks, probe and ring"


def recorder(sexton: str, name: str, watches: str, flags: tuple[str, ...]) -> Peer:
    def prepare(spec: RunSpec) -> Run | str:
        reason = absent(sexton)
        if reason:
            return reason
        out = spec.directory / "ours"
        return Run(Program(name, argv(sexton, out, spec.seconds, flags), spec.seconds), out)

    return Peer(name, watches, prepare)


def argv(sexton: str, out: Path, seconds: int, flags: tuple[str, ...]) -> tuple[str, ...]:
    return (sexton, "record", str(out), "--seconds", str(seconds), *flags)


def variants(sexton: str) -> dict[str, Peer]:
    everything = "processes, cgroups, cores, NIC, kernel log"
    return {
        "plain": recorder(sexton, PLAIN_NAME, f"{everything}; no stacks, no BPF", PLAIN),
        "stacks": recorder(sexton, STACKS_NAME, f"the same and stacks at {HERTZ} Hz", STACKS),
        "full": recorder(sexton, FULL_NAME, "the same and softirq waits", FULL),
    }


def absent(sexton: str) -> str:
    """Why Sexton's recorder cannot run; empty if it can."""
    try:
        result = subprocess.run([sexton, "record", "--help"], capture_output=True, check=False)
    except OSError as error:
        return f"{sexton}: {error.strerror}"
    return "" if result.returncode == 0 else "this sexton has no `record` yet"
