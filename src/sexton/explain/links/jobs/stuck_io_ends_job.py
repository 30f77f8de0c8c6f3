"""A job waits for a disk or a file server that does not answer, and is aborted.

**Rule.** The death must have been marked after the wait began. *Proven*: while it lasted or within
a minute, and the mark's words name it (an I/O error, a stale file handle, NFS) or the task that was
stuck. *Likely*: within a minute of its beginning. *Possible*: within ten minutes of its end. No
link if the job died before.

**Evidence against.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job

ends_job(
    __name__,
    cause="stuck_io",
    story="a job that waited for it was aborted",
    ending=Ending(
        re.compile(r"i/o error|input/output|\bstale\b|\bnfs\b|d state|\beio\b", re.I),
        re.compile(r"\boom|out of memory|connection|reset by peer|preempt|evict", re.I),
        "tasks began to wait for I/O",
    ),
)
