"""Helm, built from its source by scripts/helm."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/sexton"
_BUILD_DEADLINE_S = 1800
#: Helm's own builds have the version of Kubernetes' libraries here; one of a module has 1.20.
KUBERNETES = "--kube-version=1.36.3"


class Helm(NamedTuple):
    """The program, the Prometheus operator's definitions, and where helm may write."""

    program: Path
    definitions: Path
    home: Path

    def run(self, *arguments: str | Path, given: object = None) -> subprocess.CompletedProcess[str]:
        """With `given` as values, exactly as they are."""
        values = [] if given is None else ["--values", "-"]
        return subprocess.run(
            [self.program, *arguments, *values],
            input=json.dumps(given),
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def text(self, values: object = None, chart: Path = CHART) -> str:
        """What it would install, as text."""
        ended = self.run("template", "mine", chart, "--namespace=other", KUBERNETES, given=values)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def made(self, values: object = None, chart: Path = CHART) -> dict[tuple[str, str], Any]:
        """The same, by kind and name."""
        objects = [each for each in yaml.safe_load_all(self.text(values, chart)) if each]
        found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
        assert len(found) == len(objects), "two objects of one name"
        return found

    def refused(self, values: object) -> str:
        """Why it does not take them."""
        ended = self.run("template", "mine", CHART, KUBERNETES, given=values)
        assert ended.returncode != 0, ended.stdout[:2000]
        return ended.stderr


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Its first run compiles it, which takes minutes of a core, and says so."""
    script = ["nice", "-n", "19", ROOT / "scripts/helm"]
    made = subprocess.run(script, capture_output=True, text=True, timeout=_BUILD_DEADLINE_S)
    if made.returncode == 3:
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr[-4000:]
    for line in made.stderr.splitlines():
        if line.startswith("building"):
            warnings.warn(line, stacklevel=1)
    program, definitions = made.stdout.splitlines()
    return Helm(Path(program), Path(definitions), tmp_path_factory.mktemp("helm"))


def nested(path: str, value: object) -> dict[str, Any]:
    """``nested("a.b", 1)`` is ``{"a": {"b": 1}}``."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both, `second` where they differ."""
    whole = dict(first)
    for key, value in second.items():
        inner = whole.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        whole[key] = merged(inner, value) if both else value
    return whole
