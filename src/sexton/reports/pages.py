"""The detectors' pages: each docstring as a Markdown runbook, with its thresholds and its sources.

``python -m sexton.reports.pages [DIR]`` writes them to `docs/detectors` (``make docs``); a
test fails where a page differs from what would be written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sexton.detect.registry import Detector, all_detectors
from sexton.sources.registry import all_sources

FOLDER = "docs/detectors"
_MARK = "<!-- Written by `make docs` from the detector's own module; edit that. -->"
_NAME = re.compile(r"(?<![`*\w])(?:`(\w+)`|\*(\w+)\*)(?![`*\w])")


def detector_page(detector: Detector) -> str:
    """One detector's page."""
    title, _, body = detector.doc.strip().partition("\n")
    parts = [
        _MARK,
        f"# {detector.id}",
        title.strip(),
        _linked(body.strip(), detector.id),
        "## Thresholds",
        _thresholds(detector),
        "## What it reads",
        _needs(detector),
        "[All detectors](README.md)",
    ]
    return "\n\n".join(parts) + "\n"


def index_page(detectors: Sequence[Detector]) -> str:
    """The table of all of them."""
    rows = "\n".join(
        f"| [{detector.id}]({detector.id}.md) | {_cell(detector.headline)} |"
        f" {'yes' if detector.essential else ''} |"
        for detector in detectors
    )
    parts = [
        _MARK,
        "# Detectors",
        "A detector looks at one node's readings and says whether a symptom is *present*, "
        "*absent*, *unknown* or *not applicable*; read its name after “this node has …”. Each page "
        "is its runbook. While an essential one is unknown, a node is never called healthy "
        "(exit 3).",
        f"| detector | what it is | essential |\n|---|---|---|\n{rows}",
        "To add one, see [adding a detector](../adding-a-detector.md).",
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> Mapping[str, str]:
    """Every page by its file name."""
    detectors = all_detectors()
    made = {f"{detector.id}.md": detector_page(detector) for detector in detectors}
    return {"README.md": index_page(detectors), **made}


def write(folder: Path) -> list[str]:
    """Write every page and remove those of detectors that are gone; the names that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    changed = []
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(name)
    for path in sorted(folder.glob("*.md")):
        if path.name not in made and path.read_text(encoding="utf-8").startswith(_MARK):
            path.unlink()
            changed.append(path.name)
    return changed


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages; say which changed."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    folder = Path(arguments[0] if arguments else FOLDER)
    changed = write(folder)
    print(f"{folder}: {', '.join(changed) if changed else 'nothing changed'}")
    return 0


def _thresholds(detector: Detector) -> str:
    if not detector.thresholds:
        return "None, for the reason given above."
    rows = "\n".join(
        f"| {_cell(threshold.name)} | {number(threshold.value)} | {_cell(threshold.unit)} |"
        f" {_cell(threshold.why)} |"
        for threshold in detector.thresholds
    )
    return f"| name | value | unit | why |\n|---|---:|---|---|\n{rows}"


def _needs(detector: Detector) -> str:
    if not detector.needs:
        return (
            "No input is required: it judges by what could be read, and says what could not. "
            "If nothing could be read, it is *unknown*."
        )
    given = {kind: source for source in all_sources() for kind in source.rows}
    rows = "\n".join(
        f"| {kind.__name__} | {f'`{given[kind].path}`' if kind in given else ''} |"
        f" {given[kind].id if kind in given else ''} |"
        for kind in detector.needs
    )
    return (
        "Without these it is *unknown*; optional inputs are described above.\n\n"
        f"| row | read from | source |\n|---|---|---|\n{rows}"
    )


def _linked(text: str, own: str) -> str:
    """Names of other detectors become links to their pages."""
    known = {detector.id for detector in all_detectors()} - {own}

    def link(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return f"[{name}]({name}.md)" if name in known else found[0]

    return _NAME.sub(link, text)


def number(value: float) -> str:
    """
    >>> number(86400.0), number(0.05)
    ('86,400', '0.05')
    """
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
