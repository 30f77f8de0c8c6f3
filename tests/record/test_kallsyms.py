"""The kernel's symbols, kept beside the stacks."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import pytest

from sexton.errors import SourceDenied
from sexton.host.host import open_host
from sexton.record.stacks import snapshot_kallsyms


@pytest.mark.root
def test_the_kernels_symbols_are_kept_once_per_boot_for_their_owner(tmp_path):
    path = snapshot_kallsyms(open_host(), str(tmp_path), "0a-1b")
    assert path == str(tmp_path / "stacks/kallsyms-0a-1b.gz")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert b" T schedule\n" in gzip.decompress(Path(path).read_bytes())
    before = os.stat(path)
    assert snapshot_kallsyms(open_host(), str(tmp_path), "0a-1b") == path
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert os.listdir(tmp_path / "stacks") == ["kallsyms-0a-1b.gz"]


def test_hidden_symbols_are_not_kept(tmp_path):
    root = tmp_path / "root/proc"
    root.mkdir(parents=True)
    (root / "kallsyms").write_text("0000000000000000 T schedule\n0000000000000000 t x [a1]\n")
    with pytest.raises(SourceDenied, match="kptr_restrict"):
        snapshot_kallsyms(open_host(str(root.parent)), str(tmp_path), "0a")
    assert not (tmp_path / "stacks").exists()
