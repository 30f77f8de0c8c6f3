"""Memory has an uncorrected error, and the process that used it is killed.

**Rule.** Only errors that were not corrected: corrected ones end nothing. The death must have been
marked after the first of them. *Proven*: while they lasted or within a minute, and the mark's words
name it (a bus error, SIGBUS, ECC, a machine check) or the process that was killed. *Likely*: within
a minute. *Possible*: within ten. No link if the job died before.

**Evidence against.** A mark that names another cause: out of memory, a lost connection, an
eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job
from sexton.model.finding import Severity

ends_job(
    __name__,
    cause="memory_errors",
    story="a job died as a result",
    ending=Ending(
        re.compile(
            r"bus error|sigbus|signal 7|\b135\b|\becc\b|machine check|\bmce\b|hardware", re.I
        ),
        re.compile(r"\boom|out of memory|connection|time[ds]?[ -]?out|preempt|evict", re.I),
        "memory failed",
        least=Severity.CRITICAL,
    ),
)
