"""The chart as files: its values, their schema, and that it copies nothing. Needs no helm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml

import sexton
from sexton.record.preflight import BITS
from tests.deploy.helm.conftest import CHART, ROOT, merged, nested

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
#: Maps whose content is Kubernetes', not ours.
OPEN = ("nodeSelector", "resources", "updateStrategy.maxUnavailable")


def leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping) and value and path not in OPEN:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def allowed(schema: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, inner in schema["properties"].items():
        path = f"{before}{name}"
        if inner.get("additionalProperties") is False and path not in OPEN:
            yield from allowed(inner, f"{path}.")
        else:
            yield path


def test_it_has_the_version_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == sexton.__version__


def test_rights_policies_and_rules_are_those_of_their_own_folders():
    places = {path.name: path.resolve().relative_to(ROOT) for path in (CHART / "files").iterdir()}
    assert {name: str(path) for name, path in places.items()} == {
        "rbac.yaml": "deploy/kubernetes/rbac.yaml",
        "policy.yaml": "deploy/kubernetes/policy.yaml",
        "sexton-alerts.yml": "deploy/prometheus/sexton-alerts.yml",
        "sexton-rules.yml": "deploy/prometheus/sexton-rules.yml",
    }
    assert all(path.is_symlink() for path in (CHART / "files").iterdir())


def test_every_value_is_in_the_schema_and_the_other_way_round():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    inner = "seccompProfile."
    given = {path for path, _ in leaves(VALUES) if not path.startswith(inner)}
    known = {path for path in allowed(SCHEMA) if not path.startswith(inner)}
    assert known - {"global"} == given


def test_every_group_of_values_says_what_it_is():
    """A comment above each top-level value, or above the first one in it."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[a-zA-Z]+:", line):
            beside = (lines[number - 1], lines[number + 1] if number + 1 < len(lines) else "")
            assert any(each.lstrip().startswith("#") for each in beside) or line.startswith(
                ("nodeSelector", "affinity", "extraEnv", "podAnnotations", "recording")
            ), line


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metrics.enable", True),
        ("metrics.enabled", "yes"),
        ("metrics.port", 0),
        ("metrics.port", 65536),
        ("metrics.webConfigSecret", "Not A Name"),
        ("image.repository", ""),
        ("image.repository", "a\n          privileged: true"),
        ("image.tag", "a b"),
        ("image.digest", "sha256:12"),
        ("recording.hostPath", "relative"),
        ("recording.hostPath", "/"),
        ("recording.retain", "forever"),
        ("recording.size", "big"),
        ("sources.runtimeState", "/run/containerd"),
        ("sources.runtimeState", "/run"),
        ("sources.runtimeState", "/var/run/crio/"),
        ("extraCapabilities", ["ALL"]),
        ("extraCapabilities", ["SYS_ADMIN, ALL"]),
        ("podMonitor.scheme", "ftp"),
        ("prometheusRule.nodeUrl", "javascript:alert(1)"),
        ("priorityClass.value", 2_000_000_000),
        ("updateStrategy.maxUnavailable", "0%"),
        ("updateStrategy.maxUnavailable", 0),
        ("resources.limits.memory", "much"),
        ("seccompProfile.type", "None"),
        ("sources.runtimeState", "/run/x/../containerd"),
        ("recording.hostPath", "/var/../etc"),
        ("podLabels", {"a b": "c"}),
        ("privileged", True),
    ],
)
def test_the_schema_refuses(path: str, value: object):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, nested(path, value)), SCHEMA)


def test_the_page_names_the_capabilities_and_preflight_knows_them():
    text = (CHART / "templates/daemonset.yaml").read_text()
    given = set(re.findall(r'"([A-Z]{3,})"', text.partition("\napiVersion")[0]))
    assert given == {"SYSLOG", "BPF", "PERFMON"}
    assert {f"CAP_{name}" for name in given} <= set(BITS)
    page = (CHART / "README.md").read_text()
    assert all(name in page for name in given)
