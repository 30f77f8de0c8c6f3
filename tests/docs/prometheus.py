"""``python -m tests.docs.prometheus`` writes the table of metrics in docs/prometheus.md anew."""

from __future__ import annotations

import re
from pathlib import Path

from sexton.export.families import FAMILIES, Family, most_series

PAGE = Path(__file__).parents[2] / "docs/prometheus.md"
OUTPUT = "tests.docs.prometheus"
_BLOCK = re.compile(r"(<!-- metrics: begin -->\n)(.*?)(<!-- metrics: end -->)", re.DOTALL)
_MOST = re.compile(r"(?<=At most )(\{most\}|[0-9]+)(?= series per node)")


def table() -> str:
    """A row for each family."""
    rows = ["| metric | type | labels | most series | meaning |", "|---|---|---|---|---|"]
    rows += [_row(family) for family in FAMILIES]
    return "\n".join(rows) + "\n"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
    meaning = family.help.replace("|", "\\|")
    if family.buckets:
        meaning += " Buckets: " + ", ".join(f"{bound:g}" for bound in family.buckets) + "."
    cells = (f"`{family.name}`", family.kind.value, labels, str(family.series), meaning)
    return f"| {' | '.join(cells)} |"


def written() -> str:
    """The page with the table of now."""
    text = _BLOCK.sub(lambda found: found[1] + table() + found[3], PAGE.read_text("utf-8"))
    return _MOST.sub(str(most_series()), text)


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
