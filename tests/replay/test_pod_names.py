"""A pod that died has its name hours later, and a window of a recording knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexton.detect.kubernetes.pods import pods
from sexton.detect.owners import owners
from sexton.explain.subject import names_for
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupEvent
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.window import Batch
from sexton.replay.span import between
from sexton.replay.window import RecordedWindow
from sexton.series.restarts import containers
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, write_sealed

UID, ID = "a" * 32, "0f" * 32
PATH = f"/kubepods/burstable/pod{UID}/{ID}"
#: Odd names come back as they were read.
NAMES = [("prod", "api-7c9"), ("a\x1b[31m\n", "\udcff" * 80)]


def batch(at: int, *rows: Row) -> Batch[Any]:
    return Batch(float(at), WALL_S + at, rows)


@pytest.mark.parametrize("names", NAMES, ids=["plain", "odd"])
def test_a_pod_that_died_at_two_has_its_name_at_nine(tmp_path: Path, names: tuple[str, str]):
    namespace, pod = names
    container = Container(ID, namespace, pod, "app", UID, 57, WALL_S + 900)
    first: dict[type[Row], list[Batch[Any]]] = {
        Container: [batch(1000, container), batch(1010)],
        Pod: [batch(1000, Pod(UID, namespace, pod)), batch(1010)],
        CgroupEvent: [batch(1000), batch(1020, CgroupEvent("rmdir", 7, PATH, 1015 * 10**9))],
    }
    later: dict[type[Row], list[Batch[Any]]] = {
        Container: [batch(26_000), batch(26_010)],
        CgroupEvent: [batch(26_000), batch(26_100)],
    }
    write_sealed(tmp_path, [first], 1)
    write_sealed(tmp_path, [later], 2)
    recording = Recording(tmp_path)
    window = RecordedWindow(recording, between(recording, WALL_S + 25_990, WALL_S + 26_200))
    assert window.start > WALL_S + 20_000
    part = pods(window).of(PATH)
    assert part is not None
    assert (part.namespace, part.pod, part.container) == (namespace, pod, "app")
    known = containers(window)[namespace, pod, "app"]
    assert (known.restarts.total, known.restarts.recent, known.last_s) == (57, 0, WALL_S + 900)
    (owner,) = owners(window)
    assert owner.pod == part
    assert names_for(f"pod {namespace}/{pod}", window)["pod"]
