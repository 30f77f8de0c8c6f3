"""A GPU fails, and the job that ran on it dies.

**Rule.** Only faults of the GPU: what the program itself did wrong (Xid 13, 31, 43, 45) is its own
death and no cause of it. The death must have been marked after the first fault. *Proven*: while
they lasted or within a minute, and the mark's words name it (CUDA, NCCL, NVLink, ECC, Xid, HIP, a
GPU) or the process in the driver's line. *Likely*: within a minute. *Possible*: within ten. No link
where the job died before.

**Speaks against it.** A mark that names another cause: out of memory on the node, an eviction, a
full disk.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import Ending, ended
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding, Severity
from sexton.model.window import Window

_ENDING = Ending(
    "gpu_error_ends_job",
    re.compile(r"cuda|nccl|nvlink|\becc\b|\bxid\b|\bhip\b|rccl|rocm|\bgpus?\b|cublas", re.I),
    re.compile(r"oomkill|\b137\b|no space|preempt|evict|reset by peer", re.I),
    "a GPU failed",
)


@link(
    cause="gpu_errors",
    effect="job_deaths",
    story="the job that ran on it died",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after a GPU failed."""
    if cause.severity is Severity.INFO:
        return None
    return ended(_ENDING, cause, effect, window)
