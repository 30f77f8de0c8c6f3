"""A port of the fabric fails, and the job that talks through it gives up.

**Rule.** The death must have been marked after the errors began. *Proven*: a link went down or an
operation failed, and while that lasted or within a minute the mark's words name it (NCCL, RDMA, a
remote error, a retry that was used up, a time-out). *Likely*: within a minute. *Possible*: within
ten, and for packet errors alone. No link where the job died before.

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
    "fabric_error_ends_job",
    re.compile(
        r"nccl|rdma|\bib_?|infiniband|\befa\b|remote error|retry|time[ds]?[ -]?out|peer", re.I
    ),
    re.compile(r"\boom|out of memory|no space|preempt|evict", re.I),
    "the fabric failed",
)
_LEAST = Strength.POSSIBLE


@link(
    cause="fabric_errors",
    effect="job_deaths",
    story="a job lost its peers and died",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after a port failed."""
    if cause.severity is Severity.INFO:
        return None
    if cause.severity is not Severity.CRITICAL:
        return ended(_ENDING._replace(soon=_LEAST, sure=_LEAST), cause, effect, window)
    return ended(_ENDING, cause, effect, window)
