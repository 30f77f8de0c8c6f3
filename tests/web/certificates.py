"""Certificates by the openssl command: CAs, servers and clients, with the names a test wants."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    """Paths of a certificate and its key."""

    cert: Path
    key: Path


class Pki(NamedTuple):
    """Who there is: our CA, another, a server, a client of ours and one of the other."""

    authority: Authority
    foreign: Authority
    node: Pair
    prometheus: Pair
    stranger: Pair


class Authority:
    """A CA that signs in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        folder.mkdir(parents=True, exist_ok=True)
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        _openssl(
            "req", "-x509", *_NEW, "-keyout", self.pair.key, "-out", self.pair.cert, "-days", "2",
            "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
        )  # fmt: skip

    def sign(self, name: str, *sans: str) -> Pair:
        """A certificate with these names: ``DNS:a.b``, ``IP:127.0.0.1``."""
        made = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(sans)}\n" if sans else "\n")
        _openssl("req", *_NEW, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.pair.cert, "-CAkey", self.pair.key,
            "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", made.cert,
        )  # fmt: skip
        return made


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
