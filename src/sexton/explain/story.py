"""The best chain as a timeline: one sentence for each link, with the time of day.

Each sentence says when, what led to what, how sure that is, and what was seen. The last ones say
what was not seen and would have proved more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sexton.detect.registry import all_detectors, detector_of
from sexton.explain.order import READ_S
from sexton.explain.registry import rule_of
from sexton.explain.rivals import by_stacks
from sexton.model.chain import Chain, Link, Strength
from sexton.model.finding import Evidence, Finding, Verdict
from sexton.model.text import clock, day, printable, seconds, shorten
from sexton.model.window import Window

#: A clause includes its parentheses; a second one is added if the first is short.
_CLAUSE = re.compile(r"(?:\([^()]*\)|[^(,;:]|[,:](?! ))+")
_SHORT = 44
_LONG = 110
#: A finding that lasts through the window, give or take this, needs no time of day.
_EDGE_S = 1.5
#: With stacks taken, there is nothing more to prove by them.
_STACKS = "--stacks"


def timeline(chain: Chain, findings: Mapping[str, Finding], window: Window) -> tuple[str, ...]:
    """The sentences for a chain; `findings` are by id."""
    known = [findings[name] for name in chain.findings]
    sentences = [_beginning(_words(known[0], chain.links[0].shared), window)]
    before = known[0].start
    for link, effect in zip(chain.links, known[1:], strict=True):
        at = _moment(effect, window, before) if link.since is None else link.since
        when = _when(effect, at, window)
        seen = _words(effect, link.shared)
        if link.since is not None:
            # Only that part has this cause, and the link says how much it is.
            when = f"From{when.removeprefix('At')}on " if when else ""
            sentences.append(_step(link, link.sentence, when))
            before = at
        elif at is None or before is None or at >= before:
            sentences.append(_step(link, seen, when))
            before = before if at is None else at
        elif at >= before - READ_S:
            # Readings do not show which of the two was first.
            repeats = bool(when) and clock(before) in sentences[-1]
            when = "In the same seconds " if repeats else when
            sentences.append(_step(link, seen, when))
        else:
            # The worst of it was before: say what joins the two, without a time.
            sentences.append(_step(link, link.sentence, ""))
    sentences += _not_seen(chain, findings)
    return tuple(sentences)


def evidence_about(finding: Finding, names: Sequence[str]) -> Evidence | None:
    """What shows a finding best where it is joined to another by these entities.

    That is its first evidence, unless it is about another thing of the same kind: of a disk and a
    file server that both do not answer, the disk broke the filesystem.

    >>> from sexton.model.finding import Severity
    >>> shown = [Evidence(f"no answer, {name}", "1", "0", "", "") for name in ("nfs1", "sda")]
    >>> things = {"device": ("nfs1", "sda"), "task": ("cp[71]",)}
    >>> found = Finding(
    ...     "stuck", Verdict.PRESENT, Severity.WARNING, "", entities=things, evidence=tuple(shown))
    >>> [evidence_about(found, names).what for names in (("sda1", "sda"), ("cp[71]",), ())]
    ['no answer, sda', 'no answer, nfs1', 'no answer, nfs1']
    """
    if not finding.evidence:
        return None
    first = finding.evidence[0]
    same = {
        thing
        for things in finding.entities.values()
        if not set(names).isdisjoint(things)
        for thing in things
    }
    if not _mentions(first, same - set(names)) or _mentions(first, names):
        return first
    others = (evidence for evidence in finding.evidence if not evidence.outlook)
    return next((evidence for evidence in others if _mentions(evidence, names)), first)


def _mentions(evidence: Evidence, names: Iterable[str]) -> bool:
    words = (rf"(?<![\w.:/-]){re.escape(name)}(?![\w/-])" for name in names)
    return any(re.search(word, evidence.what) for word in words)


def _words(finding: Finding, names: Sequence[str]) -> str:
    """What was seen, in a clause: its summary, or the evidence about the things in the chain."""
    about = evidence_about(finding, names)
    if about is None or about is finding.evidence[0]:
        return short(finding.summary)
    return _fitted(about.what)


def _beginning(seen: str, window: Window) -> str:
    node = window.node
    where = f"On {shorten(printable(node.hostname), 40)}" if node is not None else "On this node"
    date = day(window.start)
    on = f" on {date}" if date else ""
    span = f"{clock(window.start)} to {clock(window.end)} UTC, {seconds(window.seconds)}"
    return f"{where}{on} ({span}): {seen}."


def _step(link: Link, seen: str, when: str) -> str:
    rule = rule_of(link.id)
    text = rule.story if rule is not None and rule.story else link.sentence
    sentence = f"{text} ({link.sure}): {seen}."
    return f"{when}{sentence}" if when else sentence[:1].upper() + sentence[1:]


def _moment(finding: Finding, window: Window, before: float | None) -> float | None:
    """When it began; if it happened more than once, the first time after the previous sentence."""
    known = detector_of(finding.id)
    if known is None or known.moments is None or before is None:
        return finding.start
    later = [value for value in known.moments(finding, window) if value >= before]
    return min(later, default=finding.start)


def _when(finding: Finding, start: float | None, window: Window) -> str:
    """The time of day; empty if it lasts through the window."""
    if start is None:
        return ""
    end = finding.end if finding.end is not None else start
    whole = start <= window.start + _EDGE_S and end >= window.end - _EDGE_S
    at = "" if whole else clock(start)
    earlier = f"{day(start)} " if day(start) != day(window.start) else ""
    return f"At {earlier}{at} UTC " if at else ""


def short(summary: str) -> str:
    """The first clause of a summary, or two short ones.

    >>> short("68,441 dying memory cgroups (not zombie processes), 240 live, about 6")
    '68,441 dying memory cgroups (not zombie processes)'
    >>> short("eth0 was reset once, queue 5 on core 5: its poll was starved")
    'eth0 was reset once, queue 5 on core 5'
    >>> short(f"core 1 was held by {'a very long name ' * 6}of lab.service")[38:]
    'very long name … a very long name a very long name of lab.service'
    >>> "…" in short("one " * 27 + "12")
    False
    """
    ends = [found.end() for found in _CLAUSE.finditer(summary)]
    if not ends:
        return _fitted(summary)
    two = len(ends) > 1 and ends[0] < _SHORT and ends[1] <= _LONG
    return _fitted(summary[: ends[1 if two else 0]].strip())


def _fitted(clause: str) -> str:
    """A long clause without words from its middle: names are at both ends."""
    if len(clause) <= _LONG:
        return clause
    head, gap, tail = shorten(clause, _LONG - 2).partition("…")
    if not gap or " " not in head or " " not in tail:
        return shorten(clause, _LONG)
    return f"{head.rpartition(' ')[0]} … {tail.partition(' ')[2]}"


def _not_seen(chain: Chain, findings: Mapping[str, Finding]) -> Iterator[str]:
    unproven = [link for link in chain.links if link.strength is not Strength.PROVEN]
    rules = [(link, rule_of(link.id)) for link in unproven]
    proofs = dict.fromkeys(
        rule.proof
        if link.covers is None
        else f"the origin of the other {link.covers[1] - link.covers[0]:,}"
        for link, rule in rules
        if rule is not None and rule.proof and not (_STACKS in rule.proof and by_stacks(link))
    )
    if proofs:
        yield f"Stronger evidence, not available here: {'; '.join(proofs)}."
    last = detector_of(chain.symptom)
    if last is not None and last.ends_jobs and not _has_marks(findings):
        yield "Whether a job died is unknown (sexton recording mark)."


def _has_marks(findings: Mapping[str, Finding]) -> bool:
    """Was anything marked that may be a death?"""
    named = [findings.get(check.id) for check in all_detectors() if check.marked]
    return any(found is not None and found.verdict is not Verdict.NOT_APPLICABLE for found in named)
