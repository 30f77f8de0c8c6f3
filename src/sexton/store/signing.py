"""Signatures of what is sealed: who recorded a segment, and that none is missing between two.

``manifest.sig`` beside ``manifest.json`` has two lines: an Ed25519 signature in hex, and the JSON
it covers. The manifest's own checksums are CRCs, which anyone can make fit, so the JSON has SHA-256
sums of the manifest and of the file of tables::

    {"schema": "sexton.signature/1", "recording": ID, "kind": "segment", "name": "00000007-…",
     "files": {"manifest.json": SUM, "tables.zip": SUM}, "after": 6, "previous": SUM, "head": SUM,
     "kept": [[1, 6]]}

`recording` is a random number, the same in all segments of a recording. `after` and `previous` are
the last sequence number and the `head` of the signed segment before this one; `head` is the sum of
its own manifest, or for a compacted segment that of the last one it replaces. `kept` lists what was
there when it was signed: retention deletes segments, between pinned ones too, so a gap is a sign of
a removal only if a later segment vouches that the missing ones were still there. What is missing at
either end cannot be noticed. An annex has none of these four: it may come and go with its segment.

Readers that do not know signatures ignore the file. `cryptography` is in the extra `sign`, and is
imported only where a key is used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import StoreError
from sexton.model.text import count
from sexton.store.annex import annex_names
from sexton.store.layout import (
    MANIFEST,
    SIGNATURE,
    TABLES,
    SegmentName,
    is_count,
    open_plain,
    parse_name,
    read_plain,
    segments_in,
    why_not_private,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_SCHEMA = "sexton.signature/1"
_FILES = frozenset((MANIFEST, TABLES))
_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RECORDING = re.compile(r"[0-9a-f]{32}", re.ASCII)
_MOST_KEY, _MOST_STATEMENT = 16 << 10, 1 << 20
_PIECE = 1 << 20


class Statement(NamedTuple):
    """What a signature covers, see above. `after` is 0 in the first segment of a recording."""

    recording: str
    kind: str
    name: str
    files: Mapping[str, str]
    after: int = 0
    previous: str = ""
    head: str = ""
    kept: Sequence[Sequence[int]] = ()


class Signed(NamedTuple):
    """The names of a recording's signed segments, and the unsigned rest, each with a reason."""

    segments: frozenset[str]
    left_out: tuple[str, ...]


class Signer:
    """Signs what is sealed into one recording."""

    def __init__(self, directory: Path, key: Ed25519PrivateKey) -> None:
        self._segments = directory / "segments"
        self._key = key
        self._public = key.public_key()

    def segment(self, aside: Path, name: str, replaced: Sequence[Path] = ()) -> bytes:
        """The signature of a segment that is complete but for it; of a compacted one, with what it
        replaces. `StoreError` if one of those is not signed with this key."""
        own = parse_name(name)
        assert own is not None
        merged = [self.check(path) for path in replaced]
        files = _sums(aside)
        chain = self._chain(own.sequence)
        last = chain[-1] if chain else None
        after, previous = (0, "") if last is None else (last[0].last, last[1].head)
        recording = secrets.token_hex(16) if last is None else last[1].recording
        head = files[MANIFEST]
        if merged:
            recording, head = merged[-1].recording, merged[-1].head
            after, previous = merged[0].after, merged[0].previous
        made = Statement(recording, "segment", name, files, after, previous, head, _runs(chain))
        return self._signed(made)

    def annex(self, aside: Path, name: str, segment: Path) -> bytes:
        """The signature of an annex that is complete but for it; `StoreError` if its segment is not
        signed with this key."""
        recording = _read(segment, self._public).recording
        return self._signed(Statement(recording, "annex", name, _sums(aside)))

    def check(self, path: Path) -> Statement:
        """What this key signed about a sealed directory; `StoreError` if it did not."""
        return checked(path, self._public)

    def _signed(self, made: Statement) -> bytes:
        text = json.dumps({"schema": _SCHEMA, **made._asdict()}, separators=(",", ":")).encode()
        return b"%s\n%s" % (self._key.sign(text).hex().encode(), text)

    def _chain(self, before: int) -> list[tuple[SegmentName, Statement]]:
        """The signed segments with lower numbers, of the recording that the last one belongs to."""
        found = []
        for name in segments_in(self._segments):
            if name.last < before:
                try:
                    found.append((name, _read(self._segments / name.text, self._public)))
                except StoreError:
                    continue
        return [each for each in found if each[1].recording == found[-1][1].recording]


