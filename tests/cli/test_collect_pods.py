"""Names of pods in what the collecting script writes: from names of logs only, and bounded."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from sexton.cli.commands.collect import script
from sexton.detect.kubernetes.pods import pods
from sexton.host.archive import read_archive
from sexton.host.host import Host
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.window import Window
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.support.pods import link_logs, make_pods
from tests.support.tools import need

_START = 'main "$@" </dev/null\n\n}\n'
_PROBE = """
nl='
'
dir=$1 most_pods=$2 notes= limited=0 mark=5d1fcb0e-7a2d-4b8e-9a41-2f5f6e1c9d10
open_bundle 1
text='1 2'
put /commands/clock
pods
close_bundle
echo "$notes"
"""
UID, ID = "0a1b2c3d-1111-2222-3333-444455556666", "0f" * 32


@pytest.fixture(params=["dash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "dash":
        return [need("dash", package="dash")]
    return [need("busybox", package="busybox-static"), "sh"]


def collected(shell: list[str], root: Path, most: int = 2000) -> tuple[Window, str]:
    """What the script's own function finds below `root`, read back as an archive."""
    out = root / "out"
    out.mkdir()
    text = script().removesuffix(_START) + _PROBE + "}\n"
    # In the tree of the test, under the names of a node.
    text = text.replace("for file in /var/log", f"for file in {root}/var/log")
    text = text.replace('file %s\\n%s\' "$mark" "$1"', 'file %s\\n%s\' "$mark" "${1#$root}"')
    text = text.replace('"$mark" "$file" >&3', '"$mark" "${file#$root}" >&3')
    ended = subprocess.run(
        [*shell, "-s", "--", str(out), str(most)],
        input=f"root={root}\n{text}".encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == b""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        manifest = b"sexton.collect/1\nsnapshots 1\n"
        info = tarfile.TarInfo("manifest")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
        tar.add(out / "1" / "bundle", "1/bundle")
    packed.seek(0)
    snapshots = list(read_archive(packed))
    with Sampler(Host(snapshots[0].files, live=False), sources_of(Container, Pod)) as sampler:
        return sampler.replay(snapshots), ended.stdout.decode().strip()


def test_an_archive_names_containers_and_pods(shell: list[str], tmp_path: Path):
    link_logs(
        tmp_path, [f"api-7c9_prod_app-{ID}.log -> /var/log/pods/prod_api-7c9_{UID}/app/57.log"]
    )
    make_pods(tmp_path, [f"prod_api-7c9_{UID}", f"odd \x1b[31m_\udcff_{'9' * 32}"])
    os.mkdir(tmp_path / "var/log/pods" / f"new\nline_x_{'8' * 32}")
    window, notes = collected(shell, tmp_path)
    names = pods(window)
    found = names.of(f"/kubepods/pod{UID}/{ID}")
    assert found is not None
    assert found.words == "container app of pod prod/api-7c9"
    odd = names.of("/kubepods/pod" + "9" * 32)
    assert odd is not None
    assert (odd.namespace, odd.pod) == ("odd \x1b[31m", "\udcff")
    assert names.of("/kubepods/pod" + "8" * 32) is None
    assert notes == ""


def test_a_node_without_kubernetes_has_neither(shell: list[str], tmp_path: Path):
    (tmp_path / "var/log").mkdir(parents=True)
    window, notes = collected(shell, tmp_path)
    assert not window.read(Pod)
    assert not window.read(Container)
    assert notes == ""


def test_it_is_bounded_and_says_so(shell: list[str], tmp_path: Path):
    make_pods(tmp_path, [f"n_p{at}_{at:032x}" for at in range(20)])
    window, notes = collected(shell, tmp_path, most=5)
    assert len(window.all(Pod) or ()) == 5
    assert notes == "only 5 pods and containers were read"
