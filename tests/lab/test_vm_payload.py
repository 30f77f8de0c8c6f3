"""What the kernel unpacks: read back by another program, and by a shell where it is for one."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.vm import boot, payload
from lab.vm.cpio import Cpio
from lab.vm.tools import LabError

needs_cpio = pytest.mark.skipif(
    shutil.which("busybox") is None, reason="needs busybox (apt-get install busybox)"
)


def _unpacked(packed: bytes, folder: Path) -> None:
    subprocess.run(
        ["busybox", "cpio", "-idm"],
        input=gzip.decompress(packed),
        cwd=folder,
        check=True,
        capture_output=True,
    )


@needs_cpio
def test_busybox_reads_back_what_was_written(tmp_path: Path):
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "deep/er/odd.bin").write_bytes(bytes(range(7)))
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "here").symlink_to("deep/er")
    cpio = Cpio()
    cpio.tree("a/b", source)
    cpio.file("c/empty", b"")
    target = tmp_path / "target"
    target.mkdir()
    _unpacked(cpio.packed(), target)
    assert (target / "a/b/deep/er/odd.bin").read_bytes() == bytes(range(7))
    assert (target / "a/b/run").stat().st_mode & 0o777 == 0o755
    assert (target / "a/b/here").readlink() == Path("deep/er")
    assert (target / "c/empty").read_bytes() == b""


@needs_cpio
def test_the_payload_holds_the_project_the_unit_and_the_job(tmp_path: Path):
    site = tmp_path / "site"
    (site / "sexton").mkdir(parents=True)
    (site / "sexton/__init__.py").write_text("")
    target = tmp_path / "target"
    target.mkdir()
    _unpacked(payload.payload(site, payload.Job(("idle", "busy"), 77)), target)
    root = target / "payload"
    assert (root / "usr/local/lib/python3.11/dist-packages/sexton/__init__.py").exists()
    unit = root / "etc/systemd/system/graphical.target.wants/sexton-lab.service"
    program = unit.read_text().split("ExecStart=/")[1].split()[0]
    assert (root / program).stat().st_mode & 0o111
    said = subprocess.run(
        [
            "sh",
            "-c",
            '. "$1"; echo "$SCENES|$DEADLINE_S"',
            "sh",
            root / program.replace("play-all", "job"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == "idle busy|77\n"


def test_the_same_content_is_the_same_archive_whenever_it_is_packed(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    first, second = Cpio(), Cpio()
    first.tree("x", tmp_path)
    (tmp_path / "a").touch()
    second.tree("x", tmp_path)
    assert first.packed() == second.packed()


@pytest.mark.parametrize("script", ["init", "play-all"])
def test_the_guests_scripts_are_scripts_a_shell_takes(script: str):
    path = payload.GUEST / script
    assert path.read_bytes().startswith(b"#!/bin/")
    subprocess.run(["sh", "-n", path], check=True)


def test_a_packed_module_is_unpacked_for_insmod_and_an_unknown_kind_is_told(tmp_path: Path):
    plain, packed, other = (tmp_path / f"m.ko{end}" for end in ("", ".xz", ".zst"))
    plain.write_bytes(b"\x7fELF plain")
    packed.write_bytes(lzma.compress(b"\x7fELF packed"))
    other.write_bytes(b"?")
    assert boot.module(plain) == ("m.ko", b"\x7fELF plain")
    assert boot.module(packed) == ("m.ko", b"\x7fELF packed")
    with pytest.raises(LabError, match=r"m\.ko\.zst"):
        boot.module(other)
