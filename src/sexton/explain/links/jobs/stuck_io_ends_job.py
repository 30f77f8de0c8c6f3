"""A job waits for a disk or a file server that does not answer, and is given up.

**Rule.** The death must have been marked after the wait began. *Proven*: while it lasted or within
a minute, and the mark's words name it (an I/O error, a stale file handle, NFS) or the task that was
stuck. *Likely*: within a minute of its beginning. *Possible*: within ten minutes of its end. No
link where the job died before.

**Speaks against it.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window

_ENDING = Ending(
    "stuck_io_ends_job",
    re.compile(r"i/o error|input/output|\bstale\b|\bnfs\b|d state|\beio\b", re.I),
    re.compile(r"\boom|out of memory|connection|reset by peer|preempt|evict", re.I),
    "tasks began to wait for I/O",
)


@link(
    cause="stuck_io",
    effect="job_deaths",
    story="a job that waited for it was given up",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after tasks got stuck."""
    return ended(_ENDING, cause, effect, window)
