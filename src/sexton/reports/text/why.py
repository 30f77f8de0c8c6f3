"""The answer to `sexton why`: what happened, the chain through it, competing causes, and what was
different in the seconds before; as text, and as `sexton.why/1` (docs/json.md).

Every string of a `Why` is already escaped except those of the aligned signals, which are escaped
here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sexton.detect.registry import title_of
from sexton.model.chain import Chain, Contest, Link
from sexton.model.diagnosis import Exit
from sexton.model.finding import Finding, Verdict
from sexton.model.text import clock, count, day, printable, seconds, shorten
from sexton.model.why import Moment, Why, is_open
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.blocks import (
    LABEL,
    SHADES,
    block,
    clamp,
    headline,
    labelled,
    picked,
    typed,
)
from sexton.reports.text.narrative import (
    chain_title,
    is_twin,
    new_links,
    replayed_lines,
    sentence,
    verdict_words,
)
from sexton.reports.text.settings import config_line, silenced_lines

if TYPE_CHECKING:
    from sexton.model.aligned import Aligned, Ranked

SCHEMA = "sexton.why/1"
_MOST_CHAINS, _MOST_LACKS, _MOST_MOMENTS, _MOST_EVIDENCE = 2, 6, 4, 3
_HERE = "►"
#: What begins and ends this close to the edges of the window lasted throughout.
_EDGE_S = 15.0


def why_text(why: Why, width: int = 88, colour: bool = False) -> str:
    """The whole report; `width` is kept between 60 and 110 columns."""
    width = clamp(width)
    about = f"{shorten(why.about.words, 60)}   {_node(why)}"
    # Nothing unusual about one thing: the node may be sick all the same.
    word = "CALM" if why.exit is Exit.HEALTHY else why.exit.word
    lines = headline(word, about, width, SHADES[why.exit] if colour else "")
    lines += [*_where(why, width), ""]
    lines += block(_answer(why), width, " ")
    for part in (_when, _chains, _story, _rivals, _facts, _before, _not_seen, _do_now, _next):
        section = list(part(why, width))
        lines += ["", *section] if section else []
    replayed = why.diagnosis.replayed is not None
    lines += ["", *config_line(why.diagnosis.settings, width, replayed)]
    lines += [f" exit {int(why.exit)}: {_ending(why)}"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _node(why: Why) -> str:
    node = why.diagnosis.node
    if node is None:
        return "on an unknown node"
    cores = [count(node.cores, "core")] if node.cores else []
    parts = [shorten(printable(node.hostname), 40), *cores, f"Linux {printable(node.kernel)}"]
    return "on " + " · ".join(parts)


def _where(why: Why, width: int) -> Iterator[str]:
    """Which seconds are judged."""
    first, last = why.diagnosis.start, why.diagnosis.end
    span = f"{day(first)} {clock(first)} to {day(last)} {clock(last)} UTC"
    yield from replayed_lines(why.diagnosis, span, width)


def _answer(why: Why) -> str:
    """The answer in sentences."""
    known, about = why.by_id, shorten(why.about.words, 80)
    if why.findings:
        return " ".join([*_found(why), *_unchanged(why), *_unexplained(why)])
    here = why.diagnosis
    watched = seconds(max(here.end - here.start, 0.0))
    if why.exit is Exit.CANNOT_TELL:
        lacking = [name for name in why.decisive if is_open(known.get(name))]
        reasons = dict.fromkeys(known[name].summary for name in lacking if name in known)
        because = f": {'; '.join(reasons)}" if reasons else ""
        return f"Whether anything is wrong with {about} is unknown{because}."
    if why.about.kind == "moment":
        return f"Nothing unusual was found at {about} or within a minute of it."
    if why.about.kind == "symptom":
        return f"This node has no {about}: {known[why.about.name].summary}."
    return f"Nothing unusual was found about {about} in {watched}."


def _found(why: Why) -> Iterator[str]:
    """Its findings; then the root cause of the chain through it, and where the chain leads."""
    known = why.by_id
    chain = why.chains[0] if why.chains else None
    linked = {name for item in why.chains for name in item.findings}
    first = None if chain is None else _foremost(why, chain)
    for name in why.findings:
        if name == first or name not in linked:
            yield sentence(known[name], known[name].summary)
    if chain is None or first is None:
        return
    at = chain.findings.index(first)
    if at:
        yield f"Root cause ({_sure(chain.links[:at])}): {known[chain.root].summary}."
    if at < len(chain.links):
        yield f"It led to ({_sure(chain.links[at:])}): {known[chain.symptom].summary}."


def _unchanged(why: Why) -> Iterator[str]:
    """That nothing began or ended at this moment, if every finding lasted throughout."""
    here = why.diagnosis
    found = [why.by_id[name] for name in why.findings]
    always = all(
        (finding.start is None or finding.start <= here.start + _EDGE_S)
        and (finding.end is None or finding.end >= here.end - _EDGE_S)
        for finding in found
    )
    if why.about.kind == "moment" and always:
        name = shorten(why.about.name, 60)
        yield f"Nothing began or ended near {name}; this was the case throughout."


def _unexplained(why: Why) -> Iterator[str]:
    """For a job's death: nothing on this node explains it."""
    if why.about.kind == "job" and not why.chains:
        yield "Nothing recorded on this node explains it."


