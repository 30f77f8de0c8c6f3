"""A job died soon after an interface was reset, and TCP's losses were not recorded.

**Rule.** Only if TCP's counters were not read over that time. If they were, other links show the
loss (`nic_reset_drops_connections`, `dropped_connections_kill_job`), or there was none.
*Possible*, if the death was marked within ten minutes after a reset; never more, since nothing
shows that the job lost a connection. No link if it died before.

**Evidence against.** A mark that names another cause of death.
"""

from __future__ import annotations

from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.detect.detectors.network.nic_resets import reset_times
from sexton.explain.job_ends import follows, other_deaths
from sexton.explain.links.jobs.dropped_connections_kill_job import ELSE
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.net import TcpCounters
from sexton.model.text import seconds
from sexton.model.window import Window


@link(
    cause="nic_resets",
    effect="job_deaths",
    story="a job died as a result",
    proof="what TCP lost meanwhile (/proc/net/snmp, read by sexton record)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first death after a reset."""
    read = window.bounds_of(TcpCounters)
    if read is not None and read[1] > read[0]:
        return None
    deaths = marks(effect, window)
    waits = [follows(at, at, deaths) for at in reset_times(cause, window)]
    soonest = min((wait for wait in waits if wait is not None), default=None)
    if soonest is None:
        return None
    jobs = effect.entities.get("job", ())
    return Bond(
        Strength.POSSIBLE,
        f"marked {seconds(soonest)} after a reset; what TCP lost was not read",
        shared=jobs,
        against=other_deaths(jobs, ELSE),
    )
