"""Heat slows the cores down, and a job misses a deadline.

**Rule.** The death must have been marked after the cores were slowed down. *Likely*: while they
were or within a minute, and the mark's words name something late (a time-out, a heartbeat, a
straggler). *Possible*: within ten minutes. Never proven: a slow core is late, and does not end
anything by itself. No link where the job died before.

**Speaks against it.** A mark that names another cause: memory, a full disk, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding, Severity
from sexton.model.window import Window

_ENDING = Ending(
    "heat_slows_job",
    re.compile(
        r"time[ds]?[ -]?out|heartbeat|straggler|too slow|watchdog|deadline|thermal|heat", re.I
    ),
    re.compile(r"\boom|out of memory|no space|preempt|evict|reset by peer", re.I),
    "heat slowed the cores down",
    soon=Strength.POSSIBLE,
    sure=Strength.LIKELY,
)


@link(
    cause="thermal_throttling",
    effect="job_deaths",
    story="a job was too slow and was given up",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after the cores were slowed down."""
    if cause.severity is Severity.INFO:
        return None
    return ended(_ENDING, cause, effect, window)
