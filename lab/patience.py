"""Sexton with more patience, for a machine that is emulated.

Sexton's deadlines are those of a node: systemd answers within 3 s there, or is in trouble. Under
software emulation every answer takes ten to fifty times as long, and Sexton with a node's patience
would write down "did not answer" about a healthy machine. So in the lab's virtual machine all of
its deadlines are `SLOWER` times as long, and so is what its recorder may cost. Nothing else is
changed: what is read, how often, and what is made of it.

``python -m lab.patience ARGUMENTS…`` is ``sexton ARGUMENTS…``, there with that patience.
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

#: Set in the lab's virtual machine: there nobody else is hurt by a full memory, and all is slow.
OWN_MACHINE = "SEXTON_LAB_VM"
SLOWER = 10.0
#: For the last stacks, at a recorder's end: nothing waits for it in the lab.
CLOSE_S = 300.0
#: The verbs that `stretch_fixing` is for.
FIXING = ("fix", "audit", "gate")


def own_machine() -> bool:
    """Is this the lab's virtual machine?"""
    return os.environ.get(OWN_MACHINE) == "1"


def stretch(times: float = SLOWER) -> None:
    """From now on, in this process, every source has so many times its deadline."""
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


def stretch_fixing(times: float = SLOWER) -> None:
    """What only `fix`, `audit` and `gate` ask for, of systemd and of sockets; and how long pressure
    has to last before an apply stops by it, for its own steps cause that much here."""
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


def stretch_recorder(times: float = SLOWER) -> None:
    """What only a recorder waits for, and what it may cost."""
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


def decode_to_the_end(close_s: float = CLOSE_S) -> None:
    """A recorder's last stacks are decoded before it ends; on a node the next one does that."""
    from sexton.record import companions
    from sexton.record.companions import Place
    from sexton.record.decoding import Decoding, Pace

    class Patient(Decoding):
        def __init__(self, place: Place) -> None:
            super().__init__(place, Pace(close_s=close_s))

    setattr(companions, "Decoding", Patient)  # noqa: B010


if __name__ == "__main__":
    if own_machine():
        stretch()
        if sys.argv[1:2] and sys.argv[1] in FIXING:
            stretch_fixing()
    command()
