"""Manifests: what a sealed directory holds, with checksums, and which Sexton wrote it.

A manifest is a line with a checksum and a line of JSON. `FORMAT` counts changes of meaning; a
recording with a higher one is refused by name. Nothing here needs Arrow: whoever only asks what is
there does not load it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sexton.errors import StoreError
from sexton.store.layout import read_plain

FORMAT = 1
#: What every file that vouches for others says it is.
SCHEMA = f"sexton.recording/{FORMAT}"
MANIFEST = "manifest.json"
_MOST_MANIFEST = 16 << 20


def read_manifest(directory: Path) -> dict[str, Any]:
    """A sealed segment's manifest; `StoreError` where it is missing, damaged or from the future."""
    try:
        content = read_plain(directory / MANIFEST, _MOST_MANIFEST)
    except OSError as error:
        raise StoreError(f"{directory.name}: {MANIFEST}: {error.strerror}") from None
    checksum, _, text = content.partition(b"\n")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            raise StoreError(f"{directory.name}: {MANIFEST} is damaged")
        told: dict[str, Any] = json.loads(text)
        newer = _refused(told)
        if not newer:
            _check(told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{directory.name}: {MANIFEST} makes no sense") from None
    if newer:
        raise StoreError(f"{directory.name}: {newer}")
    return told


def _refused(told: Mapping[str, Any]) -> str:
    try:
        check_format(told["schema"])
    except StoreError as error:
        return str(error)
    return ""


def _check(told: Mapping[str, Any]) -> None:
    """Is it of a manifest's shape? A foreign file may have a checksum too."""
    for name, described in told["tables"].items():
        if "/" in name or not isinstance(described, dict):
            raise ValueError("not a table")
        if "crc32" in described:
            int(described["bytes"]), int(described["rows"])
    if any(len(state) < 6 for state in told.get("states", ())):
        raise ValueError("not a source's state")
    for edge in ("start", "end"):
        if told[edge] is not None:
            mono, wall = told[edge]
            float(mono), float(wall)


def signed(told: Mapping[str, Any]) -> bytes:
    """A manifest's bytes: a checksum on the first line, what it vouches for on the second."""
    text = json.dumps(told, separators=(",", ":")).encode()
    return b"%08x\n%s" % (zlib.crc32(text), text)


def check_format(told: object) -> None:
    """`ValueError` where this is no recording's name, `StoreError` where a newer Sexton wrote it.

    >>> check_format("sexton.recording/9")
    Traceback (most recent call last):
    sexton.errors.StoreError: written by a newer Sexton (sexton.recording/9)
    """
    name, _, number = str(told).rpartition("/")
    if name != SCHEMA.rpartition("/")[0] or not number.isdecimal():
        raise ValueError("not a recording of ours")
    if int(number) > FORMAT:
        raise StoreError(f"written by a newer Sexton ({told})")