def _foremost(why: Why, chain: Chain) -> str | None:
    """The finding of the chain that answers the question; for a moment, the shortest one."""
    inside = [name for name in chain.findings if name in why.findings]
    if why.about.kind == "moment":
        return min(inside, key=lambda name: _length(why.by_id[name]), default=None)
    return next((name for name in why.detectors if name in inside), inside[0] if inside else None)


def _length(finding: Finding) -> float:
    if finding.start is None or finding.end is None:
        return float("inf")
    return finding.end - finding.start


def _sure(links: Sequence[Link]) -> str:
    """As sure as the weakest of them."""
    return Chain(tuple(links)).strength.value


def _when(why: Why, width: int) -> Iterator[str]:
    occasions = why.occasions
    if occasions.moments and why.about.kind != "moment":
        texts = [f"{occasions.words}: {times_of(occasions.moments)}"]
        yield from labelled("WHEN", [*texts, *([occasions.note] if occasions.note else [])], width)
    elif occasions.note:
        yield from labelled("WHEN", [f"{times_of(occasions.moments)}: {occasions.note}"], width)
    others = [f"{subject.kind} {subject.name}" for subject in why.also]
    if others:
        commands = " or ".join(f"sexton why {shorten(name, 60)}" for name in others[:2])
        yield from labelled("SAME NAME", [f"others with this name: {commands}"], width)


def times_of(moments: Sequence[Moment]) -> str:
    """The first and the last ones, in UTC."""
    shown = [clock(moment.wall_s) for moment in moments]
    if len(shown) > _MOST_MOMENTS:
        shown = [*shown[: _MOST_MOMENTS - 2], "…", *shown[-2:]]
    return ", ".join(shown) + " UTC"


def _chains(why: Why, width: int) -> Iterator[str]:
    parts = [chain for chain in new_links(why.chains) if {*chain.findings} & {*why.findings}]
    for number, chain in enumerate(parts[:_MOST_CHAINS]):
        if number:
            yield ""
        yield f" {chain_title(chain, number)}"
        yield from _chain(why, chain, width)
    rest = len(parts) - _MOST_CHAINS
    if rest > 0:
        yield f" and {count(rest, 'more chain')}: --json lists them"


def _chain(why: Why, chain: Chain, width: int) -> Iterator[str]:
    known = why.by_id
    for number, name in enumerate(chain.findings, 1):
        sign = _HERE if name in why.findings else " "
        yield from _hung(f" {sign} {number} ", known[name].summary, width)
        if number <= len(chain.links):
            link = chain.links[number - 1]
            yield from _hung("     └ ", f"{link.sure}: {link.sentence}", width)
            for text in link.against:
                yield from _hung("       ", f"against it: {text}", width)


