"""A job died soon after an interface was reset, and nobody counted what TCP lost meanwhile.

**Rule.** Only where TCP's counters were not read over that time: where they were, the loss speaks
for itself (`nic_reset_drops_connections`, `dropped_connections_kill_job`) or is not there.
*Possible*, where the death was marked within ten minutes after a reset; never more, since nothing
shows that the job lost a connection. No link where it died before.

**Speaks against it.** A mark that names another death.
"""

from __future__ import annotations

from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.detect.detectors.network.nic_resets import resets
from sexton.explain.links.jobs.dropped_connections_kill_job import follows, other_deaths
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
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
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after a reset."""
    read = window.bounds_of(TcpCounters)
    if read is not None and read[1] > read[0]:
        return None
    deaths = marks(effect, window)
    waits = [follows((at, at), deaths) for at in resets(cause, window)]
    soonest = min((wait for wait in waits if wait is not None), default=None)
    if soonest is None:
        return None
    jobs = effect.entities.get("job", ())
    return Link(
        "nic_reset_kills_job",
        cause.id,
        effect.id,
        Strength.POSSIBLE,
        f"marked {seconds(soonest)} after a reset; what TCP lost was not read",
        shared=jobs,
        against=other_deaths(jobs),
    )
