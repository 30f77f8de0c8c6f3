"""The recorder as scenes start it: ``sexton record``, which also believes what the lab wrote.

Sexton believes only the kernel's own lines in ``/dev/kmsg``, since any process with the right may
write others, and a node must not be diagnosed by what somebody typed. A scene that needs a line its
machine cannot be brought to say (an ENA reset where there is no ENA) has to type it. So this
recorder, and no other, takes in lines of the lab too: those with syslog's facility `local7`, which
is what `Stage.kmsg` writes, and only those written after it began, since what an earlier scene
typed is still in the ring.

It also decodes its last stacks before it ends, and in the lab's virtual machine it is as patient as
emulation needs (`lab.patience`). Everything else is ``sexton record``, of the same interpreter,
with the same arguments.
"""

from __future__ import annotations

import sys
import time

from lab.patience import decode_to_the_end, own_machine, stretch, stretch_recorder
from sexton.cli.main import command
from sexton.model.rows.event import KernelEvent
from sexton.sources.kmsg import log
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.records import LogLine

#: local7, which nothing else on a node writes into the kernel's log.
FACILITY = 23


class LabRecogniser(Recogniser):
    """Believes the lab's own lines, from `since_us` (microseconds since boot) on."""

    def __init__(self, _trust: bool = True, since_us: float | None = None) -> None:
        super().__init__(trust_user_records=True)
        self._since_us = time.monotonic() * 1e6 if since_us is None else since_us

    def event(self, line: LogLine) -> KernelEvent | None:
        """As the real one, and of what was typed only the lab's."""
        ours = line.facility == FACILITY and (line.mono_us or 0) >= self._since_us
        return super().event(line) if ours or line.facility in (0, None) else None


if __name__ == "__main__":
    setattr(log, "Recogniser", LabRecogniser)  # noqa: B010  # mypy forbids the plain form
    decode_to_the_end()
    if own_machine():
        stretch()
        stretch_recorder()
    sys.argv[1:1] = ["record"]
    command()
