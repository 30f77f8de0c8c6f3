"""Sexton with longer deadlines, for emulated machines.

Sexton's deadlines fit a real node, where systemd answers within 3 s. Under software emulation every
answer takes ten to fifty times as long, and Sexton would report "did not answer" on a healthy
machine. So in the lab's VM all deadlines, and the recorder's CPU budget, are `SLOWER` times as
large. Nothing else changes: sources, intervals and analysis are the same.

``python -m lab.deadlines ARGUMENTS…`` runs ``sexton ARGUMENTS…``, in the VM with those deadlines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sexton.cli.main import command
from sexton.host import runner
from sexton.host.host import Host
from sexton.record import sampler
from sexton.sources.registry import Source, enabled_sources
from sexton.sources.systemd import units

#: Environment variable set in the lab's VM, where everything is slow and scenes may fill memory.
LAB_VM = "SEXTON_LAB_VM"
SLOWER = 10.0
#: How long a recorder may decode its last stacks before it exits; nothing waits for it in the lab.
CLOSE_S = 300.0
#: Commands that need `lengthen_fix_deadlines`.
FIXING = ("fix", "audit", "gate")


def in_lab_vm() -> bool:
    """Is this the lab's virtual machine?"""
    return os.environ.get(LAB_VM) == "1"


def lengthen_deadlines(times: float = SLOWER) -> None:
    """Multiply the deadline of every source, for the rest of this process."""
    for module, name in ((sampler, "_PROMPT_S"), (sampler, "_PATIENCE_S"), (units, "DEADLINE_S")):
        setattr(module, name, getattr(module, name) * times)
    seated, gathered, stopped = sampler.Sampler.__init__, runner._gather, runner.Running.stop

    def seat(
        self: sampler.Sampler,
        host: Host,
        sources: Sequence[Source] | None = None,
        keep: sampler.Keep | None = None,
    ) -> None:
        chosen = enabled_sources() if sources is None else sources
        patient = [replace(source, deadline_s=source.deadline_s * times) for source in chosen]
        seated(self, host, patient, keep)

    def gather(child: subprocess.Popen[bytes], end_s: float, limit: int) -> tuple[bytes, bytes]:
        now_s = time.monotonic()
        return gathered(child, now_s + (end_s - now_s) * times, limit)

    def stop(self: runner.Running, patience_s: float = 5.0) -> None:
        stopped(self, patience_s * times)

    setattr(sampler.Sampler, "__init__", seat)  # noqa: B010  # mypy forbids the plain form
    setattr(runner, "_gather", gather)  # noqa: B010
    setattr(runner.Running, "stop", stop)  # noqa: B010


def lengthen_fix_deadlines(times: float = SLOWER) -> None:
    """Deadlines that only `fix`, `audit` and `gate` use, for systemd and sockets; and how long
    pressure must last before an apply stops, because its own steps cause pressure here."""
    from sexton.cure import units as unit_states
    from sexton.cure import watchdog
    from sexton.sources import services, sock_diag

    watchdog.OVER = watchdog.OVER._replace(default=watchdog.OVER.value * times)
    unit_states.ASK_S *= times
    asking: tuple[Any, ...] = (services.relations, sock_diag.read_sockets)
    for ask in asking:
        ask.__defaults__ = tuple(
            default * times if isinstance(default, float) else default
            for default in ask.__defaults__
        )


def relax_recorder(times: float = SLOWER) -> None:
    """Deadlines that only the recorder uses, and its CPU budget."""
    from sexton.record import ring_dump
    from sexton.record.budget import Budget, Spent, Verdict
    from sexton.store import writer

    ring_dump._PATIENCE_S *= times
    writer._PATIENCE_S *= times
    judged = Budget.judge

    def judge(
        self: Budget, now: float, spent: Spent, costs: Mapping[str, float], more: float = 1.0
    ) -> Verdict | None:
        return judged(self, now, spent, costs, more * times)

    setattr(Budget, "judge", judge)  # noqa: B010


def decode_all_stacks(close_s: float = CLOSE_S) -> None:
    """Decode a recorder's last stacks before it exits; on a node the next recorder does that."""
    from sexton.record import companions
    from sexton.record.companions import Place
    from sexton.record.decoding import Decoding, Pace

    class Patient(Decoding):
        def __init__(self, place: Place) -> None:
            super().__init__(place, Pace(close_s=close_s))

    setattr(companions, "Decoding", Patient)  # noqa: B010


if __name__ == "__main__":
    if in_lab_vm():
        lengthen_deadlines()
        if sys.argv[1:2] and sys.argv[1] in FIXING:
            lengthen_fix_deadlines()
    command()
