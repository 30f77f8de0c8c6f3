"""A job's death was marked in the recording.

**What is seen.** Marks set in the recording with ``sexton recording mark DIR "job 17 died"``, by
an operator or by the scheduler's own hook, whose words describe an end: died, killed, crashed,
failed, lost, timed out, and the terms that Ray and Kubernetes use. The time is when the recorder
read the mark, within a second of its being set. There is no threshold: one death counts.

**Why it hurts.** It is what everything else is about: the node's symptoms before that moment are
worth more than those of any other hour. It is not a problem *of the node* and does not change the
exit code: jobs die of their own bugs and of faults of other nodes, and automation that drains nodes
by the exit code would drain a healthy one because of a mark. If the node caused it, the cause is a
problem, and a chain leads from it to the death. If nothing recorded explains it, the report says so
first: that this node is not to blame is also an answer.

**What would make it wrong.** It was entered by hand and not measured. A mark is
set after the death, seconds or minutes later, so a cause may lie further back than it seems, and
the job may have died of itself or of another node. A mark without such words ("new image") is
counted and not believed to be a death; one that names a job but not its end leaves it
*unknown*. Live, and in a recording without marks, there is nothing to judge.

**Check by hand.** ``sexton recording info DIR`` lists the marks; the job's own log and the
scheduler (``kubectl get events``, ``ray list actors``, ``sacct -j JOB``) show when it really ended.

**What to do.** Start from that time: ``sexton why TIME --from DIR``. If no chain ends at it, look
at the other nodes of the same job first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sexton.detect.findings import absent, names, not_applicable, unknown
from sexton.detect.registry import detector
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.recorder import Mark
from sexton.model.text import count, printable, shorten
from sexton.model.window import Window

NAME = "job_deaths"

#: Words for an end, by their beginnings ("killed", "crashing"), and error names that contain one.
_END = r"(?:died|dies|dead\b|death|kill|crash|fail|lost\b|abort|hung|hang|stuck|gone\b|evict|oom)"
_ENDED = re.compile(
    rf"(?<![a-z]){_END}|(?<![a-z])(?:sigkill|terminated|unreachable|disconnected|preempt|broke)"
    r"|time[ds]?[ -]?out|actordied|workercrashed|nodedied",
    re.IGNORECASE,
)
#: Negations: "not died", "without a crash".
_NOT = re.compile(
    rf"(?<![a-z])(?:not?|never|without)\s(?:\w{{1,20}}\s){{0,2}}{_END}", re.IGNORECASE
)
#: What a job may be called.
_JOB = re.compile(
    r"(?<![a-z])(?:jobs?|actors?|pods?|workers?|trainers?|training|ranks?|tasks?|runs?|ray)(?![a-z])",
    re.IGNORECASE,
)
_WIDTH = 120
_SHOWN = 8
#: A job is named by its mark, which findings shorten in the middle.
_HEAD = 40


class _Remark(NamedTuple):
    text: str
    wall_s: float

    @property
    def is_job_end(self) -> bool:
        return _ENDED.search(_NOT.sub(" ", self.text)) is not None

    @property
    def mentions_a_job(self) -> bool:
        return _JOB.search(self.text) is not None and _NOT.search(self.text) is None


def marks(finding: Finding, window: Window) -> tuple[float, ...]:
    """When its deaths were marked (UNIX), by the marks, else by the finding."""
    jobs = {job[:_HEAD] for job in finding.entities.get("job", ())}
    found = tuple(
        batch.wall_s
        for batch in window.batches(Mark) or ()
        for row in batch.rows
        if printable(row.text)[:_HEAD] in jobs
    )
    return found or (() if finding.start is None else (finding.start,))


@detector(
    title="job deaths",
    story="A job died",
    lanes=("events", "tcp"),
    about=("job",),
    answers={"job": 1},
    moments=marks,
    marked=True,
)
def detect(window: Window) -> Finding:
    """Every marked death, the oldest first."""
    remarks = [
        _Remark(row.text, batch.wall_s)
        for batch in window.batches(Mark) or ()
        for row in batch.rows
        if window.start <= batch.wall_s <= window.end
    ]
    if not remarks:
        return not_applicable(NAME, "no job's death was marked")
    deaths = [remark for remark in remarks if remark.is_job_end]
    if deaths:
        return _died(deaths)
    vague = [remark for remark in remarks if remark.mentions_a_job]
    if vague:
        text = shorten(vague[-1].text, _WIDTH)
        lacking = Missing(
            f'whether "{text}" means that it died', 'sexton recording mark DIR "job 17 died"'
        )
        return unknown(NAME, f'a mark names a job but not its death: "{text}"', [lacking])
    return _none(remarks)


def _died(deaths: list[_Remark]) -> Finding:
    last = deaths[-1]
    before = f" (and {len(deaths) - 1:,} more before)" if len(deaths) > 1 else ""
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.INFO,
        f'"{shorten(last.text, _WIDTH)}" (marked by hand){before}',
        entities={"job": names(shorten(death.text, _WIDTH) for death in deaths)},
        start=deaths[0].wall_s,
        end=last.wall_s,
        evidence=tuple(_evidence(death) for death in deaths[-_SHOWN:]),
    )


def _evidence(death: _Remark) -> Evidence:
    return Evidence(
        "mark",
        shorten(death.text, _WIDTH),
        "none",
        "remark",
        "sexton recording mark",
        None,
        "it was set long after the death, or the job died of something else",
    )


def _none(remarks: list[_Remark]) -> Finding:
    none = Evidence(
        "marks of a death",
        f"0 of {len(remarks):,}",
        "0",
        "remarks",
        "sexton recording mark",
        0,
        f'this mark means one: "{shorten(remarks[-1].text, _WIDTH)}"',
    )
    summary = f"{count(len(remarks), 'mark')} in this window, none names a death"
    return absent(NAME, summary, [none])
