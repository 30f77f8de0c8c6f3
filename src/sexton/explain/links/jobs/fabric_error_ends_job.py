"""A fabric port fails, and the job that communicates through it gives up.

**Rule.** The death must have been marked after the errors began. *Proven*: a link went down or an
operation failed, and while that lasted or within a minute the mark's words name it (NCCL, RDMA, a
remote error, exhausted retries, a timeout). *Likely*: within a minute. *Possible*: within
ten, and for packet errors alone. No link if the job died before.

**Evidence against.** A mark that names another cause: memory, a full disk, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import PROOF, Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding, Severity
from sexton.model.window import Window

_ENDING = Ending(
    re.compile(
        r"nccl|rdma|\bib_?|infiniband|\befa\b|remote error|retry|time[ds]?[ -]?out|peer", re.I
    ),
    re.compile(r"\boom|out of memory|no space|preempt|evict", re.I),
    "the fabric failed",
    least=Severity.WARNING,
)
_LEAST = Strength.POSSIBLE


@link(
    cause="fabric_errors", effect="job_deaths", story="a job lost its peers and died", proof=PROOF
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first death after a port failed."""
    failed = cause.severity is Severity.CRITICAL
    ending = _ENDING if failed else _ENDING._replace(soon=_LEAST, sure=_LEAST)
    return ended(ending, cause, effect, window)
