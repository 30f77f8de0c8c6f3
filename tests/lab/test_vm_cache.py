"""What is built is kept under what went into it, and a build that fails leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.vm import boot, cache, payload, rootfs, tools
from lab.vm.kernels import KERNELS
from lab.vm.tools import LabError


def test_the_folder_is_told_by_the_environment(monkeypatch, tmp_path: Path):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    assert cache.cache_folder() == tmp_path / "kept"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache/sexton-lab"


def test_other_packages_are_another_tree_and_another_image(monkeypatch):
    before = rootfs.base_key(), rootfs.image_key()
    monkeypatch.setattr(rootfs, "PACKAGES", (*rootfs.PACKAGES, "strace"))
    assert rootfs.base_key() != before[0]
    assert rootfs.image_key() != before[1]


def test_other_pins_are_another_image_but_the_same_tree(monkeypatch, tmp_path: Path):
    before = rootfs.base_key(), rootfs.wheels_key(), rootfs.image_key()
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((rootfs.PROJECT / name).read_bytes())
    with (tmp_path / "constraints.txt").open("a") as file:
        file.write("other==1.0\n")
    monkeypatch.setattr(rootfs, "PROJECT", tmp_path)
    assert rootfs.base_key() == before[0]
    assert rootfs.wheels_key() != before[1]
    assert rootfs.image_key() != before[2]


def test_what_the_guest_gets_by_pip_is_what_a_node_needs():
    names = {text.split(">")[0] for text in rootfs.requirements()}
    recorder, exporter = {"pyarrow"}, {"starlette", "uvicorn", "PyYAML", "bcrypt"}
    assert names == {"numpy", "rich", "jeepney", "prometheus-client", *recorder, *exporter}


def test_another_init_is_another_kernel_folder(monkeypatch, tmp_path: Path):
    before = boot.bootable_folder(tmp_path, KERNELS["6.1"])
    (tmp_path / "init").write_text("#!/bin/busybox sh\n")
    monkeypatch.setattr(boot, "GUEST", tmp_path)
    assert boot.bootable_folder(tmp_path, KERNELS["6.1"]) != before
    assert before.name.startswith("kernel-6.1-")


def test_every_kernel_has_a_folder_of_its_own(tmp_path: Path):
    folders = {boot.bootable_folder(tmp_path, kernel) for kernel in KERNELS.values()}
    assert len(folders) == len(KERNELS)


def test_files_are_another_key_when_a_byte_or_a_name_changes(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    first = cache.files_key(tmp_path, tmp_path.iterdir())
    (tmp_path / "a").write_text("2")
    second = cache.files_key(tmp_path, tmp_path.iterdir())
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, cache.files_key(tmp_path, tmp_path.iterdir())}) == 3


def test_the_project_brings_its_sources_and_the_lab_and_no_leavings():
    brought = {str(path.relative_to(rootfs.PROJECT)) for path in payload.project_files()}
    assert {"pyproject.toml", "src/sexton/__init__.py", "lab/vm/guest/init"} <= brought
    assert not any("__pycache__" in name or name.endswith(".so") for name in brought)


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path):
    def build() -> None:
        with cache.build_folder(tmp_path / "part") as folder:
            (folder / "half").write_text("done")
            raise LabError("no")

    with pytest.raises(LabError):
        build()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_build_left_goes_with_the_next(tmp_path: Path):
    left, kept = tmp_path / ".root-123.img-abcd", tmp_path / "root-123.img"
    left.mkdir()
    (left / "half").write_text("done")
    kept.write_text("image")
    with cache.lock_cache(tmp_path):
        pass
    assert not left.exists()
    assert kept.exists()


def test_two_builds_wait_for_each_other(tmp_path: Path):
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with cache.lock_cache(tmp_path):
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            (tmp_path / "first").touch()
        os._exit(0)
    os.read(ready[0], 1)
    lines: list[str] = []
    original, cache.log = cache.log, lambda text: (lines.append(text), os.write(go[1], b"x"))
    try:
        with cache.lock_cache(tmp_path):
            assert (tmp_path / "first").exists()
    finally:
        cache.log = original
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)
    assert len(lines) == 1


def test_a_missing_tool_is_told_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(tools, "search_path", lambda: "/nonexistent")
    with pytest.raises(LabError) as error:
        tools.require("qemu-system-x86_64", "debootstrap", "mkfs.ext4")
    line = str(error.value)
    assert "\n" not in line
    assert line.endswith(
        "apt-get install --no-install-recommends debootstrap e2fsprogs qemu-system-x86"
    )


def test_a_failing_tool_is_told_in_one_line_with_its_own_words():
    script = "echo 'W: hm' >&2; echo 'E: Failed to fetch it' >&2; echo more >&2; exit 7"
    with pytest.raises(LabError) as error:
        tools.run(["setpriv", "--", "sh", "-c", script])
    assert str(error.value) == "sh failed (7): E: Failed to fetch it"


def test_building_without_root_says_so_before_it_downloads(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="debootstrap needs root"):
        rootfs.base_tree(tmp_path)
    assert list(tmp_path.iterdir()) == []
