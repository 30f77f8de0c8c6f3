"""Directories of pods' logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.model.rows.kubernetes import Pod
from sexton.sources.kubernetes.names import MOST
from sexton.sources.kubernetes.pod_logs import PATH, PodLogs, parse
from tests.support.fixtures import kernel_text
from tests.support.pods import make_pods
from tests.support.trees import plant

UID = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize("version", ["1.24", "1.36"])
def test_every_directory_of_a_kubelet_is_a_pod(tmp_path, version):
    lines = kernel_text("kubernetes.pod_logs", version).splitlines()
    make_pods(tmp_path, lines)
    reading = PodLogs(open_host(str(tmp_path)))
    found = list(reading.collect())
    assert {f"{pod.namespace}_{pod.name}_{pod.uid}" for pod in found} == {*lines}
    assert list(reading.collect()) == []
    assert reading.note == ""


def test_a_static_pod_has_the_hash_of_its_file():
    assert parse("kube-system_etcd-node1_" + "0f" * 16) == Pod(
        "0f" * 16, "kube-system", "etcd-node1"
    )


def test_hostile_names_are_kept_as_read():
    assert parse(f"\x1b[2J_a\n\udcff_{UID}") == Pod(UID, "\x1b[2J", "a\n\udcff")
    assert parse(f".._.._{UID}") == Pod(UID, "..", "..")
    assert parse(f"ns_{'p' * 10_000}_{UID}") is None


def test_a_huge_directory_is_bounded_and_says_so(tmp_path, monkeypatch):
    entries = [f"n_p{at}_{at:032x}" for at in range(100_000)]
    host = plant(tmp_path, {f"{PATH}/x/y": ""})
    monkeypatch.setattr(type(host.files), "names", lambda _files, _path: list(entries))
    reading = PodLogs(host)
    assert len(list(reading.collect())) == MOST
    assert "100,000" in reading.note


def test_without_a_kubelet_it_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(PodLogs(plant(tmp_path, {"/etc/x": ""})).collect())


@given(st.text(max_size=400))
def test_junk_is_nothing_or_a_pod(entry):
    for text in (entry, f"{entry}_{UID}"):
        pod = parse(text)
        assert pod is None or (len(pod.namespace) <= 253 and f"_{pod.uid}" in text)
