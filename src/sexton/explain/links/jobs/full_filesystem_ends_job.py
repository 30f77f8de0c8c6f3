"""A job writes to a full filesystem and dies.

**Rule.** The death must have been marked after the filesystem became full. *Proven*: while it was
full or within a minute, and the mark's words name it (no space left, ENOSPC, a disk quota, a bus
error where `/dev/shm` was full) or the mount point. *Possible*: while it was full, or within ten
minutes of it. Not more, since a full disk hurts only those who write to it. No link if the job
died before.

**Evidence against.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job
from sexton.model.chain import Strength

ends_job(
    __name__,
    cause="full_filesystem",
    story="a job could not write and died",
    ending=Ending(
        re.compile(r"no space|enospc|disk full|errno 28|inodes|bus error|sigbus", re.I),
        re.compile(r"\boom|out of memory|connection|time[ds]?[ -]?out|preempt|NCCL", re.I),
        "the filesystem was full",
        soon=Strength.POSSIBLE,
    ),
)
