"""README.md shows real output and measured numbers, and stays short."""

from __future__ import annotations

import re

from tests.docs.readme import OUTPUT, README, ROOT, in_readme, real_output


def test_the_output_in_the_readme_is_what_the_command_prints():
    assert in_readme() == real_output(), f"run: python -m {OUTPUT}"


def test_the_readme_can_be_read_on_a_first_visit():
    words = README.read_text(encoding="utf-8").split()
    assert len(words) <= 1500


def test_the_benchmarks_in_the_readme_are_five_rows_of_the_page():
    found = re.search(
        r"<!-- bench rows: begin -->\n(.*)<!-- bench rows: end -->", README.read_text(), re.DOTALL
    )
    assert found is not None
    head, rule, *rows = (line for line in found[1].splitlines() if line.startswith("|"))
    page = (ROOT / "docs/bench.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 5
    assert [row for row in (head, rule, *rows) if row not in page] == []


def test_the_readme_claims_no_more_than_the_accuracy_page():
    """Line breaks do not matter."""
    summary = re.search(
        r"\*\*(\d+) recordings of \d+ scenes .*: (\d+) right, 0 wrong, 0 false alarms",
        (ROOT / "docs/accuracy.md").read_text(encoding="utf-8"),
    )
    assert summary is not None
    assert summary[1] == summary[2]
    readme = " ".join(README.read_text(encoding="utf-8").split())
    assert f"All {summary[1]} recordings are diagnosed correctly, with no false alarm" in readme
