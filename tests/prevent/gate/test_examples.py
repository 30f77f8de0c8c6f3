"""The examples and the page: files that readers will copy, so every word of them is checked."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
import yaml

from sexton.cli.commands import gate
from sexton.prevent.gate import builtin, parse
from tests.prevent.gate.schemas import GITHUB, GITLAB, errors

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs/gate.md"
WHOLE = sorted(path for path in EXAMPLES.rglob("*") if path.is_file())
_COMMAND = re.compile(r"sexton gate\b[^\n;#\"`|&)]*")


def commands(text: str) -> list[list[str]]:
    """Every ``sexton gate …`` with options, as it would be typed."""
    found = [shlex.split(match) for match in _COMMAND.findall(text)]
    return [words[2:] for words in found if any(word.startswith("--") for word in words)]


@pytest.mark.parametrize("path", [*WHOLE, PAGE], ids=lambda path: path.name)
def test_every_command_in_it_is_one_that_is_understood(path: Path) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    gate.add_arguments(parser)
    for words in commands(path.read_text()):
        parser.parse_args([word for word in words if word not in ("text|json|sarif|junit",)])


def test_they_do_use_it() -> None:
    using = [path.name for path in WHOLE if commands(path.read_text())]
    assert using == ["gate.toml", "gate.yml", "gitlab-ci.yml", "node.pkr.hcl"]


def test_the_workflow_is_one_by_githubs_schema() -> None:
    text = (EXAMPLES / "github-actions/gate.yml").read_text()
    parsed = yaml.safe_load(text)
    parsed["on"] = parsed.pop(True)  # YAML 1.1 reads the key `on` as true
    assert errors(parsed, GITHUB) == []
    del parsed["jobs"]["gate"]["runs-on"]
    assert errors(parsed, GITHUB) != []


def test_the_pipeline_is_one_by_gitlabs_schema() -> None:
    parsed = yaml.safe_load((EXAMPLES / "gitlab/gitlab-ci.yml").read_text())
    assert errors(parsed, GITLAB) == []
    parsed["image-gate"]["artifacts"]["reports"]["junit"] = 7
    assert errors(parsed, GITLAB) != []


def test_the_policy_is_one() -> None:
    parsed = parse((EXAMPLES / "gate.toml").read_bytes(), "gate.toml")
    assert parsed.rules["cgroup_version"]["require"] == "v2"
    assert len(parsed.waivers) == 1


def test_packers_file_has_its_braces_and_ends_with_the_gates_status() -> None:
    text = (EXAMPLES / "packer/node.pkr.hcl").read_text()
    assert text.count("{") == text.count("}")
    assert text.index("echo $? |") < text.index("direction   =") < text.index('"exit $status"')


def test_the_page_names_every_rule_and_every_setting() -> None:
    page = PAGE.read_text()
    for rule, settings in builtin().rules.items():
        assert f"`{rule}`" in page, rule
        for name in settings:
            assert name in page, f"{rule}.{name}"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_pages_pieces_of_pipelines_are_valid_in_their_places() -> None:
    steps, job = map(yaml.safe_load, blocks("yaml"))
    workflow = {"on": "push", "jobs": {"gate": {"runs-on": "ubuntu-latest", "steps": steps}}}
    assert errors(workflow, GITHUB) == []
    assert errors({"image-gate": job}, GITLAB) == []
    assert errors({"image-gate": {**job, "artifacts": {"when": "seldom"}}}, GITLAB) != []


@pytest.mark.parametrize("text", [(EXAMPLES / "packer/node.pkr.hcl").read_text(), *blocks("hcl")])
def test_packers_pieces_are_blocks_and_attributes(text: str) -> None:
    """HCL's native syntax, as far as these use it: no parser of it is among our tools."""
    depth = 0
    for line in (bare(line) for line in text.splitlines()):
        assert re.fullmatch(_HCL_LINE, line), line
        depth += len(re.findall(r"[{\[]", _STRING.sub("", line)))
        depth -= len(re.findall(r"[}\]]", _STRING.sub("", line)))
        assert depth >= 0, line
    assert depth == 0


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_VALUE = rf"(?:{_STRING.pattern}|\[(?:{_STRING.pattern},? ?)*\]?|true|false|\d+|\{{)"
#: Nothing, the end of a block or list, a block's head, an attribute, or an item of a list.
_HCL_LINE = rf'\s*(?:|[}}\]],?|\w+(?: "[\w-]+")* \{{|[\w-]+ *= {_VALUE}|{_STRING.pattern},?)'


def bare(line: str) -> str:
    """Without its comment, which no text of these holds the mark of."""
    kept = re.match(rf"(?:[^#\"]|{_STRING.pattern})*", line)
    return kept[0].rstrip() if kept else line


def test_the_policy_on_the_page_is_one() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    parsed = parse(block[1].encode(), "page")
    assert parsed.rules["kubelet_config"]["strict"] is True
    assert parsed.waivers[0].owner == "payments@example.com"
