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


@pytest.fixture(params=["1", "0"], ids=["timeout", "no timeout"])
def probed(request: pytest.FixtureRequest, shell: list[str], tmp_path: Path) -> Files:
    """The script's own functions, asked about four programs."""
    whole = script()
    assert whole.endswith(_START)
    text = whole.removesuffix(_START) + _PROBE + "}\n"
    ended = subprocess.run(
        [*shell, "-s", "--", str(tmp_path), request.param],
        input=text.encode(),
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert ended.stderr == b""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        manifest = b"sexton.collect/1\nsnapshots 1\n"
        info = tarfile.TarInfo("manifest")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
        tar.add(tmp_path / "1" / "bundle", "1/bundle")
    packed.seek(0)
    (snapshot,) = read_archive(packed)
    return snapshot.files


def test_a_program_that_is_stopped_is_late_and_one_that_ends_is_heard(probed: Files):
    with pytest.raises(SourceTimeout):
        probed.read("/commands/slow")
    assert probed.read("/commands/quick") == b"whole\n"
    assert probed.read("/commands/failing") == b"told\n", "ethtool fails and still tells"
    with pytest.raises(SourceAbsent):
        probed.read("/commands/silent")