def _story(why: Why, width: int) -> Iterator[str]:
    if why.story:
        yield " TIMELINE"
        for line in why.story:
            yield from _hung("   ", printable(line), width)


def _rivals(why: Why, width: int) -> Iterator[str]:
    for contest in why.contests:
        kept = tuple(rival for rival in contest.rivals if not is_twin(rival.cause, why.diagnosis))
        if len(kept) > 1:
            yield from _contest(replace(contest, rivals=kept), width)
    for coincidence in why.coincidences:
        more = f"stronger evidence: {coincidence.would_prove}"
        yield from labelled("TOGETHER", [printable(coincidence.sentence), printable(more)], width)


def _contest(contest: Contest, width: int) -> Iterator[str]:
    symptom = title_of(contest.symptom)
    yield from block(f"COMPETING CAUSES of {symptom} (● is in the chain)", width, "   ", first=" ")
    for rival in contest.rivals:
        sign = "●" if rival.chosen else "○"
        cause = title_of(rival.cause)
        yield from _hung(
            f"   {sign} ", f"{cause}, {rival.strength}: {printable(rival.sentence)}", width
        )
        for text in rival.against:
            yield from _hung("     ", f"against it: {printable(text)}", width)


def _facts(why: Why, width: int) -> Iterator[str]:
    """Its measurements, or what was checked if nothing was wrong."""
    known = why.by_id
    if not why.findings:
        some = why.detectors[:6] if why.about.kind != "symptom" else ()
        findings = [known[name] for name in some if name in known]
        texts = [f"{title_of(finding.id)}: {_verdict(finding)}" for finding in findings]
        yield from labelled("CHECKED", texts, width)
        return
    rows: list[tuple[str, str, str]] = []
    for name in why.findings:
        shown = [evidence for evidence in known[name].evidence if not evidence.outlook]
        rows += [
            (evidence.what, evidence.value, evidence.normal) for evidence in shown[:_MOST_EVIDENCE]
        ]
    for number, (what, value, normal) in enumerate(dict.fromkeys(rows)):
        usual = f" (normal: {normal})" if normal else ""
        yield from labelled("" if number else "MEASURED", [f"{what}: {value}{usual}"], width)
    yield from labelled("SILENCED", silenced_lines(known[name] for name in why.findings), width)


def _verdict(finding: Finding) -> str:
    elsewhere = "present, but not about this: " if finding.verdict is Verdict.PRESENT else ""
    return elsewhere + verdict_words(finding)


def _before(why: Why, width: int) -> Iterator[str]:
    if why.aligned is not None:
        from sexton.reports.text.aligned import aligned_lines  # with numpy

        yield from aligned_lines(why.aligned, why.occasions, _named(why), width)
    elif why.not_aligned:
        yield from labelled("BEFORE IT", [f"not compared: {why.not_aligned}"], width)
        if why.remedy:
            yield typed(why.remedy)


def _named(why: Why) -> frozenset[str]:
    """What the chain is about, by the names that signals have; a signal of a process is its
    threads', one of a name all of that name's."""
    known = why.by_id
    lines = [*why.findings, *(why.chains[0].findings if why.chains else ())]
    names: set[str] = set()
    for kind, name in ((k, n) for line in lines for k, some in known[line].entities.items()
                       for n in some):  # fmt: skip
        names.add(f"core {name}" if kind == "core" else name)
        if kind == "task":
            names |= {name.rpartition("[")[0], name.partition("/")[0] + "]"}
    return frozenset(names)


def _not_seen(why: Why, width: int) -> Iterator[str]:
    by_grant: dict[str, list[str]] = {}
    for lack in why.missing[:_MOST_LACKS]:
        by_grant.setdefault(lack.grant, []).append(lack.what)
    label = "NOT SEEN"
    for grant, whats in by_grant.items():
        yield from labelled(label, whats, width)
        label = ""
        if grant:
            yield typed(grant)
    rest = len(why.missing) - _MOST_LACKS
    if rest > 0:
        yield from labelled("", [f"and {rest} more: --json lists them"], width)


