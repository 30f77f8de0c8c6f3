"""What is expected of a node's diagnosis: the parts a person relies on, without the prose.

Summaries, evidence and advice may be worded anew at any time; what was found, how bad it is, whom
it names and what caused what may not change unseen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sexton.explain.diagnosis import diagnose
from sexton.host.archive import read_archive
from sexton.host.host import Host
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Verdict
from sexton.record.sampler import Sampler
from tests.support.fixtures import FIXTURES

NODES = FIXTURES / "nodes"
ARCHIVES = sorted(NODES.glob("*.tar.gz"))
#: Kinds of entities whose names stay the same however often the archive is made anew.
_LASTING = ("unit", "cgroup", "nic")


def name_of(archive: Path) -> str:
    return archive.name.removesuffix(".tar.gz")


def expectation_of(archive: Path) -> Path:
    return archive.with_name(f"{name_of(archive)}.expect.json")


def diagnosed(archive: Path) -> Diagnosis:
    """By the way that `sexton diagnose -` takes."""
    with archive.open("rb") as stream:
        snapshots = read_archive(stream)
    with Sampler(Host(snapshots[0].files, live=False)) as sampler:
        return diagnose(sampler.replay(snapshots))


def expected(diagnosis: Diagnosis) -> dict[str, Any]:
    node = diagnosis.node
    return {
        "kernel": node.kernel if node else None,
        "hierarchy": diagnosis.hierarchy,
        "exit": int(diagnosis.exit),
        "findings": {finding.id: _finding(finding) for finding in diagnosis.findings},
        "chains": [
            {
                "strength": chain.strength.value,
                "links": [f"{link.id}: {link.strength.value}" for link in chain.links],
            }
            for chain in diagnosis.chains
        ],
        "unexplained": list(diagnosis.unexplained),
        "broken": [
            f"{state.id}: {state.state}, {state.detail}"
            for state in diagnosis.sources
            if state.state in ("malformed", "failed", "timeout")
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    said: dict[str, Any] = {"verdict": finding.verdict.value}
    if finding.verdict is Verdict.PRESENT:
        said["severity"] = finding.severity.value
    for kind in _LASTING:
        if kind in finding.entities:
            said[kind] = list(finding.entities[kind])
    return said


def as_text(expectation: dict[str, Any]) -> str:
    """JSON with a line for each finding and each chain, so that a diff reads like a sentence."""
    parts = (f'  "{key}": {_lines(value)}' for key, value in expectation.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, dict) and value:
        inner = (f"    {json.dumps(key)}: {_short(value[key])}" for key in sorted(value))
        return "{\n" + ",\n".join(inner) + "\n  }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_short(element)}" for element in value) + "\n  ]"
    return _short(value)


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
