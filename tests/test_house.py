"""The house's own rules, as far as a machine can check them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

from sexton.cli.main import VERBS

ROOT = Path(__file__).parents[1]
CODE = sorted(
    path
    for folder in ("src", "tests", "lab", "bench", "scripts")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".sh", ".toml") and "__pycache__" not in path.parts
)


def test_a_file_has_at_most_700_lines():
    """Past 400 ask whether it is two modules; past 700 it is."""
    lines = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in CODE}
    assert len(lines) > 400
    assert {path: number for path, number in lines.items() if number > 700} == {}


def test_a_folder_has_at_most_25_modules():
    """Past that it has parts with names of their own: make them folders."""
    modules = [path for end in ("py", "js") for path in (ROOT / "src/sexton").rglob(f"*.{end}")]
    folders = Counter(
        str(path.parent.relative_to(ROOT)) for path in modules if path.stem != "__init__"
    )
    assert len(folders) > 40
    assert {folder: number for folder, number in folders.items() if number > 25} == {}


def test_every_command_is_a_verb_in_the_list_and_in_the_readme():
    commands = ROOT / "src/sexton/cli/commands"
    stems = {path.stem for path in commands.glob("*.py") if path.stem != "__init__"}
    assert {stem.replace("_", "-") for stem in stems} == set(VERBS)
    readme = (ROOT / "README.md").read_text()
    assert all(f"sexton {verb}" in readme for verb in VERBS)


def test_constraints_pin_versions_and_name_no_index():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins), pins
    assert "://" not in "\n".join(lines)


def test_make_alone_prints_help():
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("diagnose", "test", "demo", "check", "bench"):
        assert f"make {target}" in shown


def test_ci_runs_targets_of_check_in_its_order_and_each_once():
    targets = re.findall(r"^make (\S+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    check = re.search(r"^check: (\w.*?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert check is not None
    every = check[1].replace("test-all", "test test-whole").split()  # the same tests in one pass
    assert targets == [part for part in every if part in targets]
    assert {"lint", "test", "test-whole", "diagnose"} <= {*targets}