def _do_now(why: Why, width: int) -> Iterator[str]:
    if why.exit is not Exit.PROBLEM or not why.chains:
        return
    for number, step in enumerate(why.diagnosis.plan):
        label = "" if number else "DO NOW"
        yield from labelled(label, [f"{step.why}; risk: {step.risk}"], width)
        yield typed(step.do)


def _next(why: Why, width: int) -> Iterator[str]:
    del width
    for number, command in enumerate(why.next):
        yield f" {'' if number else 'NEXT':<{LABEL}} {shorten(command, 300)}"


def _ending(why: Why) -> str:
    about = shorten(why.about.words, 60)
    return {
        Exit.HEALTHY: f"nothing is wrong with {about}"
        if not why.findings
        else "none of the findings is a problem on this node",
        Exit.PROBLEM: f"problem found {_at(why)} {about}",
        Exit.CANNOT_TELL: f"{why.exit.meaning}; see NOT SEEN above",
    }[why.exit]


def _at(why: Why) -> str:
    return {"job": "for", "moment": "at", "symptom": "with"}.get(why.about.kind, "on")


def _hung(lead: str, text: str, width: int) -> Iterator[str]:
    """The text after its lead, its later lines below the beginning of the first."""
    return block(text, width, " " * len(lead), first=lead)


def why_json(why: Why) -> dict[str, Any]:
    """Plain dicts and lists, ready for `json.dumps`."""
    chains = why.chains
    seen = replace(
        why.diagnosis, chains=chains, contests=why.contests, coincidences=why.coincidences
    )
    whole = diagnosis_json(seen)
    findings = {finding["id"]: finding for finding in whole["findings"]}
    names = dict.fromkeys([*why.findings, *(name for chain in chains for name in chain.findings)])
    return {
        "schema": SCHEMA,
        "exit": int(why.exit),
        "about": {
            "kind": why.about.kind,
            "name": why.about.name,
            "words": why.about.words,
            "time": why.about.wall_s,
            "also": [{"kind": subject.kind, "name": subject.name} for subject in why.also],
        },
        "node": whole["node"],
        "window": whole["window"],
        "replayed": whole["replayed"],
        "config": whole["config"],
        "concerned": list(why.findings),
        "findings": [findings[name] for name in names],
        "asked": [
            {"id": name, "verdict": findings[name]["verdict"] if name in findings else "unknown"}
            for name in why.detectors
        ],
        "chain": whole["chains"][0] if chains else None,
        "chains": whole["chains"],
        "story": [printable(sentence) for sentence in why.story],
        "contests": whole["contests"],
        "coincidences": whole["coincidences"],
        "occasions": {
            "what": why.occasions.one,
            "times": [round(moment.wall_s, 3) for moment in why.occasions.moments],
            "note": printable(why.occasions.note),
        },
        "aligned": None if why.aligned is None else _aligned(why.aligned, why),
        "not_aligned": why.not_aligned,
        "missing": [{"what": need.what, "grant": need.grant} for need in why.missing],
        "plan": whole["plan"],
        "next": list(why.next),
    }


def _aligned(aligned: Aligned, why: Why) -> dict[str, Any]:
    walls = {moment.mono_s: moment.wall_s for moment in why.occasions.moments}
    return {
        "events": [walls.get(mono) for mono in aligned.events],
        **picked(aligned, "controls", "before_s", "tested"),
        "false_discovery_rate": aligned.fdr,
        "smallest_p": _finite(aligned.smallest_p),
        "significant": aligned.significant,
        "ranked": [_ranked(signal) for signal in aligned.ranked],
        "notes": [printable(note) for note in aligned.notes],
    }


def _ranked(signal: Ranked) -> dict[str, Any]:
    return {
        "kind": signal.kind,
        "about": printable(signal.about),
        "name": printable(signal.name),
        "unit": printable(signal.unit),
        **{
            name: _finite(value)
            for name, value in picked(signal, "before", "control", "effect", "p", "q").items()
        },
        "shown": signal.shown,
        "lead_s": None if signal.lead_s is None else _finite(signal.lead_s),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None
