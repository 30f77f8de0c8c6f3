"""A filesystem stops writing, and the job that uses it dies.

**Rule.** The death must have been marked after the filesystem failed. *Proven*: within a minute, or
while it is read-only, and the mark's words name it (a read-only file system, an I/O error, EROFS,
EIO) or its mount point. *Likely*: within a minute. *Possible*: within ten. No link if the job
died before.

**Evidence against.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job

ends_job(
    __name__,
    cause="filesystem_errors",
    story="a job could not read or write and died",
    ending=Ending(
        re.compile(r"read-?only|erofs|input/output|i/o error|\beio\b|errno (?:5|30)\b|stale", re.I),
        re.compile(r"\boom|out of memory|connection|time[ds]?[ -]?out|preempt|NCCL", re.I),
        "the filesystem failed",
    ),
)