def _runs(chain: Sequence[tuple[SegmentName, Statement]]) -> list[list[int]]:
    """First and last number of segments between which none is missing."""
    runs: list[list[int]] = []
    for name, statement in chain:
        if runs and statement.after <= runs[-1][1]:
            runs[-1][1] = name.last
        else:
            runs.append([name.sequence, name.last])
    return runs


def check_signed(directory: Path, key: Ed25519PublicKey) -> Signed:
    """What of a recording may be trusted; `StoreError`, in one line, if any sealed segment or annex
    was not signed with this key, was changed since, belongs elsewhere, or is missing in between."""
    place = directory / "segments"
    chain: list[tuple[SegmentName, Statement]] = []
    wrong: list[str] = []
    left_out = [
        f"open/{name.text}: unsigned: still open" for name in segments_in(directory / "open")
    ]
    for name in segments_in(place):
        path = place / name.text
        if not os.path.lexists(path / MANIFEST):
            left_out.append(f"segments/{name.text}: unsigned: could not be sealed")
            continue
        try:
            statement = checked(path, key)
            for annex in annex_names(path):
                if checked(path / annex, key).recording != statement.recording:
                    raise StoreError(f"{annex}: belongs to another recording")
        except StoreError as error:
            if os.path.lexists(path):  # else it was compacted or deleted meanwhile
                wrong.append(f"segments/{name.text}: {str(error).removeprefix(f'{name.text}: ')}")
            continue
        chain.append((name, statement))
    wrong = wrong or _breaks(chain)
    if not chain and not wrong:
        wrong = ["it has no signed segment"]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise StoreError(f"{directory}: {wrong[0]}{more}")
    return Signed(frozenset(name.text for name, _ in chain), tuple(left_out))


def _breaks(chain: Sequence[tuple[SegmentName, Statement]]) -> list[str]:
    """Where signed segments do not follow each other as they were recorded."""
    found = []
    for (before, left), (name, right) in pairwise(chain):
        if left.recording != right.recording:
            found.append(f"{before.text} and {name.text} belong to different recordings")
        elif right.after == before.last and right.previous != left.head:
            found.append(f"{name.text}: did not follow this {before.text}")
        elif right.after > before.last and any(
            first <= before.last and right.after <= last for first, last in chain[-1][1].kept
        ):
            missing = right.after - before.last
            found.append(f"{count(missing, 'segment')} missing before {name.text}")
    return found


def checked(path: Path, key: Ed25519PublicKey) -> Statement:
    """What was signed about a sealed directory; `StoreError` unless its files are as they were."""
    statement = _read(path, key)
    if statement.name != path.name:
        raise StoreError(f"{path.name}: its signature is that of {statement.name}")
    try:
        same = _sums(path) == statement.files
    except OSError as error:
        raise StoreError(f"{path.name}: {error.filename or TABLES}: {error.strerror}") from None
    if not same:
        raise StoreError(f"{path.name}: changed since it was signed")
    return statement


def check_form(path: Path) -> None:
    """`StoreError` if a sealed directory has a file of a signature that is none."""
    if os.path.lexists(path / SIGNATURE):
        _read(path, None)


