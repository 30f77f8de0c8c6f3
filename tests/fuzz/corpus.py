"""The inputs that are kept in the repository: ``corpus/TARGET.zip``, of each target the few small
ones that reached most."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

PLACE = Path(__file__).parent / "corpus"


def kept(name: str) -> list[bytes]:
    """The inputs kept of a target."""
    try:
        with zipfile.ZipFile(PLACE / f"{name}.zip") as packed:
            return [packed.read(entry) for entry in packed.namelist()]
    except FileNotFoundError:
        return []


def keep(name: str, inputs: Sequence[bytes]) -> None:
    """Replace what is kept of a target. The same inputs make the same file."""
    PLACE.mkdir(exist_ok=True)
    with zipfile.ZipFile(PLACE / f"{name}.zip", "w") as packed:
        for number, content in enumerate(
            sorted(inputs, key=lambda content: (len(content), content))
        ):
            entry = zipfile.ZipInfo(f"{number:03}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content, compresslevel=9)
