"""The verdict as text, for a terminal, a ticket or a log.

One colour, on the verdict word alone; piped, the same text without it. Every string of a
`Diagnosis` is already escaped, so nothing here interprets anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from shlex import quote

from sexton.detect.faults import lines_logged
from sexton.detect.registry import detector_of, is_marked, title_of
from sexton.explain.story import evidence_about
from sexton.model.chain import Chain
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Evidence, Finding, Verdict
from sexton.model.text import count, local_time, moment, printable, seconds, shorten
from sexton.reports.text.blocks import SHADES, block, clamp, cut, headline, labelled, typed
from sexton.reports.text.narrative import (
    chain_title,
    coincidences,
    died,
    lead,
    new_links,
    replayed_lines,
    rivals,
    shown,
    story,
    verdict_words,
)
from sexton.reports.text.settings import config_line, silenced_lines

#: What follows the meaning of the exit status.
_HINTS = {
    Exit.HEALTHY: " (sexton demo shows a sick node)",
    Exit.CANNOT_TELL: "; see NOT SEEN above",
}
#: The label of a fact about a node that is not sick.
_FACT = 19
#: Characters that may stay unused at the end of two lines that are broken between words.
_SLACK = 24
_MOST_LINES = 6
#: Growth by each method, the leak, and the two limits.
_MOST_OUTLOOK = 5
_NARROW = 15
#: Verdicts of findings whose missing evidence is listed.
_INCOMPLETE = (Verdict.UNKNOWN, Verdict.PRESENT)
_WIDE_ENOUGH = 72
_PERCENT = re.compile(r"(\d[\d,]*(?:\.\d+)?) %")
#: The error of a number that is rounded to whole per cent.
_ROUNDED = 0.51
#: Where the explanation within a value begins.
_PHRASE = re.compile(r",? (?=against |in |of |\(|=)|[,;:] ")


def verdict_text(diagnosis: Diagnosis, width: int = 88, colour: bool = False) -> str:
    """The whole report; `width` is kept between 60 and 110 columns."""
    width = clamp(width)
    shade = SHADES[diagnosis.exit] if colour else ""
    lines = headline(diagnosis.exit.word, _identity(diagnosis), width, shade)
    span = f"{moment(diagnosis.start)} to {local_time(diagnosis.end)}"
    lines += [*replayed_lines(diagnosis, span, width), ""]
    if diagnosis.exit is Exit.PROBLEM:
        lines += _sick(diagnosis, width)
    else:
        lines += _not_sick(diagnosis, width)
    lines += _as_root(diagnosis, width)
    lines += _footer(diagnosis, width)
    return "\n".join(lines) + "\n"


def _identity(diagnosis: Diagnosis) -> str:
    node = diagnosis.node
    if node is None:
        return "node identity unknown"
    parts = [
        count(node.cores, "core") if node.cores else "",
        f"Linux {node.kernel}",
        f"cgroup {diagnosis.hierarchy}" if diagnosis.hierarchy else "",
        f"up {seconds(node.uptime_s)}" if node.uptime_s is not None else "",
        *(diagnosis.nics[:2] if _is_about_nics(diagnosis) else ()),
        node.zone or "",
        node.image or "",
        node.instance_type or "",
        f"in a container ({node.container})" if node.container else "",
    ]
    name = shorten(printable(node.hostname), 40)
    return f"{name}   " + " · ".join(printable(part) for part in parts if part)


def _is_about_nics(diagnosis: Diagnosis) -> bool:
    """Driver and version matter only if a problem is about a NIC."""
    problems = (finding.entities for finding in diagnosis.findings if finding.is_problem)
    return any("nic" in entities for entities in problems)


def _sick(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    known = diagnosis.by_id
    yield from block(lead(diagnosis), width, " ")
    yield ""
    for number, chain in enumerate(new_links(shown(diagnosis)[:3])):
        yield from _chain(chain, known, width, chain_title(chain, number))
        yield ""
    if diagnosis.unexplained:
        loose = [known[name] for name in diagnosis.unexplained]
        yield from _loose(f"{count(len(loose), 'finding')}, cause unknown".upper(), loose, width)
        yield ""
    if diagnosis.against:
        yield from labelled("RULED OUT", [", ".join(diagnosis.against)], width)
    against = [text for chain in diagnosis.chains for link in chain.links for text in link.against]
    yield from labelled("AGAINST", list(dict.fromkeys(against)), width)
    yield from rivals(diagnosis, width)
    yield from coincidences(diagnosis, width)
    yield from labelled("NOTED", _noted(diagnosis)[:3], width)
    yield from labelled("SILENCED", silenced_lines(diagnosis.findings), width)
    yield from _outlook(diagnosis, width)
    yield from _not_seen(diagnosis, width)
    yield from _do_now(diagnosis, width)
    yield from story(diagnosis, width)


def _chain(chain: Chain, known: Mapping[str, Finding], width: int, title: str) -> Iterator[str]:
    shared = [
        sum((link.shared for link in chain.links if name in (link.cause, link.effect)), ())
        for name in chain.findings
    ]
    rows = [
        _row(f"{number} ", known[name], names)
        for number, (name, names) in enumerate(zip(chain.findings, shared, strict=True), 1)
    ]
    lines = _table(title, rows, width)
    yield next(lines)
    for line, link in zip_longest(lines, chain.links):
        yield line
        if link is not None:
            text = f"└ {link.sure}: {link.sentence}"
            yield from block(text, width, "     ", first="   ")


def _loose(title: str, findings: list[Finding], width: int) -> Iterator[str]:
    """Problems that no chain explains, each with some more of its evidence."""
    rows: list[_Cells] = []
    sentences: dict[int, list[str]] = {}
    for finding in findings:
        rows.append(_row("", finding))
        if finding.evidence and lines_logged(finding.evidence[0]):
            sentences.setdefault(len(rows), []).append(finding.evidence[0].value)
        more = [evidence for evidence in finding.evidence[1:] if not evidence.outlook]
        for evidence in more[:2]:
            if evidence.number is None and len(evidence.value) > _NARROW:
                words = f"{evidence.what}: {evidence.value}"
                sentences.setdefault(len(rows), []).append(words)
            else:
                cells = (evidence.normal, _here(evidence), evidence.source)
                rows.append(("  " + evidence.what, *cells))
    lines = _table(title, rows, width)
    yield next(lines)
    for number, line in enumerate(lines, 1):
        yield line
        for words in sentences.get(number, ()):
            yield from block(words, width, "     ", first="   ")


_Cells = tuple[str, str, str, str]


def _row(prefix: str, finding: Finding, names: Sequence[str] = ()) -> _Cells:
    first = evidence_about(finding, names)
    if first is None:
        return (prefix + finding.summary, "", "", "")
    return (prefix + first.what, first.normal, _here(first), first.source)


def _here(evidence: Evidence) -> str:
    """The value for a narrow column: of a whole phrase its beginning, else its number alone; of
    lines of the log how many there are."""
    if lines_logged(evidence):
        return lines_logged(evidence)
    start = _PHRASE.split(evidence.value, maxsplit=1)[0]
    if len(start) <= _NARROW or evidence.number is None:
        return start if len(start) <= _NARROW else evidence.value
    for said in _PERCENT.findall(evidence.value):
        if abs(float(said.replace(",", "")) - evidence.number) <= _ROUNDED:
            return f"{said} %"
    return f"{evidence.number:,.{0 if evidence.number == int(evidence.number) else 1}f}"


def _table(title: str, rows: list[_Cells], width: int) -> Iterator[str]:
    """Columns as wide as they need to be, the proof in what is left of the line."""
    every = [(title, "NORMAL", "HERE", "PROOF"), *rows]
    normal = min(max(len(row[1]) for row in every), 12)
    here = min(max(len(row[2]) for row in every), _NARROW)
    label = max(len(row[0]) for row in every)
    # Where not all fits, the proof gives way first, down to a third of the line, then the label.
    proof = max(width * 3 // 10, width - normal - here - label - 6)
    label = min(label, width - normal - here - proof - 6)
    if width < _WIDE_ENOUGH:  # a narrow terminal: the numbers matter more than their source
        label, proof = width - normal - here - 4, 0
    head = f" {title}"  # never cut: it says how sure the chain is
    for word, end in (("NORMAL", label + normal), ("HERE", label + normal + here + 1)):
        head += f" {word:>{max(end + 1 - len(head), 0)}}"
    yield f"{head}  {cut('PROOF', proof - max(len(head) - label - normal - here - 3, 0))}".rstrip()
    for row in rows:
        cells = f" {cut(row[0], label):<{label}} {cut(row[1], normal):>{normal}}"
        cells += f" {cut(row[2], here):>{here}}  "
        yield (cells + cut(row[3], proof)).rstrip()


def _not_sick(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    yield from died(diagnosis, width)
    for finding in diagnosis.essential:
        if finding.silenced is None or finding.verdict is not Verdict.PRESENT:
            yield from labelled(title_of(finding.id), [verdict_words(finding)], width, _FACT)
    others = [finding for finding in diagnosis.findings if not finding.essential]
    clean = [finding.id for finding in others if finding.verdict is Verdict.ABSENT]
    if clean:
        # A container's own processes and cgroups may be clean while the node's are not.
        inside = diagnosis.node is not None and diagnosis.node.container
        label = "clean in here" if inside else "also clean"
        yield from labelled(label, [_some(clean, width - _FACT - 2)], width, _FACT)
    room = width - _FACT - 2
    yield from labelled(
        "noted", [cut(sentence, room) for sentence in _noted(diagnosis)[:2]], width, _FACT
    )
    yield from labelled("silenced", silenced_lines(diagnosis.findings), width, _FACT)
    off = diagnosis.settings.off
    switched = [title_of(finding.id) for finding in others if finding.id in off]
    where = f": switched off in {printable(diagnosis.settings.path)}"
    yield from labelled("not checked", [", ".join(switched) + where] * bool(switched), width, _FACT)
    unchecked = [
        finding
        for finding in others
        if finding.verdict is Verdict.UNKNOWN and finding.id not in off
    ]
    names = ", ".join(title_of(finding.id) for finding in unchecked)
    if diagnosis.exit is Exit.CANNOT_TELL:
        yield from labelled("not checked", [names] if names else [], width, _FACT)
        yield ""
        yield from _not_seen(diagnosis, width)
        return
    if unchecked:
        grants = [lack.grant for finding in unchecked for lack in finding.missing if lack.grant]
        command = grants[0].partition("  # ")[0] if grants else "sexton sources says why"
        remedy = f" ({command})"
        named = _some([finding.id for finding in unchecked], 2 * room - len(remedy) - _SLACK)
        yield from labelled("not checked", [named + remedy], width, _FACT)


def _some(names: list[str], width: int) -> str:
    """As many names as a line holds, and how many more there are."""
    titles = [title_of(name) for name in names]
    for most in range(len(titles), 0, -1):
        more = f" and {len(titles) - most} more" if most < len(titles) else ""
        text = ", ".join(titles[:most]) + more
        if len(text) <= width:
            return text
    return count(len(titles), "more check")


def _noted(diagnosis: Diagnosis) -> list[str]:
    """Summaries of findings that are present, not a problem, and not reported elsewhere."""
    covered = {finding.id for finding in diagnosis.findings if is_marked(finding)}
    if diagnosis.exit is Exit.PROBLEM:
        covered |= {name for chain in shown(diagnosis)[:3] for name in chain.findings}
    return [
        finding.summary
        for finding in diagnosis.findings
        if finding.verdict is Verdict.PRESENT
        and not finding.is_problem
        and finding.silenced is None
        and finding.id not in covered
    ]


def _outlook(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    lines = [
        f"{evidence.what}: {evidence.value}"
        for finding in diagnosis.findings
        if finding.is_problem
        for evidence in finding.evidence
        if evidence.outlook and not evidence.value.startswith("does not apply")
    ]
    yield from labelled("OUTLOOK", lines[:_MOST_OUTLOOK], width)


def _not_seen(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    lacking = _lacking(diagnosis)
    label = "NOT SEEN"
    left = _MOST_LINES
    for grant, whats in lacking.items():
        shown = whats[:left]
        for what in shown:
            yield from labelled(label, [what], width)
            label = ""
        if grant and shown:
            yield typed(grant)
        left -= len(shown)
    hidden = sum(map(len, lacking.values())) - _MOST_LINES
    if hidden > 0:
        yield from labelled("", [f"and {hidden} more: sexton sources"], width)
    skipped = [
        f"{state.path}: {state.detail}" for state in diagnosis.sources if state.state == "skipped"
    ]
    yield from labelled("SKIPPED", dict.fromkeys(skipped), width)


def _failed(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """Opt-in sources that were requested and could not be read."""
    for state in diagnosis.sources:
        if state.requested and state.state != "ok":
            yield from labelled("FAILED", [f"{state.path}: {state.detail}"], width)
            if state.grant:
                yield typed(state.grant)


def _lacking(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Missing evidence by the command that would provide it; decisive evidence first."""
    lacking = [finding for finding in diagnosis.findings if finding.verdict in _INCOMPLETE]
    lacking.sort(key=lambda finding: not finding.essential or finding.verdict is Verdict.PRESENT)
    if diagnosis.exit is Exit.CANNOT_TELL:  # only these decide
        lacking = [finding for finding in lacking if finding.essential]
    grants: dict[str, str] = {}
    for finding in lacking:
        for lack in finding.missing:
            grants.setdefault(lack.what, lack.grant)
    whats: dict[str, list[str]] = {}
    comments: dict[str, list[str]] = {}
    for what, grant in grants.items():
        command, _, comment = grant.partition("  # ")
        whats.setdefault(command, []).append(what)
        comments.setdefault(command, []).append(comment)
    return {_commented(command, comments[command]): whats[command] for command in whats}


