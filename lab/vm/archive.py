"""Debian packages from the archive that apt on this machine already uses, without touching apt.

apt gets a state folder of its own, so other suites can be read while the machine's own lists,
sources and installed packages stay as they are; proxies and credentials stay the machine's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.vm.tools import LabError, log, require, run

#: Names another archive, for a machine whose apt knows none of Debian's.
MIRROR = "SEXTON_LAB_MIRROR"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Suites only Debian has, or that on another distribution's archive would not be found.
SUITES = frozenset(
    [
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "duke",
        "sid",
        "oldoldstable",
        "oldstable",
        "stable",
        "testing",
        "unstable",
    ]
)
_FORMAT = "$(SITE)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)"


def mirror_in(targets: str) -> str | None:
    """Debian's main archive among apt's index targets; security and updates are other suites.

    >>> mirror_in("http://a.example/debian-security|bookworm-security|main|Packages\\n"
    ...           "http://b.example/debian|bookworm|main|Packages\\n")
    'http://b.example/debian'
    """
    for line in targets.splitlines():
        fields = line.split("|")
        if len(fields) != 4:
            continue
        site, release, component, made_by = fields
        if release in SUITES and component == "main" and made_by == "Packages":
            return site.rstrip("/")
    return None


def mirror() -> str:
    address = os.environ.get(MIRROR)
    if address:
        return address.rstrip("/")
    require("apt-get")
    found = mirror_in(run(["apt-get", "indextargets", "--format", _FORMAT]))
    if found is None:
        raise LabError(
            f"apt on this machine is not configured for Debian's archive: name one by {MIRROR}=URL"
        )
    return found


def keyring() -> Path:
    if not KEYRING.exists():
        raise LabError(f"no {KEYRING}: apt-get install debian-archive-keyring")
    return KEYRING


def proxies() -> dict[str, str]:
    """apt's own proxy, for debootstrap, which does not ask apt."""
    result = run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"]).strip()
    value = result.partition("=")[2].strip("'\"")
    return {"http_proxy": value} if value and value != "DIRECT" else {}


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of the archive, read through an apt of its own under `folder`."""

    name: str
    folder: Path

    def update(self, url: str) -> None:
        log(f"reading the package lists of {self.name}")
        for part in ("lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        source = f"deb [signed-by={keyring()}] {url} {self.name} main\n"
        (self.folder / "sources.list").write_text(source)
        (self.folder / "apt.conf").write_text(apt_conf(self.folder))
        self._apt(["apt-get", "update", "--error-on=any", "-qq"])

    def names(self) -> list[str]:
        return self._apt(["apt-cache", "pkgnames", "linux-"]).split()

    def download(self, packages: Sequence[str]) -> list[Path]:
        debs = self.folder / "debs"
        debs.mkdir(exist_ok=True)
        log(f"downloading {' '.join(packages)}")
        self._apt(["apt-get", "download", "-qq", *packages], debs)
        return sorted(debs.glob("*.deb"))

    def _apt(self, argv: Sequence[str], cwd: Path | None = None) -> str:
        return run(argv, env={"APT_CONFIG": str(self.folder / "apt.conf")}, cwd=cwd)


def apt_conf(folder: Path) -> str:
    """Only places are changed; what else the machine's apt was told, it is told still."""
    return "".join(
        f'{name} "{value}";\n'
        for name, value in (
            ("Dir::State", folder),
            ("Dir::State::lists", folder / "lists"),
            ("Dir::State::status", folder / "status"),
            ("Dir::Cache", folder / "cache"),
            ("Dir::Etc::sourcelist", folder / "sources.list"),
            ("Dir::Etc::sourceparts", "/nonexistent"),
            ("APT::Architecture", "amd64"),
            ("Acquire::Languages", "none"),
            # The folder may be root's own, where apt's user cannot go.
            ("APT::Sandbox::User", "root"),
        )
    )
