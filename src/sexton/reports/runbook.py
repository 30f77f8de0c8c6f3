"""A detector's page for whoever follows an alert: its docstring as HTML or as plain text.

`sexton.reports.pages` writes the same docstrings as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from sexton.detect.custom_patterns import PREFIX
from sexton.detect.registry import Detector, Threshold, all_detectors, detector_of
from sexton.reports.pages import number
from sexton.reports.svg.colours import svg_style
from sexton.reports.svg.flame_svg import escaped

_CODE = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)
_STRONG = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
_STRESSED = re.compile(r"(?<![*\w])\*([^*\s](?:[^*]*[^*\s])?)\*(?![*\w])")


def runbook_text(detector: Detector) -> str:
    """The page for a terminal."""
    return f"{detector.id}: {detector.title}\n\n{detector.doc.strip()}\n"


def runbook_html(detector: Detector) -> str:
    """The page for a browser."""
    headline, *paragraphs = detector.doc.strip().split("\n\n")
    parts = [
        '<nav><a href="../">this node in the explorer</a> <a href="./">all detectors</a></nav>',
        f"<h1>{escaped(detector.id)}</h1>",
        f'<p class="headline">{_marked_up(headline)}</p>',
        *(f"<p>{_marked_up(text)}</p>" for text in paragraphs),
        *_thresholds(detector.thresholds),
    ]
    return _page(detector.id, parts)


def pattern_text(name: str) -> str:
    """The page of a finding by a custom log pattern: which ones a node has is not known here."""
    return f"{name}: a custom log pattern\n\n" + "\n\n".join(_pattern(name)) + "\n"


def pattern_html(name: str) -> str:
    """The same for a browser."""
    parts = [
        '<nav><a href="../">this node in the explorer</a> <a href="./">all detectors</a></nav>',
        f"<h1>{escaped(name)}</h1>",
        '<p class="headline">A custom log pattern.</p>',
        *(f"<p>{_marked_up(text)}</p>" for text in _pattern(name)),
    ]
    return _page(name, parts)


def _pattern(name: str) -> tuple[str, ...]:
    entry = name.removeprefix(PREFIX)
    return (
        "**What is seen.** Lines of the kernel log that match a pattern which the owner of"
        " this node added. `sudo sexton diagnose` shows the last one, how many there were, and what"
        " the author of the pattern wrote about them.",
        f"**What to do.** The entry `{entry}` in `/etc/sexton/patterns.d` has the expression, the"
        " severity and an example (`-` may stand for `_` in its name). `sudo sexton config` lists"
        " all patterns. If it matches lines that mean no harm, change it, or silence the finding.",
    )


def index_text() -> str:
    """All detectors, one per line, for a terminal."""
    width = max(len(detector.id) for detector in all_detectors())
    return "".join(f"{each.id:<{width}}  {each.headline}\n" for each in all_detectors())


def index_html() -> str:
    """Links to all pages."""
    rows = (
        f'<tr><td><a href="{escaped(each.id)}">{escaped(each.id)}</a></td>'
        f"<td>{_marked_up(each.headline)}</td></tr>"
        for each in all_detectors()
    )
    parts = [
        '<nav><a href="../">this node in the explorer</a></nav>',
        "<h1>Detectors</h1>",
        '<p class="headline">What Sexton looks for on this node. Each page says what is seen, why'
        " it hurts, what would make it wrong, and what to do.</p>",
        '<table class="names">',
        *rows,
        "</table>",
    ]
    return _page("Detectors", parts)


@cache
def runbook_style() -> str:
    """The style sheet of these pages."""
    return svg_style((files("sexton.reports") / "runbook.css").read_text("utf-8"))


def _page(title: str, parts: list[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)} · sexton</title>\n"
        '<link rel="icon" href="data:,">\n<link rel="stylesheet" href="style.css">\n'
        f"</head>\n<body>\n{chr(10).join(parts)}\n</body>\n</html>\n"
    )


def _marked_up(text: str) -> str:
    """A paragraph of a docstring as HTML; names of detectors become links.

    >>> _marked_up("**Why.** ``a < b``, 2 * 3 * 4, *never* `ps`")
    '<strong>Why.</strong> <code>a &lt; b</code>, 2 * 3 * 4, <em>never</em> <code>ps</code>'
    """
    return "".join(_pieces(" ".join(text.split())))


def _pieces(text: str) -> Iterator[str]:
    at = 0
    for found in _CODE.finditer(text):
        yield _stressed(text[at : found.start()])
        name = found[1] or found[2]
        yield _link(name) or f"<code>{escaped(name)}</code>"
        at = found.end()
    yield _stressed(text[at:])


def _stressed(text: str) -> str:
    strong = _STRONG.sub(r"<strong>\1</strong>", escaped(text))
    return _STRESSED.sub(lambda found: _link(found[1]) or f"<em>{found[1]}</em>", strong)


def _link(name: str) -> str:
    known = detector_of(name)
    return f'<a href="{escaped(name)}">{escaped(name)}</a>' if known is not None else ""


def _thresholds(thresholds: tuple[Threshold, ...]) -> Iterator[str]:
    if not thresholds:
        return
    yield "<h2>Thresholds</h2>"
    yield "<p>The defaults; <code>sexton config</code> shows those of this node.</p>"
    yield '<table><tr><th>name</th><th class="n">value</th><th>why</th></tr>'
    for each in thresholds:
        value = f"{number(each.default)} {each.unit}".strip()
        yield f'<tr><td>{escaped(each.name)}</td><td class="n">{escaped(value)}</td>'
        yield f"<td>{_marked_up(each.why)}</td></tr>"
    yield "</table>"
