"""Thermal throttling slows the cores down, and a job misses a deadline.

**Rule.** The death must have been marked after the cores were slowed down. *Likely*: while they
were or within a minute, and the mark's words name something late (a timeout, a heartbeat, a
straggler). *Possible*: within ten minutes. Never proven: a slow core does not end anything
by itself. No link if the job died before.

**Evidence against.** A mark that names another cause: memory, a full disk, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job
from sexton.model.chain import Strength
from sexton.model.finding import Severity

ends_job(
    __name__,
    cause="thermal_throttling",
    story="a job missed a deadline and was aborted",
    ending=Ending(
        re.compile(
            r"time[ds]?[ -]?out|heartbeat|straggler|too slow|watchdog|deadline|thermal|heat", re.I
        ),
        re.compile(r"\boom|out of memory|no space|preempt|evict|reset by peer", re.I),
        "heat slowed the cores down",
        soon=Strength.POSSIBLE,
        sure=Strength.LIKELY,
        least=Severity.WARNING,
    ),
)