def _commented(command: str, comments: list[str]) -> str:
    """One command that gives several things, with a comment that holds for all of them."""
    if len(set(comments)) > 1:
        comments = (
            ["on the node itself"] if any("on the node" in comment for comment in comments) else []
        )
    return f"{command}  # {comments[0]}" if comments and comments[0] else command


def _do_now(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    if not diagnosis.plan:
        return
    yield ""
    label = "DO NOW"
    if any(finding.is_problem and _is_treated(finding) for finding in diagnosis.findings):
        replayed = diagnosis.replayed
        source = "" if replayed is None else f" --from {quote(printable(replayed.recording))}"
        if replayed is not None and replayed.scraped:
            source = "  # on the node"
        yield from labelled(label, ["a step-by-step plan with undo; changes nothing"], width)
        yield typed(f"sudo sexton fix plan{source}")
        label = "BY HAND"
    for step in diagnosis.plan:
        yield from labelled(label, [f"{step.why}; risk: {step.risk}"], width)
        yield typed(step.do)
        label = ""


def _is_treated(finding: Finding) -> bool:
    known = detector_of(finding.id)
    return known is not None and bool(known.treatments)


def _as_root(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    """What root would add, if permissions are the only obstacle."""
    denied = [source for source in diagnosis.sources if source.state == "denied"]
    names = [source.id for source in denied if "on the node" not in source.grant]
    if names:
        command = (
            "sudo sexton diagnose adds" if diagnosis.replayed is None else "sudo sexton record"
        )
        command += "" if diagnosis.replayed is None else " would have kept"
        yield ""
        yield from labelled("AS ROOT", [f"{command} {', '.join(names)}"], width)


def _footer(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    yield from _failed(diagnosis, width)
    cost = diagnosis.cost
    findings = diagnosis.findings
    unknown = sum(finding.verdict is Verdict.UNKNOWN for finding in findings)
    checks = count(len(findings), "check") + (f", {unknown} unknown" if unknown else "")
    if cost is not None:
        peak = f" · {cost.peak_bytes / 1e6:.0f} MB" if cost.peak_bytes is not None else ""
        watched = f"{cost.watched_s:.0f} s watched"
        if diagnosis.replayed is not None:
            watched = f"{seconds(cost.watched_s)} of readings"
        used = f"{watched} · {cost.cpu_s:.2f} s CPU{peak}"
        checks = f"{used} · {cost.touched} · {checks}"
    yield ""
    yield from config_line(diagnosis.settings, width, diagnosis.replayed is not None)
    yield from block(checks, width, " ")
    yield f" exit {int(diagnosis.exit)}: {diagnosis.exit.meaning}{_HINTS.get(diagnosis.exit, '')}"
