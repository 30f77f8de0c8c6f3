"""The prose of a verdict: its first paragraph, competing causes and timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sexton.detect.registry import detector_of, is_marked, title_of
from sexton.explain.story import short
from sexton.model.chain import Chain, Contest, Rival, Strength
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Finding, Verdict
from sexton.model.text import clock, printable, seconds
from sexton.reports.text.blocks import block, labelled

_MOST_RIVALS = 3


def lead(diagnosis: Diagnosis) -> str:
    """What is wrong, in a paragraph: how each chain begins and ends, and what no chain explains."""
    known = diagnosis.by_id
    sentences: dict[str, str] = {}
    for chain in shown(diagnosis)[:2]:
        ends = [known[name] for name in (*chain.findings[:2], *chain.findings[-2:])]
        sentences |= {finding.id: sentence(finding, short(finding.summary)) for finding in ends}
    sentences |= {
        name: sentence(known[name], known[name].summary) for name in diagnosis.unexplained
    }
    return " ".join(sentences.values())


def replayed_lines(diagnosis: Diagnosis, span: str, width: int) -> Iterator[str]:
    """Which recording and which span of it this is; nothing for a live node."""
    replayed = diagnosis.replayed
    if replayed is None:
        return
    length = seconds(max(diagnosis.end - diagnosis.start, 0.0))
    text = f"{span} ({length}), from {printable(replayed.recording)}"
    yield from labelled("REPLAY", [text], width)
    yield from labelled("", [printable(note) for note in replayed.notes], width)


def verdict_words(finding: Finding) -> str:
    """Its summary, marked if it is unknown or not applicable."""
    prefix = {Verdict.UNKNOWN: "unknown: ", Verdict.NOT_APPLICABLE: "not applicable: "}
    return prefix.get(finding.verdict, "") + finding.summary


def sentence(finding: Finding, summary: str) -> str:
    """Its summary as a sentence; the name of a thing keeps its own spelling."""
    named = any(summary.startswith(name) for names in finding.entities.values() for name in names)
    return (summary if named else summary[:1].upper() + summary[1:]) + "."


def shown(diagnosis: Diagnosis) -> tuple[Chain, ...]:
    """Chains worth showing: not one that repeats a crash loop as churn, nor one that adds only
    notes to what is shown."""
    known = diagnosis.by_id
    covered: set[str] = set()
    kept = []
    for chain in diagnosis.chains:
        fresh = [known[name] for name in chain.findings if name not in covered]
        if is_twin(chain.root, diagnosis) or (
            covered and not any(finding.is_problem for finding in fresh)
        ):
            continue
        kept.append(chain)
        covered.update(chain.findings)
    return tuple(kept)


def is_twin(cause: str, diagnosis: Diagnosis) -> bool:
    """Does a chain begin with the same problem, named more precisely? Churn may be the cgroups of
    a crash loop."""
    detector = detector_of(cause)
    precise = "" if detector is None else detector.yields_to
    if precise not in (chain.root for chain in diagnosis.chains):
        return False
    units = diagnosis.by_id[cause].entities.get("unit", ())
    looping = diagnosis.by_id[precise].entities.get("unit", ())
    return bool(units) and set(units) <= set(looping)


def chain_title(chain: Chain, number: int) -> str:
    """The heading of a chain: how sure it is as a whole."""
    sure = f"weakest link: {chain.strength}"
    if chain.strength is Strength.PROVEN:
        partial = any(link.is_partial for link in chain.links)
        sure = "proven in part" if partial else "every link proven"
    return f"{'ALSO' if number else 'CAUSE CHAIN'} ({sure})"


def new_links(chains: Sequence[Chain]) -> Iterator[Chain]:
    """Of each chain, the links that no earlier chain has shown."""
    covered: set[str] = set()
    for chain in chains:
        fresh = tuple(
            link for link in chain.links if link.cause not in covered or link.effect not in covered
        )
        if fresh:
            yield Chain(fresh)
        covered.update(chain.findings)


def rivals(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """Causes that were weighed against each other, one line for each symptom."""
    lines = (_weighed(contest, diagnosis) for contest in diagnosis.contests)
    yield from labelled("RIVALS", [line for line in lines if line], width)


def _weighed(contest: Contest, diagnosis: Diagnosis) -> str:
    first, *others = contest.rivals
    others = [rival for rival in others if not is_twin(rival.cause, diagnosis)]
    if not others:
        return ""
    words = f"{title_of(contest.symptom)}: {title_of(first.cause)} ({first.strength})"
    even = [rival for rival in others if rival.strength is first.strength]
    less = [rival for rival in others if rival.strength is not first.strength]
    if even:
        words += f" as well as {', '.join(map(_rival, even[:_MOST_RIVALS]))}"
    if less:
        words += f" rather than {', '.join(map(_rival, less[:_MOST_RIVALS]))}"
    return words


def _rival(rival: Rival) -> str:
    why = f": {rival.against[0]}" if rival.against else ""
    return f"{title_of(rival.cause)} ({rival.strength}{why})"


def coincidences(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """What rose together, and what would show more."""
    lines = [
        f"{coincidence.sentence}; stronger evidence: {coincidence.would_prove}"
        for coincidence in diagnosis.coincidences
    ]
    yield from labelled("TOGETHER", lines, width)


def story(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """The best chain as a timeline."""
    if not diagnosis.story:
        return
    yield ""
    yield " TIMELINE"
    for line in diagnosis.story:
        yield from block(line, width, "   ", first=" ")


def died(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """A job's death that was marked on a node that is not sick, and whether anything explains
    it."""
    death = next(filter(is_marked, diagnosis.findings), None)
    if death is None:
        return
    text = f"{death.summary}, at {clock(death.end)} UTC."
    if death.id in diagnosis.unexplained:
        unseen = diagnosis.exit is Exit.CANNOT_TELL
        what = "but not everything could be read" if unseen else "check the job's other nodes"
        text += f" Nothing recorded on this node explains it; {what}."
    yield from block(text, width, " ")
    if death.id not in diagnosis.unexplained:
        yield from story(diagnosis, width)
    yield ""
