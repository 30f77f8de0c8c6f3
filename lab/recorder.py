"""The recorder for scenes: ``sexton record``, which also accepts the lab's injected log lines.

Sexton ignores lines in ``/dev/kmsg`` that did not come from the kernel, because any privileged
process can write them. A scene may need a line that its machine cannot produce (an ENA reset
without an ENA), so it injects one. Only this recorder accepts such lines: those with syslog
facility `local7`, written by `Stage.inject_kmsg` after the recorder started, since lines of earlier
scenes are still in the ring buffer.

It also decodes its last stacks before it exits, and in the lab's VM its deadlines are longer
(`lab.deadlines`). Everything else is ``sexton record`` with the same interpreter and arguments.
"""

from __future__ import annotations

import sys
import time

from lab.deadlines import decode_all_stacks, in_lab_vm, lengthen_deadlines, relax_recorder
from sexton.cli.main import command
from sexton.model.rows.event import KernelEvent
from sexton.sources.kmsg import log
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.records import LogLine

#: local7, which nothing else on a node writes to the kernel log.
FACILITY = 23


class LabRecogniser(Recogniser):
    """Also accepts the lab's lines, from `since_us` (microseconds since boot) on."""

    def __init__(self, _trust: bool = True, since_us: float | None = None) -> None:
        super().__init__(trust_user_records=True)
        self._since_us = time.monotonic() * 1e6 if since_us is None else since_us

    def event(self, line: LogLine) -> KernelEvent | None:
        """As in the base class, but of user-written lines only the lab's."""
        ours = line.facility == FACILITY and (line.mono_us or 0) >= self._since_us
        return super().event(line) if ours or line.facility in (0, None) else None


if __name__ == "__main__":
    setattr(log, "Recogniser", LabRecogniser)  # noqa: B010  # mypy forbids the plain form
    decode_all_stacks()
    if in_lab_vm():
        lengthen_deadlines()
        relax_recorder()
    sys.argv[1:1] = ["record"]
    command()
