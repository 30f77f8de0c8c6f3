"""A GPU fails, and the job that ran on it dies.

**Rule.** Only faults of the GPU: what the program itself did wrong (Xid 13, 31, 43, 45) is its own
death and no cause of it. The death must have been marked after the first fault. *Proven*: while
they lasted or within a minute, and the mark's words name it (CUDA, NCCL, NVLink, ECC, Xid, HIP, a
GPU) or the process in the driver's line. *Likely*: within a minute. *Possible*: within ten. No link
if the job died before.

**Evidence against.** A mark that names another cause: out of memory on the node, an eviction, a
full disk.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ends_job
from sexton.model.finding import Severity

ends_job(
    __name__,
    cause="gpu_errors",
    story="the job that ran on it died",
    ending=Ending(
        re.compile(r"cuda|nccl|nvlink|\becc\b|\bxid\b|\bhip\b|rccl|rocm|\bgpus?\b|cublas", re.I),
        re.compile(r"oomkill|\b137\b|no space|preempt|evict|reset by peer", re.I),
        "a GPU failed",
        least=Severity.WARNING,
    ),
)
