"""Which kernel is taken, how it is booted, and what is refused before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.vm.kernels import HIERARCHIES, KERNELS, MATRIX, check_hierarchy, kernel_named, newest
from lab.vm.machine import Disks, command_line
from lab.vm.tools import LabError

DISKS = Disks(*(Path("/lab", name) for name in ("vmlinuz", "initrd", "root", "mods", "results")))
#: As ``apt-cache pkgnames linux-`` gave them, shortened.
BOOKWORM = [
    "linux-image-6.1.0-9-cloud-amd64",
    "linux-image-6.1.0-50-cloud-amd64",
    "linux-image-6.1.0-50-cloud-amd64-dbg",
    "linux-image-6.1.0-50-cloud-amd64-unsigned",
    "linux-image-6.1.0-51-amd64",
    "linux-image-6.1.0-50-rt-amd64",
    "linux-image-cloud-amd64",
    "linux-headers-6.1.0-51-cloud-amd64",
    "linux-image-6.12.9+bpo-cloud-amd64",
]
SID = [
    "linux-binary-7.2.13+deb14-cloud-amd64",
    "linux-modules-7.2.13+deb14-cloud-amd64",
    "linux-binary-7.2.9+deb14-cloud-amd64",
    "linux-modules-7.2.9+deb14-cloud-amd64",
    "linux-image-7.2.13+deb14-cloud-amd64",
    "linux-binary-7.2.13+deb14-amd64",
]


def _taken(kernel: str, names: list[str]) -> list[str | None]:
    return [newest(pattern, names) for pattern in KERNELS[kernel].packages]


def _option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_the_newest_cloud_image_is_taken_and_no_other_flavour():
    assert _taken("6.1", BOOKWORM) == ["linux-image-6.1.0-50-cloud-amd64"]


def test_a_kernel_split_into_binary_and_modules_is_taken_as_both():
    assert _taken("7.x", SID) == [
        "linux-binary-7.2.13+deb14-cloud-amd64",
        "linux-modules-7.2.13+deb14-cloud-amd64",
    ]


def test_6_1_is_not_taken_for_6_12_nor_the_other_way_round():
    assert _taken("6.12", BOOKWORM) == ["linux-image-6.12.9+bpo-cloud-amd64"]
    assert _taken("6.12", [name for name in BOOKWORM if "6.12" not in name]) == [None]


def test_an_unknown_kernel_names_those_there_are():
    with pytest.raises(LabError, match=r"5\.10, 6\.1, 6\.12, 7\.x"):
        kernel_named("4.19")


@pytest.mark.parametrize("hierarchy", ["v1", "hybrid"])
def test_a_kernel_without_memory_on_v1_is_refused_there(hierarchy: str):
    with pytest.raises(LabError, match="CONFIG_MEMCG_V1"):
        check_hierarchy(KERNELS["6.12"], hierarchy)


def test_the_matrix_holds_every_kernel_and_hierarchy_and_only_what_boots():
    for kernel, hierarchy in MATRIX:
        check_hierarchy(kernel_named(kernel), hierarchy)
    assert {kernel for kernel, _ in MATRIX} == set(KERNELS)
    assert {hierarchy for _, hierarchy in MATRIX} == set(HIERARCHIES)


@pytest.mark.parametrize(
    ("hierarchy", "unified", "legacy"),
    [("v1", "=0", True), ("hybrid", "=0", False), ("v2", "=1", False)],
)
def test_the_hierarchy_is_asked_for_on_the_kernels_command_line(hierarchy, unified, legacy):
    words = _option(command_line(KERNELS["6.1"], hierarchy, DISKS, Path("c")), "-append").split()
    assert f"systemd.unified_cgroup_hierarchy{unified}" in words
    assert ("systemd.legacy_systemd_cgroup_controller=1" in words) is legacy


def test_6_12_gets_one_thread_and_only_its_kernel_no_cmpxchg16b():
    command = command_line(KERNELS["6.12"], "v2", DISKS, Path("c"))
    assert _option(command, "-accel") == "tcg,thread=single"
    assert "clearcpuid=cx16" in _option(command, "-append").split()
    assert "cx16" not in _option(command, "-cpu")  # numpy looks there


def test_every_processor_is_the_fullest_since_numpy_needs_more_than_the_default():
    for kernel in KERNELS.values():
        assert kernel.cpu.split(",")[0] == "max"


def test_the_guest_reaches_no_network_and_never_writes_the_root_image_or_the_modules():
    command = command_line(KERNELS["5.10"], "v2", DISKS, Path("c"))
    assert _option(command, "-netdev") == "user,id=net,restrict=on"
    drives = [word for word in command if word.startswith("if=none")]
    assert [word.rsplit(",", 1)[1] for word in drives] == [
        "snapshot=on",
        "cache=unsafe",
        "readonly=on",
    ]


def test_a_comma_in_a_path_is_not_taken_for_an_option():
    command = command_line(KERNELS["6.1"], "v2", DISKS, Path("/a,b/console"))
    assert "file:/a,,b/console" in command
