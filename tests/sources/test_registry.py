"""Which sources are read by default, and what that imports."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from sexton.sources.registry import Source, all_sources, enabled_sources

NOT_IMPORTED = """
import sys
from sexton.sources.registry import enabled_sources
found = enabled_sources(*sys.argv[1:])
print(*sorted({name.split(".")[2] for name in sys.modules if name.count(".") == 3
               and name.startswith("sexton.sources.")} & {"bpf", "perf", "procfs"}))
"""


@pytest.mark.parametrize("source", all_sources(), ids=lambda source: source.id)
def test_a_folder_names_the_option_that_enables_its_sources(source: Source):
    folder = importlib.import_module(f"sexton.sources.{source.id.partition('.')[0]}")
    assert getattr(folder, "OPT_IN", "") == source.opt_in


@pytest.mark.parametrize("options", [(), ("--probe",), ("--stacks", "--probe")])
def test_enabled_are_those_without_an_option_and_those_whose_option_was_given(options):
    expected = [source.id for source in all_sources() if source.opt_in in ("", *options)]
    assert [source.id for source in enabled_sources(*options)] == expected


@pytest.mark.parametrize(
    ("options", "imported"),
    [([], "procfs"), (["--probe"], "bpf procfs"), (["--stacks"], "perf procfs")],
)
def test_what_is_not_enabled_is_not_even_imported(options: list[str], imported: str):
    command = [sys.executable, "-c", NOT_IMPORTED, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == imported.split()
