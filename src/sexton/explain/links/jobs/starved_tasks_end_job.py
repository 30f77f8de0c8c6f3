"""A job whose tasks get too little CPU time misses a deadline and is given up.

**Rule.** The death must have been marked after the starvation began. *Likely*: within a minute of
it, and the mark's words name something late (a time-out, a heartbeat, a watchdog). *Possible*:
within ten minutes. Never proven: nothing shows which of the job's tasks waited. No link where the
job died before, or later.

**Speaks against it.** A mark that names another cause: memory, a lost connection, an eviction.
"""

from __future__ import annotations

import re

from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.explain.links.jobs.dropped_connections_kill_job import SOON_S, follows, other_deaths
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.text import seconds, shorten
from sexton.model.window import Window

_LATE = re.compile(
    r"time[ds]?[ -]?out|heartbeat|watchdog|deadline|too slow|not respond|unresponsive|liveness",
    re.IGNORECASE,
)
_ELSE = re.compile(
    r"\boom|out of memory|\b137\b|reset by peer|broken pipe|connection|evict|preempt", re.IGNORECASE
)


@link(
    cause="cpu_pressure",
    effect="job_deaths",
    story="a job died while its tasks waited for a core",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after tasks began to wait."""
    if cause.start is None:
        return None
    found = follows((cause.start, cause.end or cause.start), marks(effect, window))
    if found is None:
        return None
    jobs = effect.entities.get("job", ())
    named = next((job for job in jobs if _LATE.search(job)), None)
    words = f', and "{shorten(named, 60)}" names a delay' if named else ""
    return Link(
        "starved_tasks_end_job",
        cause.id,
        effect.id,
        Strength.LIKELY if named is not None and found <= SOON_S else Strength.POSSIBLE,
        f"marked {seconds(max(found, 0.0))} after tasks waited{words}",
        shared=jobs,
        against=other_deaths(jobs, _ELSE),
    )
