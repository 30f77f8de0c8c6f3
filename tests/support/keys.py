"""Pairs of keys, and recordings that are signed with them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from sexton.store.sealed import seal
from sexton.store.signing import Signer, read_private
from tests.support.recordings import simple, write_open


class Keys(NamedTuple):
    private: Path
    public: Path

    def signer(self, directory: Path) -> Signer:
        return Signer(directory, read_private(str(self.private)))


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def make_keys(place: Path, algorithm: str = "ed25519") -> Keys:
    """A pair as the documentation says to make it."""
    place.mkdir(parents=True, exist_ok=True)
    made = Keys(place / f"{algorithm}.pem", place / f"{algorithm}.pub")
    openssl("genpkey", "-algorithm", algorithm, "-out", made.private)
    openssl("pkey", "-in", made.private, "-pubout", "-out", made.public)
    made.private.chmod(0o600)
    return made


def signed(directory: Path, keys: Keys, number: int = 1, first: int = 1) -> list[Path]:
    """Segments of two seconds each, sealed and signed one after the other."""
    made = []
    for sequence in range(first, first + number):
        opened = write_open(directory, [simple(2.0 * sequence)], sequence)
        whole, problems = seal(opened, directory / "segments", keys.signer(directory))
        assert whole is not None
        assert problems == []
        made.append(whole)
    return made
