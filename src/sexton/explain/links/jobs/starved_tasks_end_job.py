"""A job whose tasks get too little CPU time misses a deadline and is aborted.

**Rule.** The death must have been marked after the starvation began. *Likely*: within a minute of
it, and the mark's words name something late (a timeout, a heartbeat, a watchdog). *Possible*:
within ten minutes. Never proven: nothing shows which of the job's tasks waited. No link if the
job died before, or later.

**Evidence against.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import PROOF, Ending, given_up
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

_ENDING = Ending(
    re.compile(
        r"time[ds]?[ -]?out|heartbeat|watchdog|deadline|too slow|not respond|unresponsive|liveness",
        re.IGNORECASE,
    ),
    re.compile(
        r"\boom|out of memory|\b137\b|reset by peer|broken pipe|connection|evict|preempt",
        re.IGNORECASE,
    ),
    "tasks waited",
    soon=Strength.POSSIBLE,
    sure=Strength.LIKELY,
    calls_it="a delay",
)


@link(
    cause="cpu_pressure",
    effect="job_deaths",
    story="a job died while its tasks waited for a core",
    proof=PROOF,
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first death after tasks began to wait."""
    return given_up(_ENDING, cause, effect, window)
