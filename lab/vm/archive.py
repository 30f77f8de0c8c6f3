"""Downloads Debian packages from the archive that this machine's apt uses, without changing apt.

apt runs with a separate state folder, so it can read other suites while the machine's lists,
sources and installed packages stay as they are. Proxies and credentials are the machine's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.vm.tools import LabError, log, require, run

#: Environment variable: URL of an archive, if this machine's apt has no Debian archive.
MIRROR = "SEXTON_LAB_MIRROR"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Debian's suite names; other distributions do not use them.
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
    """Debian's main archive among apt's index targets; security and updates have other suite names.

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
            f"apt on this machine is not configured for a Debian archive: set {MIRROR}=URL"
        )
    return found


def keyring() -> Path:
    if not KEYRING.exists():
        raise LabError(f"no {KEYRING}: apt-get install debian-archive-keyring")
    return KEYRING


def proxies() -> dict[str, str]:
    """apt's proxy, for debootstrap, which does not read apt's configuration."""
    result = run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"]).strip()
    value = result.partition("=")[2].strip("'\"")
    return {"http_proxy": value} if value and value != "DIRECT" else {}


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of the archive, read with a separate apt state under `folder`."""

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
    """Changes only paths; the rest of the machine's apt configuration still applies."""
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
            # apt's sandbox user may have no access to the folder.
            ("APT::Sandbox::User", "root"),
        )
    )
