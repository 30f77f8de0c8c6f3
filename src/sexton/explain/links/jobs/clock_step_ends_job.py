"""The clock is set, and a lease or timeout that depends on it ends a job.

**Rule.** The death must have been marked after the step. *Likely*: within a minute, and the mark's
words name something that depends on the clock (a lease, a token, a certificate, a heartbeat, a
timeout). *Possible*: within ten minutes. Never proven: nothing shows which clock the job
reads. No link if the job died before.

**Evidence against.** A mark that names another cause: memory, a full disk, an eviction.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job
from sexton.model.chain import Strength

ends_job(
    __name__,
    cause="clock_steps",
    story="a lease or a time-out of a job ended early",
    ending=Ending(
        re.compile(r"lease|token|certificate|expired|heartbeat|clock|time[ds]?[ -]?out|skew", re.I),
        re.compile(r"\boom|out of memory|no space|preempt|evict|nccl", re.I),
        "the clock was set",
        soon=Strength.POSSIBLE,
        sure=Strength.LIKELY,
    ),
)
