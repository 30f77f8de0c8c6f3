"""A job that died after something broke: the rules that several links share.

A mark says when a job died, in an operator's words or the job's last error. These links need the
death to be marked after the cause began. How sure they are depends on how soon that was, on whether
the mark names the cause or an entity of it, and on how surely such a cause ends a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from sexton.detect.detectors.jobs.job_deaths import NAME as JOB_DEATHS
from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.explain.order import READ_S
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding, Severity
from sexton.model.text import seconds, shorten
from sexton.model.window import Window

#: A mark this soon after its cause is strong evidence; later than `LATE_S` it is none.
SOON_S = 60.0
LATE_S = 600.0
PROOF = "the job's last error message: mark its death with it (sexton recording mark)"
#: Shorter names are parts of other words.
_SHORTEST = 4
_WIDTH = 60


class Ending(NamedTuple):
    """How a cause ends jobs.

    Marks that match `named` name the cause, those that match `other` name another one; `after` is
    what had happened ("the disk was full"). A mark that names the cause makes the link `sure` if it
    was set while the cause lasted or within a minute of its end; any other mark makes it `soon` if
    it was set within a minute of its beginning. Everything else is *possible*. A cause of less than
    `least` severity ends no job. `calls_it` is what such a mark names, for the sentence.
    """

    named: re.Pattern[str]
    other: re.Pattern[str]
    after: str
    soon: Strength = Strength.LIKELY
    sure: Strength = Strength.PROVEN
    least: Severity = Severity.INFO
    calls_it: str = "it"


def ends_job(module: str, cause: str, story: str, ending: Ending) -> None:
    """Register a link from `cause` to job deaths that needs no rule but `ended`."""

    def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
        return ended(ending, cause, effect, window)

    join.__module__ = module
    link(cause=cause, effect=JOB_DEATHS, story=story, proof=PROOF)(join)


def ended(ending: Ending, cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The link to the first death marked after the cause began, or None."""
    if cause.start is None or cause.severity.rank < ending.least.rank:
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
    return Bond(
        strength,
        f"marked {seconds(waited)} after {ending.after}{named_words(named)}",
        shared=jobs,
        against=other_deaths((job for job in jobs if job != named), ending.other),
    )


def given_up(ending: Ending, cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The same for a job that waits and gives up only after the cause: a minute is counted from the
    end of the cause, and only words count as a name."""
    waited = None if cause.start is None else follows(cause.start, cause.end, marks(effect, window))
    if waited is None:
        return None
    jobs = effect.entities.get("job", ())
    named = next((job for job in jobs if ending.named.search(job)), None)
    strength = Strength.POSSIBLE
    if waited <= SOON_S:
        strength = ending.soon if named is None else ending.sure
    return Bond(
        strength,
        f"marked {seconds(waited)} after {ending.after}{named_words(named, ending.calls_it)}",
        shared=jobs,
        against=other_deaths(jobs, ending.other),
    )


def follows(start: float, end: float | None, deaths: tuple[float, ...]) -> float | None:
    """Seconds from the end of a cause to the first death marked after it began, 0 while it
    lasted; None if none follows."""
    end = end or start
    waits = [max(at - end, 0.0) for at in deaths if start - READ_S <= at <= end + LATE_S]
    return min(waits, default=None)


def named_words(job: str | None, what: str = "it") -> str:
    """That the text of a mark names the cause; empty if none does."""
    return f', and "{shorten(job, _WIDTH)}" names {what}' if job else ""


def other_deaths(jobs: Iterable[str], other: re.Pattern[str]) -> tuple[str, ...]:
    """Evidence against: marks that name another cause of death."""
    found = (job for job in jobs if other.search(job))
    return tuple(f'"{shorten(job, _WIDTH)}" names another cause of death' for job in found)


def _names(job: str, cause: Finding) -> bool:
    """Does the mark name an entity of the cause?"""
    things = [name for names in cause.entities.values() for name in names]
    called = (name.partition("[")[0] for name in things)
    return any(len(name) >= _SHORTEST and name in job for name in called)
