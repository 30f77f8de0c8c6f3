"""A job whose tasks share one crowded core misses a deadline and is aborted.

**Rule.** That of `starved_tasks_end_job`, for tasks that waited for one core instead of for the
node: the death must have been marked after the wait began. No link if the wait is no problem.

**Evidence against.** The same: a mark that names memory, a lost connection or an eviction.
"""

from __future__ import annotations

from sexton.explain.job_ends import PROOF
from sexton.explain.links.jobs import starved_tasks_end_job
from sexton.explain.registry import link
from sexton.model.chain import Bond
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="contended_core",
    effect="job_deaths",
    story="a job died while tasks waited for one core",
    proof=PROOF,
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first death after tasks began to wait."""
    return starved_tasks_end_job.join(cause, effect, window) if cause.is_problem else None
