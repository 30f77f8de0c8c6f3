"""The answer to `sexton why` as text: what happened, the chain through it, competing causes, and
what was different in the seconds before.

Every string of a `Why` is already escaped but those of the aligned signals, which are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sexton.detect.registry import title_of
from sexton.explain.moments import clock, day
from sexton.model.chain import Chain, Contest, Link
from sexton.model.diagnosis import Exit
from sexton.model.finding import Finding, Verdict
from sexton.model.text import count, printable, seconds, shorten
from sexton.model.why import Moment, Why, is_open
from sexton.reports.text.blocks import LABEL, block, labelled, typed
from sexton.reports.text.narrative import chain_title, is_twin, new_links
from sexton.reports.text.settings import config_line, silenced_lines

_WORDS = {Exit.HEALTHY: "CALM", Exit.PROBLEM: "SICK", Exit.CANNOT_TELL: "CANNOT TELL"}
_COLOURS = {Exit.HEALTHY: "32", Exit.PROBLEM: "31", Exit.CANNOT_TELL: "33"}
_MOST_CHAINS, _MOST_LACKS, _MOST_MOMENTS, _MOST_EVIDENCE = 2, 6, 4, 3
_HERE = "►"
#: What lasts from edge to edge of what was looked at, give or take a reading.
_EDGE_S = 15.0


def why_text(why: Why, width: int = 88, colour: bool = False) -> str:
    """The whole report; `width` is kept between 60 and 110 columns."""
    width = min(max(width, 60), 110)
    word = _WORDS[why.exit]
    lines = _hung(f"{word}  ", f"{shorten(why.about.words, 60)}   {_node(why)}", width, 6)
    if colour:
        lines[0] = f"\x1b[1;{_COLOURS[why.exit]}m{word}\x1b[0m" + lines[0].removeprefix(word)
    lines += [*_where(why, width), ""]
    lines += block(_said(why), width, " ")
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
    diagnosis = why.diagnosis
    replayed = diagnosis.replayed
    length = seconds(max(diagnosis.end - diagnosis.start, 0.0))
    if replayed is None:
        return
    first, last = diagnosis.start, diagnosis.end
    span = f"{day(first)} {clock(first)} to {day(last)} {clock(last)} UTC"
    yield from labelled(
        "REPLAY", [f"{span} ({length}), from {printable(replayed.recording)}"], width
    )
    yield from labelled("", [printable(note) for note in replayed.notes], width)


def _said(why: Why) -> str:
    """What it comes to, in sentences."""
    known, about = why.by_id, shorten(why.about.words, 80)
    if why.findings:
        return " ".join([*_found(why), *_unchanged(why), *_unexplained(why)])
    here = why.diagnosis
    watched = seconds(max(here.end - here.start, 0.0))
    if why.exit is Exit.CANNOT_TELL:
        lacking = [name for name in why.decisive if is_open(known.get(name))]
        said = [known[name].summary for name in lacking if name in known]
        because = f": {'; '.join(dict.fromkeys(said))}" if said else ""
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
            yield _sentence(known[name])
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


def _sentence(finding: Finding) -> str:
    """Its summary as a sentence; the name of a thing keeps its own spelling."""
    summary = finding.summary
    named = any(summary.startswith(name) for names in finding.entities.values() for name in names)
    return (summary if named else summary[:1].upper() + summary[1:]) + "."


def _when(why: Why, width: int) -> Iterator[str]:
    occasions = why.occasions
    if occasions.moments and why.about.kind != "moment":
        texts = [f"{occasions.words}: {times_of(occasions.moments)}"]
        yield from labelled("WHEN", [*texts, *([occasions.note] if occasions.note else [])], width)
    elif occasions.note:
        yield from labelled("WHEN", [f"{times_of(occasions.moments)}: {occasions.note}"], width)
    others = [f"{subject.kind} {subject.name}" for subject in why.also]
    if others:
        asks = " or ".join(f"sexton why {shorten(name, 60)}" for name in others[:2])
        yield from labelled("SAME NAME", [f"others with this name: {asks}"], width)


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
        for sentence in why.story:
            yield from _hung("   ", printable(sentence), width)


def _rivals(why: Why, width: int) -> Iterator[str]:
    for contest in why.contests:
        kept = tuple(rival for rival in contest.rivals if not is_twin(rival.cause, why.diagnosis))
        if len(kept) > 1:
            yield from _contest(replace(contest, rivals=kept), width)
    for coincidence in why.coincidences:
        more = f"would prove more: {coincidence.would_prove}"
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
    prefix = {Verdict.UNKNOWN: "unknown: ", Verdict.NOT_APPLICABLE: "not applicable: "}
    text = "present, but not about this: " if finding.verdict is Verdict.PRESENT else ""
    return prefix.get(finding.verdict, text) + finding.summary


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
        else "nothing that was found is a problem on this node",
        Exit.PROBLEM: f"problem found {_at(why)} {about}",
        Exit.CANNOT_TELL: "cannot tell; see NOT SEEN above",
    }[why.exit]


def _at(why: Why) -> str:
    return {"job": "for", "moment": "at", "symptom": "with"}.get(why.about.kind, "on")


def _hung(lead: str, text: str, width: int, indent: int | None = None) -> list[str]:
    """The text after its lead, its later lines below the beginning of the first."""
    inner = len(lead) if indent is None else indent
    return list(block(text, width, " " * inner, first=lead))
