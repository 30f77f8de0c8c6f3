"""A job that waits for somebody on the other side of a lost connection gives up.

**Rule.** The death must have been marked after the loss began. *Proven*: within a minute of the
loss, and the mark's own words name a lost connection (a time-out, a reset, Ray's
`ObjectFetchTimedOutError`, `ActorDiedError`). *Likely*: within a minute. *Possible*: within ten;
people mark late. No link where the job died before, or later.

**Speaks against it.** A mark that names another death: out of memory, a signal, a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.text import seconds, shorten
from sexton.model.window import Window

SOON_S = 60.0
LATE_S = 600.0
#: A mark is dated when the recorder takes it in, loss by the reading before it was seen.
READ_S = 2.0
_CONNECTION = re.compile(
    r"time[ds]?[ -]?out|connection|unreachable|ActorDied|ObjectFetch|heartbeat|disconnect"
    r"|reset by peer|broken pipe|NCCL|network",
    re.IGNORECASE,
)
_ELSE = re.compile(r"\boom|out of memory|oomkill|killed by|sigkill|preempt|evict", re.IGNORECASE)


@link(
    cause="tcp_loss",
    effect="job_deaths",
    story="a job died as a result",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after the loss began."""
    if cause.start is None:
        return None
    found = follows((cause.start, cause.end or cause.start), marks(effect, window))
    if found is None:
        return None
    jobs = effect.entities.get("job", ())
    named = next((job for job in jobs if _CONNECTION.search(job)), None)
    strength = Strength.LIKELY if found <= SOON_S else Strength.POSSIBLE
    if strength is Strength.LIKELY and named is not None:
        strength = Strength.PROVEN
    words = f', and "{shorten(named, 60)}" names a connection' if named else ""
    return Link(
        "dropped_connections_kill_job",
        cause.id,
        effect.id,
        strength,
        f"marked {seconds(max(found, 0.0))} after TCP lost segments{words}",
        shared=jobs,
        against=other_deaths(jobs),
    )


def follows(cause: tuple[float, float], deaths: tuple[float, ...]) -> float | None:
    """How long after the cause ended the first death was marked, 0 where it still lasted; `None`
    where none follows it."""
    start, end = cause
    waits = [max(at - end, 0.0) for at in deaths if start - READ_S <= at <= end + LATE_S]
    return min(waits, default=None)


def other_deaths(jobs: Iterable[str], other: re.Pattern[str] = _ELSE) -> tuple[str, ...]:
    """Marks whose words name another death."""
    return tuple(
        f'"{shorten(job, 60)}" names another cause of death' for job in jobs if other.search(job)
    )
