"""A job whose tasks share one crowded core misses a deadline and is given up.

**Rule.** That of `starved_tasks_end_job`, for tasks that waited for one core instead of for the
node: the death must have been marked after the wait began. No link where the wait is only noted.

**Speaks against it.** The same: a mark that names memory, a lost connection or an eviction.
"""

from __future__ import annotations

from dataclasses import replace

from sexton.explain.links.jobs import starved_tasks_end_job
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="contended_core",
    effect="job_deaths",
    story="a job died while tasks waited for one core",
    proof="the job's last error message: mark its death with it (sexton recording mark)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The first death after tasks began to wait."""
    found = starved_tasks_end_job.join(cause, effect, window) if cause.is_problem else None
    return None if found is None else replace(found, id="contended_core_ends_job")
