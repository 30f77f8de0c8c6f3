"""Runtimes' own files: containers and sandboxes of three runtimes, and hostile ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceDenied
from sexton.model.rows.kubernetes import Container
from sexton.sources.kubernetes import runtime_state
from sexton.sources.kubernetes.runtime_state import CONTAINERD, CRIO, DOCKER, RuntimeState, parse
from tests.support.fixtures import FIXTURES
from tests.support.trees import plant

FOLDER = FIXTURES / "kubernetes" / "runtime_state"
ID = "0f" * 32
STATIC = "5644500947433fb93886435ff316ded0"
DNS = "caf1aa9e-c2ee-4782-ad6d-98736fa15dd2"
SEGFAULTER = "aaaa2b4a-f398-41c0-928b-049e1cc4ec40"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("containerd-2.1-container", ("prod", "api-node1", "sidecar", STATIC, None)),
        ("containerd-2.1-sandbox", ("prod", "api-node1", None, STATIC, None)),
        ("containerd-1.5-container", ("prod", "api-7c9f4d5b6-x2k4z", "app", None, None)),
        ("crio-1.22-container", ("default", "segfaulter", "segfaulter", SEGFAULTER, 3)),
        ("crio-1.22-sandbox", ("default", "segfaulter", None, SEGFAULTER, None)),
        ("docker-20.10-container", ("kube-system", "coredns-5644d7b6d9-c5tbq", "coredns", DNS, 13)),
        ("docker-20.10-sandbox", ("kube-system", "coredns-5644d7b6d9-c5tbq", None, DNS, None)),
    ],
)
def test_each_runtime(name, row):
    assert parse(ID, (FOLDER / f"{name}.json").read_text()) == Container(ID, *row)


def test_all_runtimes_of_a_node_are_read_and_each_file_once(tmp_path):
    contents = {
        f"{CONTAINERD}/{'a' * 64}/config.json": "containerd-2.1-container",
        f"{CRIO}/{'b' * 64}/userdata/config.json": "crio-1.22-container",
        f"{DOCKER}/{'c' * 64}/config.v2.json": "docker-20.10-container",
    }
    host = plant(tmp_path, {k: (FOLDER / f"{v}.json").read_text() for k, v in contents.items()})
    plant(tmp_path, {f"{CONTAINERD}/../../x": "", f"{CONTAINERD}/not-an-id/config.json": "{}"})
    reading = RuntimeState(host)
    assert sorted(row.id[0] for row in reading.collect()) == ["a", "b", "c"]
    assert list(reading.collect()) == []


def test_docker_without_kubernetes_names_nothing(tmp_path):
    content = json.dumps({"Config": {"Labels": {"maintainer": "x"}}})
    host = plant(tmp_path, {f"{DOCKER}/{ID}/config.v2.json": content})
    assert list(RuntimeState(host).collect()) == []


def test_no_runtime_and_no_permission_are_not_the_same(tmp_path, monkeypatch):
    host = plant(tmp_path, {"/etc/x": ""})
    with pytest.raises(SourceAbsent):
        list(RuntimeState(host).collect())

    def refuse(_files: object, path: str) -> list[str]:
        raise SourceDenied(path, "Permission denied")

    monkeypatch.setattr(type(host.files), "names", refuse)
    with pytest.raises(SourceDenied):
        list(RuntimeState(host).collect())


def test_what_is_hostile_is_no_container():
    good = json.loads((FOLDER / "containerd-2.1-container.json").read_text())
    for key, value in (
        ("sandbox-name", ["x"]),
        ("sandbox-name", "x" * 10_000),
        ("sandbox-namespace", None),
        ("container-name", {"a": 1}),
    ):
        labels = {**good["annotations"], f"io.kubernetes.cri.{key}": value}
        assert parse(ID, json.dumps({**good, "annotations": labels})) is None
    odd = {**good["annotations"], "io.kubernetes.cri.sandbox-uid": "../../etc"}
    assert parse(ID, json.dumps({"annotations": odd})).pod_uid is None
    assert parse(ID, "[" * 100_000) is None
    assert parse(ID, '{"annotations":' + "9" * 10_000 + "}") is None


def test_names_with_terminal_codes_are_kept_as_read():
    labels = {"pod.name": "\x1b]0;x\x07", "pod.namespace": "a\nb", "container.name": ".."}
    labels = {f"io.kubernetes.{key}": value for key, value in labels.items()}
    found = parse(ID, json.dumps({"annotations": labels}))
    assert found == Container(ID, "a\nb", "\x1b]0;x\x07", "..", None, None)


def test_a_large_file_and_many_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_state, "MOST_NEW", 2)
    content = (FOLDER / "containerd-2.1-container.json").read_text()
    files = {f"{CONTAINERD}/{at:064x}/config.json": content for at in range(5)}
    files[f"{CONTAINERD}/{0:064x}/config.json"] = content + " " * runtime_state.MOST_BYTES
    reading = RuntimeState(plant(tmp_path, files))
    assert [len(list(reading.collect())) for _ in range(4)] == [1, 2, 1, 0]


_KEYS = st.sampled_from(
    ["annotations", "Config", "Labels"]
    + [f"io.kubernetes.{key}" for key in ("pod.name", "pod.namespace", "cri.sandbox-name")]
)
_JUNK = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner),
)


@given(_JUNK, st.text())
def test_junk_is_nothing_or_a_container(junk, text):
    found = parse(ID, json.dumps(junk))
    assert found is None or 0 < len(found.pod) <= 253
    assert parse(ID, text) is None
