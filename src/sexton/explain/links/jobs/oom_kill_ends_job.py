"""The OOM killer kills a process of a job, and the job dies.

**Rule.** The death must have been marked after a kill. *Proven*: within a minute, and the mark
names the killed process, its unit or its pod, or says that memory ran out (OOM, exit code 137,
SIGKILL). *Likely*: within a minute. *Possible*: within ten; people mark late. No link if the job
died before the kill, or later.

**Evidence against.** A mark that names another cause: a lost connection, a timeout.
"""

from __future__ import annotations

import re

from sexton.detect.detectors.jobs.job_deaths import marks
from sexton.detect.oom import Kill, kills
from sexton.explain.job_ends import LATE_S, PROOF, SOON_S, named_words, other_deaths
from sexton.explain.order import READ_S
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.text import printable, seconds
from sexton.model.window import Window

_MEMORY = re.compile(
    r"\boom|out of memory|oomkill|memory|\b137\b|sigkill|signal 9|\bkilled\b", re.IGNORECASE
)
_ELSE = re.compile(
    r"time[ds]?[ -]?out|connection|unreachable|heartbeat|disconnect|reset by peer|broken pipe"
    r"|NCCL|network|preempt",
    re.IGNORECASE,
)
#: Parts of a path that many units share.
_SHORTEST = 4


@link(cause="oom_kills", effect="job_deaths", story="a job died as a result", proof=PROOF)
def join(_cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first death after a kill."""
    deaths = marks(effect, window)
    dated = [(kill.wall_s, kill) for kill in kills(window) if kill.wall_s is not None]
    waits = [
        (max(death - at, 0.0), kill)
        for at, kill in dated
        for death in deaths
        if at - READ_S <= death <= at + LATE_S
    ]
    if not waits:
        return None
    soonest, kill = min(waits, key=lambda wait: wait[0])
    jobs = effect.entities.get("job", ())
    named = next((job for job in jobs if _names(job, kill)), None)
    strength = Strength.POSSIBLE
    if soonest <= SOON_S:
        strength = Strength.LIKELY if named is None else Strength.PROVEN
    return Bond(
        strength,
        f"marked {seconds(soonest)} after {printable(kill.task)} was killed{named_words(named)}",
        shared=jobs,
        against=other_deaths((job for job in jobs if not _MEMORY.search(job)), _ELSE),
    )


def _names(job: str, kill: Kill) -> bool:
    """Do the mark's words name the kill: memory, or the process, its unit or its pod?"""
    if _MEMORY.search(job):
        return True
    place = (kill.task_cgroup or kill.cgroup or "").split("/")
    known = [kill.comm, *(part.rpartition(".")[0] or part for part in place)]
    return any(len(name) >= _SHORTEST and name in job for name in map(printable, known))
