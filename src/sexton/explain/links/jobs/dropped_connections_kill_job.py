"""A job that waits for the peer of a lost connection gives up.

**Rule.** The death must have been marked after the loss began. *Proven*: within a minute of the
loss, and the mark's own words name a lost connection (a timeout, a reset, Ray's
`ObjectFetchTimedOutError`, `ActorDiedError`). *Likely*: within a minute. *Possible*: within ten;
people mark late. No link if the job died before, or later.

**Evidence against.** A mark that names another cause: out of memory, a signal, an operator.
"""

from __future__ import annotations

import re

from sexton.explain.job_ends import PROOF, Ending, given_up
from sexton.explain.registry import link
from sexton.model.chain import Bond
from sexton.model.finding import Finding
from sexton.model.window import Window

#: Words of a mark that name another death than by a lost connection.
ELSE = re.compile(r"\boom|out of memory|oomkill|killed by|sigkill|preempt|evict", re.IGNORECASE)
_ENDING = Ending(
    re.compile(
        r"time[ds]?[ -]?out|connection|unreachable|ActorDied|ObjectFetch|heartbeat|disconnect"
        r"|reset by peer|broken pipe|NCCL|network",
        re.IGNORECASE,
    ),
    ELSE,
    "TCP lost segments",
    calls_it="a connection",
)


@link(cause="tcp_loss", effect="job_deaths", story="a job died as a result", proof=PROOF)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first death after the loss began."""
    return given_up(_ENDING, cause, effect, window)
