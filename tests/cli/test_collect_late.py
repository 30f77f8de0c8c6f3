"""What the collecting script does with a program that does not end: half an answer is none.

Seen on a real node: systemd, busy restarting a unit three times a second, took longer than eight
seconds to list its units; the list was cut before the unit that mattered, and the node was called
healthy.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from sexton.cli.commands.collect import script
from sexton.errors import SourceAbsent, SourceTimeout
from sexton.host.archive import read_archive
from sexton.host.reader import Files
from tests.support.tools import need

_START = 'main "$@" </dev/null\n\n}\n'
_PROBE = """
dir=$1 timed=$2 limited=0 patience=2 mark=5d1fcb0e-7a2d-4b8e-9a41-2f5f6e1c9d10
open_bundle 1
text='1 2'
put /commands/clock
output slow sh -c 'echo half; exec sleep 60'
output quick echo whole
output failing sh -c 'echo told; exit 3'
output silent true
close_bundle
"""


@pytest.fixture(params=["dash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "dash":
        return [need("dash", package="dash")]
    return [need("busybox", package="busybox-static"), "sh"]


#: Frozen, a program ends at no signal, as if it waited in the kernel.
_STUCK = """
dir=$1 timed=1 limited=0 patience=2 mark=5d1fcb0e-7a2d-4b8e-9a41-2f5f6e1c9d10 stuck=' '
open_bundle 1
text='1 2'
put /commands/clock
output slow sh -c 'echo half; echo $$ >'$2'/tasks; echo FROZEN >'$2'/freezer.state; echo more'
output again sh -c 'echo it would wait, too'
output quick echo whole
close_bundle
"""


def run(shell: list[str], probe: str, place: Path, argument: str) -> tuple[Files, str]:
    """The script's own functions, asked about a few programs: what they read, and complained."""
    whole = script()
    assert whole.endswith(_START)
    text = whole.removesuffix(_START) + probe + "}\n"
    ended = subprocess.run(
        [*shell, "-s", "--", str(place), argument],
        input=text.encode(),
        capture_output=True,
        timeout=90,
        check=False,
    )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        manifest = b"sexton.collect/1\nsnapshots 1\n"
        info = tarfile.TarInfo("manifest")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
        tar.add(place / "1" / "bundle", "1/bundle")
    packed.seek(0)
    (snapshot,) = read_archive(packed)
    return snapshot.files, ended.stderr.decode()


@pytest.fixture(params=["1", "0"], ids=["timeout", "no timeout"])
def probed(request: pytest.FixtureRequest, shell: list[str], tmp_path: Path) -> Files:
    files, complaints = run(shell, _PROBE, tmp_path, request.param)
    assert complaints == ""
    return files


def test_a_program_that_is_stopped_is_late_and_one_that_ends_is_heard(probed: Files):
    with pytest.raises(SourceTimeout):
        probed.read("/commands/slow")
    assert probed.read("/commands/quick") == b"whole\n"
    assert probed.read("/commands/failing") == b"told\n", "ethtool fails and still tells"
    with pytest.raises(SourceAbsent):
        probed.read("/commands/silent")


@pytest.mark.root
def test_a_program_that_cannot_be_killed_is_left_behind(
    shell: list[str], tmp_path: Path, freezer: Path
):
    """As ethtool cannot while a NIC resets. It held up the script for as long as it waited."""
    files, complaints = run(shell, _STUCK, tmp_path, str(freezer))
    assert complaints == "sexton collect: left behind, stuck in the kernel: sh\n"
    assert (freezer / "tasks").read_text(), "it still waits"
    for name in ("slow", "again"):
        with pytest.raises(SourceTimeout):
            files.read(f"/commands/{name}")
    assert files.read("/commands/quick") == b"whole\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "one"]
