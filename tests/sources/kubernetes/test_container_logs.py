"""Links of container logs: whose they are, which are new, what is left out."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.archive import ArchiveFiles
from sexton.host.host import Host, open_host
from sexton.model.rows.kubernetes import Container
from sexton.sources.kubernetes import names
from sexton.sources.kubernetes.container_logs import PATH, ContainerLogs, parse, parse_target
from tests.support.fixtures import kernel_text, kernels
from tests.support.pods import link_logs
from tests.support.trees import plant

ID = "0f" * 32
UID = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize("version", ["1.24", "1.36"])
def test_every_link_of_a_kubelet_is_named(tmp_path, version):
    lines = kernel_text("kubernetes.container_logs", version).splitlines()
    link_logs(tmp_path, lines)
    found = list(ContainerLogs(open_host(str(tmp_path))).collect())
    assert len(found) == len(lines) >= 2
    for row in found:
        assert row.pod_uid is not None
        assert row.restarts is not None
        line = next(line for line in lines if row.id in line)
        assert line.startswith(f"{row.pod}_{row.namespace}_{row.name}-")
        assert line.endswith(f"/{row.name}/{row.restarts}.log")
    assert {path.stem for path in kernels("kubernetes.container_logs")} == {"1.24", "1.36"}


def test_only_new_links_are_given_again_and_gone_ones_are_forgotten(tmp_path):
    link = f"a_b_c-{ID}.log -> /var/log/pods/b_a_{UID}/c/0.log"
    link_logs(tmp_path, [link])
    reading = ContainerLogs(open_host(str(tmp_path)))
    (row,) = reading.collect()
    assert row == Container(ID, "b", "a", "c", UID, 0, row.started_s)
    made_s = os.lstat(tmp_path / "var/log/containers" / f"a_b_c-{ID}.log").st_mtime
    assert row.started_s == made_s
    assert list(reading.collect()) == []
    other = link.replace("0f", "1e").replace("0.log", "1.log")
    link_logs(tmp_path, [other])
    assert [row.restarts for row in reading.collect()] == [1]
    (tmp_path / f"var/log/containers/a_b_c-{ID}.log").unlink()
    assert list(reading.collect()) == []
    link_logs(tmp_path, [link])
    assert len(list(reading.collect())) == 1


def test_everything_is_given_again_after_ten_minutes(tmp_path):
    link_logs(tmp_path, [f"a_b_c-{ID}.log -> x"])
    host = open_host(str(tmp_path))
    reading = ContainerLogs(host)
    given = []
    for moment_s in (0.0, 599.0, 601.0):
        host.moment = (moment_s, moment_s)
        given.append(len(list(reading.collect())))
    assert given == [1, 0, 1]


def test_an_archive_has_names_without_targets(tmp_path):
    files = ArchiveFiles()
    files.add_file(f"{PATH}/a_b_c-{ID}.log", b"")
    host = Host(files, live=False)
    assert list(ContainerLogs(host).collect()) == [Container(ID, "b", "a", "c", None, None)]


def test_hostile_names_are_kept_as_read(tmp_path):
    hostile = ["\x1b[31m\n", "\udcff\udc80", "..", "a b\t'\"$(x)"]
    link_logs(tmp_path, [])
    for number, name in enumerate(hostile):
        entry = f"{name}_{name}_{name}-{number:064x}.log"
        os.symlink(
            "x" * 4000, os.fsencode(tmp_path / "var/log/containers") + b"/" + os.fsencode(entry)
        )
    found = {int(row.id, 16): row for row in ContainerLogs(open_host(str(tmp_path))).collect()}
    for number, name in enumerate(hostile):
        assert (found[number].namespace, found[number].pod, found[number].name) == (name,) * 3


def test_a_name_that_was_cut_or_is_too_long_is_skipped():
    assert parse("p" * 180 + "_n_c-" + ID[:40] + ".log") is None
    assert parse(f"{'p' * 10_000}_n_c-{ID}.log") is None
    assert parse(f"p_n_-{ID}.log") is None


def test_a_huge_directory_is_bounded_and_says_so(tmp_path, monkeypatch):
    entries = [f"p_n_c-{number:064x}.log" for number in range(100_000)]
    host = plant(tmp_path, {f"{PATH}/x": ""})
    monkeypatch.setattr(type(host.files), "names", lambda _files, _path: list(entries))
    reading = ContainerLogs(host)
    assert len(list(reading.collect())) == names.MOST
    assert reading.note == f"only 10,000 of 100,000 entries of {PATH} were read"


def test_without_a_kubelet_it_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(ContainerLogs(plant(tmp_path, {"/etc/x": ""})).collect())


@given(st.text(max_size=400), st.text(max_size=400))
def test_junk_is_nothing_or_a_name_within_limits(entry, target):
    for text in (entry, f"{entry}-{ID}.log", f"a_{entry}_{entry}-{ID}.log"):
        found = parse(text)
        assert found is None or all(0 < len(part) <= 253 for part in found[1:])
    uid, restarts = parse_target(target)
    assert (uid is None) is (restarts is None)
