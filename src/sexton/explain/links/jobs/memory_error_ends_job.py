"""Memory fails, and the process that used it is killed.

**Rule.** Only errors that were not corrected: corrected ones end nothing. The death must have been
marked after the first of them. *Proven*: while they lasted or within a minute, and the mark's words
name it (a bus error, SIGBUS, ECC, a machine check) or the process that was killed. *Likely*: within
a minute. *Possible*: within ten. No link where the job died before.

**Speaks against it.** A mark that names another cause: out of memory, a lost connection, an
eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding, Severity
from sexton.model.window import Window

_ENDING = Ending(
    "memory_error_ends_job",
    re.compile(r"bus error|sigbus|signal 7|\b135\b|\becc\b|machine check|\bmce\b|hardware", re.I),
    re.compile(r"\boom|out of memory|connection|time[ds]?[ -]?out|preempt|evict", re.I),
    "memory failed",
)


@link(
    cause="memory_errors",
    effect="job_deaths",
    story="a job died of it",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after memory failed for good."""
    if cause.severity is not Severity.CRITICAL:
        return None
    return ended(_ENDING, cause, effect, window)
