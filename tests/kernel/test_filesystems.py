"""Filesystems of our own that are full or broken, for real, in a mount namespace of their own."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root
#: What a source and a detector say in there.
LOOK = """
import json, sys
from sexton.detect.registry import detector_of
from sexton.host.host import open_host
from sexton.model.rows.event import KernelLog
from sexton.model.rows.filesystem import Filesystem
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
with Sampler(open_host(), sources_of(Filesystem, KernelLog)) as sampler:
    finding = detector_of(sys.argv[1]).run(sampler.run(0.0))
print(json.dumps([finding.verdict, finding.severity, finding.summary, dict(finding.entities)]))
"""


def seen(name: str, prepare: str, *arguments: str):
    """The finding after a shell script that may mount what it likes."""
    script = f'set -e; {prepare}; exec {shlex.quote(sys.executable)} -c "$LOOK" {name}'
    ended = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *arguments],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LOOK": LOOK},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_full_tmpfs(tmp_path: Path):
    fill = 'mount -t tmpfs -o size=20m none "$1"; head -c 30m /dev/zero >"$1/fill" 2>/dev/null || :'
    verdict, severity, summary, entities = seen("full_filesystem", fill, str(tmp_path))
    assert (verdict, severity) == ("present", "critical"), summary
    assert str(tmp_path) in entities["mount"]


def test_a_tmpfs_without_inodes(tmp_path: Path):
    names = " ".join(f'"$1/{number}"' for number in range(9))
    fill = f'mount -t tmpfs -o size=20m,nr_inodes=9 none "$1"; touch {names} || :'
    verdict, severity, summary, _ = seen("full_filesystem", f"{fill} 2>/dev/null", str(tmp_path))
    assert (verdict, severity) == ("present", "critical"), summary
    assert "out of inodes: 0 inodes left" in summary


@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="no mkfs.ext4")
def test_an_ext4_that_stopped_writing(tmp_path: Path):
    break_it = (
        'truncate -s 16m "$1/image"; mkfs.ext4 -q "$1/image"; mkdir "$1/mnt";'
        ' mount -o loop,errors=remount-ro "$1/image" "$1/mnt";'
        ' echo 1 >/sys/fs/ext4/$(basename "$(findmnt -no SOURCE "$1/mnt")")/trigger_fs_error'
    )
    verdict, severity, summary, entities = seen("filesystem_errors", break_it, str(tmp_path))
    assert (verdict, severity) == ("present", "critical"), summary
    assert f"{tmp_path}/mnt (loop" in summary
    assert "ext4) is read-only; remounted read-only" in summary
    assert entities["mount"] == [f"{tmp_path}/mnt"]
