"""Which cgroup version is there, and which one an image will come up with."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from sexton.host.host import open_host
from sexton.model.finding import Missing
from sexton.prevent.gate import Outcome
from sexton.prevent.gate.rules.cgroup_version import CgroupVersion, next_boot
from sexton.prevent.image import Image
from tests.prevent.gate.making import gate_of, image, place


def version_of(root: Path, **release: str) -> CgroupVersion | Missing:
    return next_boot(open_host(str(root)).files, release)


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("ubuntu", "20.04", "v1"),
        ("ubuntu", "21.04", "v1"),
        ("ubuntu", "21.10", "v2"),
        ("ubuntu", "22.04", "v2"),
        ("debian", "10", "v1"),
        ("debian", "12", "v2"),
        ("amzn", "2", "v1"),
        ("amzn", "2023", "v2"),
        ("rhel", "8.9", "v1"),
        ("rocky", "9.3", "v2"),
        ("fedora", "40", "v2"),
        ("arch", "", "v2"),
    ],
)
def test_distributions_have_their_defaults(tmp_path: Path, name, version, wanted) -> None:
    found = version_of(tmp_path, ID=name, VERSION_ID=version)
    assert isinstance(found, CgroupVersion)
    assert found.version == wanted
    assert found.why.startswith("default of")


@pytest.mark.parametrize("release", [{"ID": "mine"}, {}, {"ID": "ubuntu", "VERSION_ID": "rolling"}])
def test_what_is_not_known_is_not_guessed(tmp_path: Path, release: dict[str, str]) -> None:
    assert isinstance(version_of(tmp_path, **release), Missing)


@pytest.mark.parametrize(
    ("path", "line", "wanted"),
    [
        ("boot/grub/grub.cfg", "linux /vmlinuz ro systemd.unified_cgroup_hierarchy=0", "v1"),
        ("etc/default/grub", 'GRUB_CMDLINE_LINUX="systemd.unified_cgroup_hierarchy=false"', "v1"),
        ("etc/kernel/cmdline", "root=/dev/vda systemd.unified_cgroup_hierarchy", "v2"),
        ("boot/loader/entries/a.conf", "options systemd.unified_cgroup_hierarchy=yes", "v2"),
        ("etc/default/grub.d/50-cloud.cfg", "cgroup_no_v1=all", "v2"),
    ],
)
def test_the_kernels_command_line_comes_before_the_default(tmp_path, path, line, wanted) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(f"# a comment\n{line}\n")
    other = {"v1": "22.04", "v2": "20.04"}[wanted]
    found = version_of(tmp_path, ID="ubuntu", VERSION_ID=other)
    assert found == CgroupVersion(wanted, f"set in /{path}", f"/{path}", 2)


def test_a_comment_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "etc/default").mkdir(parents=True)
    (tmp_path / "etc/default/grub").write_text("# systemd.unified_cgroup_hierarchy=0\n")
    found = version_of(tmp_path, ID="debian", VERSION_ID="12")
    assert isinstance(found, CgroupVersion)
    assert found.version == "v2"


def test_boot_entries_that_differ_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "boot/loader/entries").mkdir(parents=True)
    for name, value in (("a", 0), ("b", 1)):
        entry = tmp_path / f"boot/loader/entries/{name}.conf"
        entry.write_text(f"options systemd.unified_cgroup_hierarchy={value}\n")
    found = version_of(tmp_path, ID="debian", VERSION_ID="12")
    assert isinstance(found, Missing)
    assert "differ" in found.what


@pytest.mark.parametrize("path", ["boot/grub2/grub.cfg", "boot/loader/entries/a.conf"])
def test_a_boot_entry_that_cannot_be_read_may_say_otherwise(tmp_path: Path, path: str) -> None:
    """The distribution's default would be a guess."""
    (tmp_path / path).mkdir(parents=True)
    assert isinstance(version_of(tmp_path, ID="debian", VERSION_ID="12"), Missing)


def test_it_is_the_same_in_a_tar(tmp_path: Path) -> None:
    (tmp_path / "img/boot/loader/entries").mkdir(parents=True)
    entry = tmp_path / "img/boot/loader/entries/a.conf"
    entry.write_text("options systemd.unified_cgroup_hierarchy=0\n")
    with tarfile.open(tmp_path / "img.tar.gz", "w:gz") as out:
        out.add(tmp_path / "img", ".")
    with Image(str(tmp_path / "img.tar.gz")) as opened:
        found = next_boot(opened.files, {"ID": "rhel", "VERSION_ID": "9.4"})
    assert isinstance(found, CgroupVersion)
    assert found.version == "v1"


def result_of(root: Path, text: str = ""):
    from sexton.prevent.gate import os_release

    where = place(root)
    where.os_release = os_release(where.host)
    return next(
        result for result in gate_of(where, text).results if result.rule == "cgroup_version"
    )


@pytest.mark.parametrize(
    ("require", "outcome"), [("any", Outcome.PASS), ("v2", Outcome.PASS), ("v1", Outcome.FAIL)]
)
def test_an_image_is_held_against_what_is_required(tmp_path: Path, require, outcome) -> None:
    found = result_of(image(tmp_path), f"[rules.cgroup_version]\nrequire = '{require}'\n")
    assert found.outcome is outcome
    assert "Ubuntu 22.04.4 LTS" in found.summary
    if outcome is Outcome.FAIL:
        assert "systemd.unified_cgroup_hierarchy=0" in found.violations[0].remedy


def test_where_none_is_required_not_knowing_costs_nothing(tmp_path: Path) -> None:
    image(tmp_path, {"/etc/os-release": "ID=mine\n"})
    assert result_of(tmp_path).outcome is Outcome.PASS
    found = result_of(tmp_path, "[rules.cgroup_version]\nrequire = 'v2'\n")
    assert (found.outcome, found.closes) == (Outcome.UNKNOWN, True)