def _read(path: Path, key: Ed25519PublicKey | None) -> Statement:
    """A statement; `StoreError` if its signature is not by this key, if one is given."""
    try:
        content = read_plain(path / SIGNATURE, _MOST_STATEMENT)
    except FileNotFoundError:
        raise StoreError(f"{path.name}: not signed") from None
    except OSError as error:
        raise StoreError(f"{path.name}: {SIGNATURE}: {error.strerror}") from None
    sign, _, text = content.partition(b"\n")
    try:
        signature = bytes.fromhex(sign.decode("ascii"))
        if key is not None and not _is_by(key, signature, text):
            raise StoreError(f"{path.name}: not signed with this key")
        statement = _statement(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{path.name}: {SIGNATURE} is not a signature") from None
    if len(signature) != 64:
        raise StoreError(f"{path.name}: {SIGNATURE} is not a signature")
    return statement


def _is_by(key: Ed25519PublicKey, signature: bytes, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True


def _statement(found: Any) -> Statement:
    if not isinstance(found, dict) or found.pop("schema") != _SCHEMA:
        raise ValueError("not a statement")
    made = Statement(**found)
    texts = (made.recording, made.kind, made.name, made.previous, made.head, *made.files.values())
    sums = (*made.files.values(), *filter(None, (made.previous, made.head)))
    runs = all(len(run) == 2 and all(map(is_count, run)) for run in made.kept)
    if not all(isinstance(text, str) for text in texts) or not all(map(_SUM.fullmatch, sums)):
        raise ValueError("not a statement")
    if set(made.files) != _FILES or not is_count(made.after) or not runs:
        raise ValueError("not a statement")
    if not _RECORDING.fullmatch(made.recording):
        raise ValueError("not a statement")
    return made


def _sums(path: Path) -> dict[str, str]:
    """SHA-256 of each file that a signature covers."""
    found = {}
    for name in sorted(_FILES):
        digest, at = hashlib.sha256(), 0
        with open_plain(path / name) as (descriptor, _):
            while piece := os.pread(descriptor, _PIECE, at):
                digest.update(piece)
                at += len(piece)
        found[name] = digest.hexdigest()
    return found


def need_signing() -> None:
    """`StoreError` if the package that signs and verifies is missing."""
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise StoreError("signatures need cryptography: pip install 'sexton[sign]'")


def read_private(path: str) -> Ed25519PrivateKey:
    """A private key (PEM, PKCS #8) that nobody else can read or replace."""
    need_signing()
    content = _key_in(path, private=True)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        raise StoreError(f"{path}: this key has a password; a recorder cannot enter it") from None
    except (ValueError, UnsupportedAlgorithm):
        raise StoreError(f"{path}: not a private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise StoreError(f"{path}: not an Ed25519 key")
    return key


def read_public(path: str) -> Ed25519PublicKey:
    """A public key (PEM)."""
    need_signing()
    content = _key_in(path)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise StoreError(f"{path}: not a public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise StoreError(f"{path}: not an Ed25519 key")
    return key


def _key_in(path: str, private: bool = False) -> bytes:
    try:
        real = Path(os.path.realpath(path))  # a mounted secret is a link
        with open_plain(real) as (descriptor, size):
            status = os.fstat(descriptor)
            if private and status.st_uid != os.geteuid():
                raise StoreError(f"{path}: belongs to user {status.st_uid}, not to {os.geteuid()}")
            if private and status.st_mode & 0o077:
                raise StoreError(f"{path}: other users may use this key: chmod 600 {path}")
            if size > _MOST_KEY:
                raise OSError(errno.EFBIG, "too large for a key")
            content = os.pread(descriptor, _MOST_KEY, 0)
        why = why_not_private(real) if private else ""
    except ValueError:
        raise StoreError("the path of a key cannot contain NUL") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    if why:
        raise StoreError(f"{path}: {why}")
    return content


def main(arguments: Sequence[str]) -> int:
    """``python -m sexton.store.signing FILE``: whether a recorder can sign with this key. It is
    asked in a process of its own, since the library takes memory that a recorder must not take."""
    try:
        read_private(arguments[0])
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
