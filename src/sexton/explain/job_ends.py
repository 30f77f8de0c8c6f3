"""A job that died after something broke: the rule that several links share.

A mark says when a job died, in words of a person or of the job's last error. A link of this kind
needs the death to have been marked after the cause began. How sure it is depends on how soon that
was, on whether the mark's words name the cause or one of the things it is about, and on how surely
such a cause ends whatever meets it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.explain.links.jobs.dropped_connections_kill_job import (
    LATE_S,
    READ_S,
    SOON_S,
    other_deaths,
)
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.text import seconds, shorten
from sexton.model.window import Window

#: Shorter names are parts of other words.
_SHORTEST = 4
_WIDTH = 60


class Ending(NamedTuple):
    """How a cause ends jobs.

    `named` are words of a mark that name it, `other` those that name another cause, `after` is what
    had happened ("the disk was full"). The link is `sure` where the mark names the cause and was
    set while that lasted or within a minute of it; `soon` where it does not, within a minute of the
    beginning; else possible.
    """

    id: str
    named: re.Pattern[str]
    other: re.Pattern[str]
    after: str
    soon: Strength = Strength.LIKELY
    sure: Strength = Strength.PROVEN


def ended(ending: Ending, cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The link to the first death marked after the cause began; `None` where none was."""
    if cause.start is None:
        return None
    end = cause.end or cause.start
    deaths = [at for at in marks(effect, window) if cause.start - READ_S <= at <= end + LATE_S]
    if not deaths:
        return None
    waited = max(min(deaths) - cause.start, 0.0)
    jobs = effect.entities.get("job", ())
    named = next((job for job in jobs if ending.named.search(job) or _names(job, cause)), None)
    strength = Strength.POSSIBLE
    if named is not None and min(deaths) <= end + SOON_S:
        strength = ending.sure
    elif waited <= SOON_S:
        strength = ending.soon
    words = f', and "{shorten(named, _WIDTH)}" names it' if named is not None else ""
    return Link(
        ending.id,
        cause.id,
        effect.id,
        strength,
        f"marked {seconds(waited)} after {ending.after}{words}",
        shared=jobs,
        against=other_deaths((job for job in jobs if job != named), ending.other),
    )


def _names(job: str, cause: Finding) -> bool:
    """Do the mark's words name something that the cause is about?"""
    things = [name for names in cause.entities.values() for name in names]
    called = (name.partition("[")[0] for name in things)
    return any(len(name) >= _SHORTEST and name in job for name in called)
