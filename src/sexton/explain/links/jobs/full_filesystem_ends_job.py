"""A job writes to a filesystem that is full, and dies of it.

**Rule.** The death must have been marked after the filesystem became full. *Proven*: while it was
full or within a minute, and the mark's words name it (no space left, ENOSPC, a disk quota, a bus
error where `/dev/shm` was full) or the mount point. *Possible*: while it was full, or within ten
minutes of it. Not more, since a full disk hurts only those who write to it. No link where the job
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
    "full_filesystem_ends_job",
    re.compile(r"no space|enospc|disk full|errno 28|inodes|bus error|sigbus", re.I),
    re.compile(r"\boom|out of memory|connection|time[ds]?[ -]?out|preempt|NCCL", re.I),
    "the filesystem was full",
    soon=Strength.POSSIBLE,
)


@link(
    cause="full_filesystem",
    effect="job_deaths",
    story="a job could not write and died",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death while there was no space, or soon after."""
    return ended(_ENDING, cause, effect, window)
