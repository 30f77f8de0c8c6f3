"""The archive is the one apt already uses, read without touching apt's own state."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.vm import archive
from lab.vm.tools import LabError

DEBIAN = """http://mirror.test/debian-security|bookworm-security|main|Packages
http://mirror.test/debian|bookworm-updates|main|Packages
http://mirror.test/debian|bookworm|main|DEP-11
http://mirror.test/debian|bookworm|contrib|Packages
http://mirror.test/debian/|bookworm|main|Packages
"""
UBUNTU = """http://mirror.test/ubuntu|jammy|main|Packages
http://mirror.test/ubuntu|jammy-security|main|Packages
"""
needs_apt = pytest.mark.skipif(shutil.which("apt-config") is None, reason="needs apt")


def test_the_mirror_is_that_of_a_plain_suite_and_not_of_its_security_updates():
    assert archive.mirror_in(DEBIAN) == "http://mirror.test/debian"


@pytest.mark.parametrize("targets", [UBUNTU, "", "junk\n", "a|b|c\n"])
def test_another_distributions_archive_is_no_mirror(targets: str):
    assert archive.mirror_in(targets) is None


def test_a_machine_without_debian_in_its_apt_is_told_the_variable(monkeypatch):
    monkeypatch.delenv(archive.MIRROR, raising=False)
    monkeypatch.setattr(archive, "require", lambda *tools: None)
    monkeypatch.setattr(archive, "run", lambda argv: UBUNTU)
    with pytest.raises(LabError, match=archive.MIRROR):
        archive.mirror()


def test_a_mirror_named_by_hand_wins(monkeypatch):
    monkeypatch.setenv(archive.MIRROR, "http://other.test/debian/")
    assert archive.mirror() == "http://other.test/debian"


@needs_apt
def test_apt_reads_our_state_and_only_our_sources(tmp_path: Path):
    (tmp_path / "apt.conf").write_text(archive.apt_conf(tmp_path))
    output = subprocess.run(
        ["apt-config", "dump", "--format", "%f %v%n"],
        env={"APT_CONFIG": str(tmp_path / "apt.conf"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    settings = dict(line.partition(" ")[::2] for line in output.splitlines())
    assert settings["Dir::State::lists"] == str(tmp_path / "lists")
    assert settings["Dir::State::status"] == str(tmp_path / "status")
    assert settings["Dir::Etc::sourcelist"] == str(tmp_path / "sources.list")
    assert settings["Dir::Etc::sourceparts"] == "/nonexistent"
    # Credentials and proxies are looked up where they always were.
    assert settings["Dir::Etc"] == "etc/apt"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("proxy='http://proxy.test:3128/'\n", {"http_proxy": "http://proxy.test:3128/"}),
        ("proxy='DIRECT'\n", {}),
        ("", {}),
    ],
)
def test_debootstrap_is_told_the_proxy_that_apt_uses(monkeypatch, said, expected):
    monkeypatch.setattr(archive, "run", lambda argv: said)
    assert archive.proxies() == expected
