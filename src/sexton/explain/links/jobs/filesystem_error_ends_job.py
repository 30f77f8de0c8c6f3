"""A filesystem stops writing, and the job that uses it dies.

**Rule.** The death must have been marked after the filesystem failed. *Proven*: within a minute, or
while it is read-only, and the mark's words name it (a read-only file system, an I/O error, EROFS,
EIO) or its mount point. *Likely*: within a minute. *Possible*: within ten. No link where the job
died before.

**Speaks against it.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

_ENDING = Ending(
    "filesystem_error_ends_job",
    re.compile(r"read-?only|erofs|input/output|i/o error|\beio\b|errno (?:5|30)\b|stale", re.I),
    re.compile(r"\boom|out of memory|connection|time[ds]?[ -]?out|preempt|NCCL", re.I),
    "the filesystem failed",
    soon=Strength.LIKELY,
)


@link(
    cause="filesystem_errors",
    effect="job_deaths",
    story="a job could not read or write and died",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after the filesystem failed."""
    return ended(_ENDING, cause, effect, window)
