"""A diagnosis about one entity: the findings about it, and the chains through it.

A chain through a core must stay on *that* core: if a link joins two findings only by another core,
the chain is cut there. A link that names nothing of the queried kind (a walk over dying cgroups
names no interface) applies to all of them.

A finding is about a moment if it was present within a minute of it; one without a time, or one that
lasted through the whole window, counts as present.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sexton.detect.registry import answering, essentials
from sexton.detect.stacks import on_cores
from sexton.explain.event_times import occasions
from sexton.explain.held import MUCH
from sexton.explain.homes import concerns_home
from sexton.explain.story import timeline
from sexton.explain.subject import (
    Names,
    candidates,
    concerns,
    is_named,
    names_for,
    no_such_name,
    with_findings,
)
from sexton.model.chain import Chain, Link
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Missing, Verdict
from sexton.model.text import printable
from sexton.model.why import Subject, Why
from sexton.model.window import Window

#: Seconds between a moment and a finding about it, at most.
NEAR_S = 60.0


def answer(
    subject: Subject,
    diagnosis: Diagnosis,
    window: Window,
    also: Iterable[Subject] = (),
    known: Sequence[float] = (),
) -> Why:
    """Everything the diagnosis says about it; callers that have signals add aligned statistics.

    `also` is what else the words could have meant, `known` its moments if the window lacks some.
    """
    present = [finding for finding in diagnosis.findings if finding.verdict is Verdict.PRESENT]
    mine = [finding for finding in present if _concerns(finding, subject, window)]
    names = [finding.id for finding in mine]
    chains = through(subject, names, diagnosis)
    linked = list(dict.fromkeys(name for chain in chains for name in chain.findings))
    names = list(dict.fromkeys([*(name for name in linked if name in names), *names]))
    named = dict.fromkeys([*names, *linked])
    questions = _detectors_for(subject, diagnosis)
    return Why(
        about=subject,
        diagnosis=diagnosis,
        findings=tuple(names),
        detectors=questions,
        decisive=essentials() if subject.kind == "moment" else questions[:1],
        chains=chains,
        story=timeline(chains[0], diagnosis.by_id, window) if chains else (),
        contests=tuple(contest for contest in diagnosis.contests if contest.symptom in named),
        coincidences=tuple(
            coincidence
            for coincidence in diagnosis.coincidences
            if {*coincidence.findings} & {*named}
        ),
        occasions=occasions(subject, window, mine, known),
        missing=tuple(_missing((*named, *questions), diagnosis)),
        also=tuple(also),
    )


def likeliest(meant: Sequence[Subject], diagnosis: Diagnosis) -> tuple[Subject, ...]:
    """What was meant, best first: of two with the same name, the one with findings about it."""

    def rank(subject: Subject) -> int:
        about = [finding for finding in diagnosis.findings if concerns(finding, subject)]
        grades = (2 - found.is_problem - (found.verdict is Verdict.PRESENT) for found in about)
        return min(grades, default=3)

    return tuple(sorted(meant, key=rank))


def through(subject: Subject, names: Sequence[str], diagnosis: Diagnosis) -> tuple[Chain, ...]:
    """The parts of all chains that contain a finding about it, the best chain's first."""
    found: list[Chain] = []
    known = diagnosis.by_id
    for chain in diagnosis.chains:
        for part in _parts(chain, subject, known):
            mine = {*part.findings}
            if mine & {*names} and not any(mine <= {*other.findings} for other in found):
                found.append(part)
    return tuple(found)


def _parts(chain: Chain, subject: Subject, known: Mapping[str, Finding]) -> Iterator[Chain]:
    kept: list[Link] = []
    for link in chain.links:
        if _is_about_others(link, subject, known):
            if kept:
                yield Chain(tuple(kept))
            kept = []
        else:
            kept.append(link)
    if kept:
        yield Chain(tuple(kept))


def _is_about_others(link: Link, subject: Subject, known: Mapping[str, Finding]) -> bool:
    """Do both sides share entities of the queried kind, none of which is the queried one?"""
    others = False
    for finding in (known[link.cause], known[link.effect]):
        for kind, names in finding.entities.items():
            for name in names:
                if name not in link.shared:
                    continue
                if is_named(subject, kind, name) or _contains(subject, kind, name):
                    return False
                others = others or kind == subject.kind or (kind, subject.kind) in _PARTS
    return others


#: Kinds that are parts of another: a link by a queue is also one by its interface.
_PARTS = (("queue", "nic"), ("cgroup", "unit"))


def _contains(subject: Subject, kind: str, name: str) -> bool:
    """Is the unit or cgroup below this cgroup? Then a link by it may be its own."""
    if kind != "cgroup":
        return False
    if subject.kind == "cgroup":
        return subject.name.startswith(name.rstrip("/") + "/")
    return subject.kind == "unit" and (name.endswith(".slice") or name == "/")


def _concerns(finding: Finding, subject: Subject, window: Window) -> bool:
    if subject.kind == "function":
        return _is_in(finding, subject.name, window)
    if subject.kind != "moment" or subject.wall_s is None:
        return concerns(finding, subject) or concerns_home(finding, subject, window)
    start, end = finding.start, finding.end
    first = window.start if start is None else start
    last = window.end if end is None else end
    return first <= subject.wall_s + subject.lasts_s + NEAR_S and last >= subject.wall_s - NEAR_S


def _is_in(finding: Finding, function: str, window: Window) -> bool:
    """Is the function in a fifth or more of the samples of the finding's cores at that time?"""
    cores = finding.entities.get("core", ())
    if finding.start is None or finding.end is None or not cores:
        return False
    rows = on_cores(window, cores, (finding.start, finding.end))
    there = sum(row.samples for row in rows if function in map(printable, row.frames))
    return there >= MUCH * sum(row.samples for row in rows) > 0


def _detectors_for(subject: Subject, diagnosis: Diagnosis) -> tuple[str, ...]:
    if subject.kind == "symptom":
        return (subject.name,)
    known = diagnosis.by_id
    if subject.kind == "moment":
        return (*essentials(), *(name for name in known if name not in essentials()))
    first, *rest = answering(subject.kind)
    return (first, *(name for name in rest if name in known))


def _missing(names: Iterable[str], diagnosis: Diagnosis) -> Iterator[Missing]:
    """What these findings lack, without repetitions."""
    known = diagnosis.by_id
    seen: set[str] = set()
    for name in dict.fromkeys(names):
        finding = known.get(name)
        if finding is None or finding.verdict not in (Verdict.PRESENT, Verdict.UNKNOWN):
            continue
        for lack in finding.missing:
            if lack.what not in seen:
                seen.add(lack.what)
                yield lack


def explain(
    what: str | Subject, diagnosis: Diagnosis, window: Window, names: Names | None = None
) -> Why:
    """The answer for a subject or a name; `CommandError` if nothing has that name.

    `names` are those of `names_for`, if they were looked up before the diagnosis was made.
    """
    if isinstance(what, Subject):
        return answer(what, diagnosis, window)
    known = with_findings(names or names_for(what, window), diagnosis.findings)
    meant = likeliest(candidates(what, known), diagnosis)
    if not meant:
        raise no_such_name(what, known)
    return answer(meant[0], diagnosis, window, meant[1:])
