"""The incident in one HTML file, for a ticket: the verdict as text, the explorer's pictures below.

The text is there without scripts, in a mail's preview and on paper. The pictures are the explorer
itself, on numbers that stand in the page: it asks nobody for anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sexton import __version__
from sexton.explain.moments import clock, day
from sexton.explorer.bundle import explorer_body, explorer_script, explorer_style
from sexton.explorer.files.page_shell import Parts, page
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.text import count, seconds
from sexton.reports.svg.flame_svg import escaped, part
from sexton.reports.text.verdict import verdict_text

#: Where the explorer's source finds what is embedded.
DATA = "sexton-data"
_WORDS = {
    Exit.HEALTHY: "Healthy",
    Exit.PROBLEM: "Sick",
    Exit.CANNOT_TELL: "Cannot tell",
    Exit.FAILED: "Failed",
}
_WIDTH = 100


def incident_html(
    diagnosis: Diagnosis, data: Mapping[str, Any] | None, notes: Sequence[str] = ()
) -> str:
    """The page. Without `data` it is the text alone, and `notes` say why."""
    body = "\n".join(_body(diagnosis, data is not None, notes))
    if data is None:
        return page(_title(diagnosis), Parts(body, part("incident.css"), ""), {}, DATA)
    style = "\n".join([explorer_style(), part("incident.css")])
    return page(_title(diagnosis), Parts(body, style, explorer_script()), data, DATA)


def _title(diagnosis: Diagnosis) -> str:
    host = diagnosis.node.hostname if diagnosis.node is not None else "a node"
    when = f"{day(diagnosis.start)} {clock(diagnosis.start)} UTC".strip()
    return f"{_WORDS[diagnosis.exit]}: {host}, {when}"


def _body(diagnosis: Diagnosis, pictures: bool, notes: Sequence[str]) -> Iterator[str]:
    yield '<article id="report"><header>'
    word = escaped(_WORDS[diagnosis.exit])
    host = diagnosis.node.hostname if diagnosis.node is not None else "a node"
    yield f'<h1><span class="exit{int(diagnosis.exit)}">{word}</span> {escaped(host)}</h1>'
    yield f"<p>{escaped(_span(diagnosis))}</p></header>"
    if diagnosis.story:
        yield "<h2>What happened</h2><ol>"
        yield from (f"<li>{escaped(each)}</li>" for each in diagnosis.story)
        yield "</ol>"
    for note in notes:
        yield f'<p class="note">{escaped(note)}</p>'
    if pictures:
        yield "<noscript><p>The pictures need scripts; the verdict below does not.</p></noscript>"
    yield "</article>"
    if pictures:
        yield f'<div id="explorer" hidden>{explorer_body()}</div>'
    yield '<article id="verdict"><h2>The verdict in full</h2>'
    yield f'<pre tabindex="0">{escaped_lines(verdict_text(diagnosis, _WIDTH))}</pre>'
    yield f"<p>sexton {__version__}; this file asks nothing of any other host.</p></article>"


def _span(diagnosis: Diagnosis) -> str:
    node = diagnosis.node
    parts = [
        f"{day(diagnosis.start)} {clock(diagnosis.start)} to {clock(diagnosis.end)} UTC".strip(),
        seconds(diagnosis.end - diagnosis.start),
        f"Linux {node.kernel}" if node is not None else "",
        count(node.cores, "core") if node is not None and node.cores else "",
    ]
    return " · ".join(part for part in parts if part)


def escaped_lines(text: str) -> str:
    r"""Escaped line by line: a line's end stays one.

    >>> escaped_lines("a<b\x1b\n c")
    'a&lt;b\\x1b\n c'
    """
    return "\n".join(escaped(line) for line in text.split("\n"))
