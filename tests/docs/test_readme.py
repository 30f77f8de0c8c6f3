"""The README shows real output: that of an archive every test run replays."""

from __future__ import annotations

from tests.docs.readme import OUTPUT, in_readme, real_output


def test_the_output_in_the_readme_is_what_the_command_prints():
    assert in_readme() == real_output(), f"run: python -m {OUTPUT}"
