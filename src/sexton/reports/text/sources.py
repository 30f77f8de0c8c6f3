"""What Sexton can read here, and how to enable the rest: as text and as `sexton.sources/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten, wrap
from typing import Any, NamedTuple

from sexton.host.host import ONLY_LIVE
from sexton.model.row import Row, table
from sexton.model.text import count, printable, seconds
from sexton.model.window import SourceState
from sexton.reports.text.blocks import block, bold, clamp, picked


def in_words(page: str) -> str:
    """What a source provides: the first sentence of its docstring.

    >>> in_words("`/proc/stat`: where each core's time went since boot.\\n\\nDocumented in …")
    "where each core's time went since boot"
    """
    sentence = " ".join(page.strip().partition("\n\n")[0].split()).rstrip(".")
    head, colon, rest = sentence.partition("`: ")
    words = (rest if colon and head.startswith("`") else sentence).replace("`", "")
    return words[:1].lower() + words[1:] if words[1:2].islower() else words


SCHEMA = "sexton.sources/1"
ROOT = "run as root: sudo sexton diagnose"
_GROUPS = (
    ("ok", "AVAILABLE"),
    ("denied", "NO PERMISSION"),
    ("asked", "OPT-IN"),
    ("trouble", "FAILED"),
    ("absent", "UNAVAILABLE"),
)


class SourceLine(NamedTuple):
    """A source, the rows it gives and its state; `gives` describes it."""

    state: SourceState
    rows: tuple[type[Row], ...]
    period_s: float
    gives: str

    @property
    def group(self) -> str:
        known = ("ok", "denied", "asked", "absent")
        return self.state.state if self.state.state in known else "trouble"

    @property
    def read_s(self) -> float | None:
        return self.state.spent_s / self.state.reads if self.state.reads else None

    @property
    def grant(self) -> str:
        if self.state.detail == ONLY_LIVE:
            return ""  # no setting would help a copied tree
        if self.state.state == "denied":
            return self.state.grant or ROOT
        return self.state.grant


def sources_json(lines: Sequence[SourceLine]) -> dict[str, Any]:
    """The contract of docs/json.md."""
    return {
        "schema": SCHEMA,
        "sources": [
            {
                "id": line.state.id,
                "path": line.state.path,
                "gives": line.gives,
                "rows": [table(kind) for kind in line.rows],
                "period_s": line.period_s,
                **picked(line.state, "state", "detail"),
                "grant": line.grant,
                "read_s": None if line.read_s is None else round(line.read_s, 6),
            }
            for line in lines
        ],
    }


def sources_text(lines: Sequence[SourceLine], width: int = 88, colour: bool = False) -> str:
    """One line per source that works; for each other one the reason and what would help."""
    width = clamp(width, 120)
    name_width = max((len(line.state.id) for line in lines), default=10)
    text = [*block(_headline(lines), width, "")]
    for group, title in _GROUPS:
        members = [line for line in lines if line.group == group]
        if not members:
            continue
        pad = " " * (name_width - len(title))
        ending = f"{'ONE READ':>{width - name_width - 11}}" if group == "ok" else ""
        text += ["", f" {bold(title, colour)}{pad}  PROVIDES{ending}"]
        for line in members:
            text += (
                _available(line, name_width, width)
                if group == "ok"
                else _unavailable(line, name_width, width)
            )
    return "\n".join(text) + "\n"


def _headline(lines: Sequence[SourceLine]) -> str:
    seen = [line for line in lines if line.group == "ok"]
    parts = [f"{len(seen)} of {count(len(lines), 'source')} available"]
    for group, one, many in (
        ("denied", "needs permission", "need permission"),
        ("asked", "is opt-in", "are opt-in"),
        ("trouble", "failed", "failed"),
        ("absent", "is unavailable", "are unavailable"),
    ):
        number = sum(1 for line in lines if line.group == group)
        if number:
            parts.append(f"{number} {one if number == 1 else many}")
    spent = sum(line.read_s or 0.0 for line in seen)
    return f"{', '.join(parts)}; reading each once takes {seconds(spent)}."


def _available(line: SourceLine, name_width: int, width: int) -> Iterator[str]:
    cost = "" if line.read_s is None else seconds(line.read_s)
    room = width - name_width - 3 - 10
    yield f" {line.state.id:{name_width}}  {_cut(line.gives, room):{room}}{cost:>10}"
    indent = " " * (name_width + 3)
    for part in wrap(line.state.detail, width - name_width - 3):  # what it left out
        yield f"{indent}{part}"


def _unavailable(line: SourceLine, name_width: int, width: int) -> Iterator[str]:
    yield f" {line.state.id:{name_width}}  {_cut(line.gives, width - name_width - 3)}"
    indent = " " * (name_width + 3)
    detail = printable(line.state.detail or line.state.state)
    named = "/" in detail or line.group == "asked"
    for part in wrap(detail if named else f"{line.state.path}: {detail}", width - name_width - 3):
        yield f"{indent}{part}"
    if line.grant:  # never cut: it will be copied
        yield f"{indent}→ {line.grant}"


def _cut(text: str, width: int) -> str:
    """Shorten at a word boundary."""
    return shorten(text, width, placeholder=" …")
