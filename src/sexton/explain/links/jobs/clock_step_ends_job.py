"""The clock is set, and what is judged by it ends a job.

**Rule.** The death must have been marked after the step. *Likely*: within a minute, and the mark's
words name something that depends on the clock (a lease, a token, a certificate, a heartbeat, a
time-out). *Possible*: within ten minutes. Never proven: nothing shows which clock the job looked
at. No link where the job died before.

**Speaks against it.** A mark that names another cause: memory, a full disk, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

_ENDING = Ending(
    "clock_step_ends_job",
    re.compile(r"lease|token|certificate|expired|heartbeat|clock|time[ds]?[ -]?out|skew", re.I),
    re.compile(r"\boom|out of memory|no space|preempt|evict|nccl", re.I),
    "the clock was set",
    soon=Strength.POSSIBLE,
    sure=Strength.LIKELY,
)


@link(
    cause="clock_steps",
    effect="job_deaths",
    story="a lease or a time-out of a job ended early",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after the clock was set."""
    return ended(_ENDING, cause, effect, window)
