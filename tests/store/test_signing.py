"""Signatures: what they vouch for, and every way to get round them that we thought of."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sexton.errors import StoreError
from sexton.store.annex import Stored, write_annex
from sexton.store.compaction import compact
from sexton.store.layout import MANIFEST, SIGNATURE, TABLES, segments_in
from sexton.store.recording import Recording
from sexton.store.retention import Limits
from sexton.store.schema import encode, tables
from sexton.store.signing import check_signed, read_private, read_public
from sexton.store.verify import DAMAGED, verify
from tests.support.cli import sexton
from tests.support.keys import Keys, make_keys, openssl, signed
from tests.support.recordings import (
    BOOT,
    WALL_S,
    manifest_of,
    marks,
    replace_table,
    resign,
    simple,
    table_of,
    write_open,
)

MARK = tables()["mark"]
LIMITS = Limits(age_s=1e9, most_bytes=1 << 40)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("others"))


def annexed(segment: Path, keys: Keys) -> Path:
    """With an annex, of any table."""
    content = encode(MARK, [marks(3, 31.0)])[0]
    header = {"boot_id": BOOT, "start": [31.0, WALL_S], "end": [32.0, WALL_S + 1]}
    stored = {"mark": Stored([pa.Table.from_batches([content])], {})}
    signer = keys.signer(segment.parent.parent)
    return write_annex(segment, "profile-20261115133004", header, stored, signer)


def trusted(directory: Path, keys: Keys) -> set[str]:
    return set(check_signed(directory, read_public(str(keys.public))).segments)


def refused(directory: Path, keys: Keys) -> str:
    """Why nothing of it may be trusted, in one line."""
    with pytest.raises(StoreError) as caught:
        trusted(directory, keys)
    (line,) = str(caught.value).splitlines()
    return line.removeprefix(f"{directory}: ")


def test_what_a_recorder_signed_is_trusted_with_its_public_key_alone(
    tmp_path: Path, keys: Keys, others: Keys
):
    made = signed(tmp_path, keys, 3)
    annexed(made[1], keys)
    assert trusted(tmp_path, keys) == {path.name for path in made}
    assert refused(tmp_path, others) == (
        f"segments/{made[0].name}: not signed with this key, and 2 more"
    )
    found = verify(tmp_path)
    assert found.troubles == []


def test_openssl_verifies_a_signature_too(tmp_path: Path, keys: Keys):
    (segment,) = signed(tmp_path / "rec", keys)
    signature, _, text = (segment / SIGNATURE).read_bytes().partition(b"\n")
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "signature").write_bytes(bytes.fromhex(signature.decode()))
    openssl(
        "pkeyutl", "-verify", "-pubin", "-inkey", keys.public, "-rawin",
        "-in", tmp_path / "text", "-sigfile", tmp_path / "signature",
    )  # fmt: skip
    assert json.loads(text)["schema"] == "sexton.signature/1"


def another_table(segment: Path) -> None:
    """Other rows of a table, with a manifest whose checksums fit."""
    replace_table(segment, "mark", table_of(segment, "mark"), 3)


def same_checksum(segment: Path) -> None:
    """Other bytes of the same CRC: anyone can make one fit, and no check without a key sees it."""
    path = segment / TABLES
    content = path.read_bytes()
    at = content.rindex(b"PK\x05\x06") - 10  # between the tables and the end
    made = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 : -4]
    path.write_bytes(made + _last_four(made, zlib.crc32(content)))
    assert path.read_bytes() != content
    assert verify(segment.parent.parent).troubles == []


def _last_four(content: bytes, wanted: int) -> bytes:
    """Four bytes with which content has this CRC."""
    table = [zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)]
    state = wanted ^ 0xFFFFFFFF
    for _ in range(4):
        (byte,) = (at for at, entry in enumerate(table) if entry >> 24 == state >> 24)
        state = (state ^ table[byte]) << 8 | byte
    return (state ^ zlib.crc32(content) ^ 0xFFFFFFFF).to_bytes(4, "little")


def older_manifest(segment: Path) -> None:
    manifest = manifest_of(segment)
    resign(segment, {**manifest, "host": "another"})


def no_signature(segment: Path) -> None:
    (segment / SIGNATURE).unlink()


def cut(segment: Path) -> None:
    os.truncate(segment / SIGNATURE, 100)


def empty(segment: Path) -> None:
    os.truncate(segment / SIGNATURE, 0)


def huge(segment: Path) -> None:
    os.truncate(segment / SIGNATURE, 1 << 40)


def a_pipe(segment: Path) -> None:
    (segment / SIGNATURE).unlink()
    os.mkfifo(segment / SIGNATURE)


def of_another(segment: Path) -> None:
    first = min(segment.parent.iterdir())
    shutil.copy(first / SIGNATURE, segment / SIGNATURE)


def replayed(segment: Path) -> None:
    """All of an earlier segment under this one's name."""
    first = min(segment.parent.iterdir())
    for name in (MANIFEST, TABLES, SIGNATURE):
        shutil.copy(first / name, segment / name)


def no_tables(segment: Path) -> None:
    (segment / TABLES).unlink()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (another_table, "changed since it was signed"),
        (same_checksum, "changed since it was signed"),
        (older_manifest, "changed since it was signed"),
        (no_signature, "not signed"),
        (cut, "not signed with this key"),
        (empty, "not signed with this key"),
        (huge, "not signed with this key"),
        (a_pipe, "manifest.sig: not a plain file"),
        (of_another, "its signature is that of"),
        (replayed, "its signature is that of"),
        (no_tables, "No such file or directory"),
    ],
)
def test_a_segment_that_is_not_as_it_was_signed_is_refused(
    tmp_path: Path, keys: Keys, change: Callable[[Path], None], why: str
):
    *_, last = signed(tmp_path, keys, 3)
    change(last)
    assert why in refused(tmp_path, keys)


@pytest.mark.parametrize("change", [cut, empty, huge, a_pipe])
def test_a_file_that_is_no_signature_is_damage_without_a_key_too(
    tmp_path: Path, keys: Keys, change: Callable[[Path], None]
):
    *_, last = signed(tmp_path, keys, 3)
    change(last)
    assert {trouble.kind for trouble in verify(tmp_path).troubles} == {DAMAGED}


@pytest.mark.parametrize("change", [no_signature, cut, of_another, another_table])
def test_an_annex_that_is_not_as_it_was_signed_is_refused(
    tmp_path: Path, keys: Keys, change: Callable[[Path], None]
):
    segment, _ = signed(tmp_path, keys, 2)
    annex = annexed(segment, keys)
    if change is of_another:
        shutil.copy(segment / SIGNATURE, annex / SIGNATURE)
    elif change is another_table:
        resign(annex, {**manifest_of(annex), "boot_id": "another"})
    else:
        change(annex)
    assert refused(tmp_path, keys).startswith(f"segments/{segment.name}: {annex.name}: ")


def test_a_segment_that_was_removed_in_the_middle_is_missed(tmp_path: Path, keys: Keys):
    made = signed(tmp_path, keys, 5)
    shutil.rmtree(made[2])
    assert refused(tmp_path, keys) == f"1 segment missing before {made[3].name}"


def test_the_oldest_may_be_gone_by_retention(tmp_path: Path, keys: Keys):
    made = signed(tmp_path, keys, 5)
    shutil.rmtree(made[0])
    shutil.rmtree(made[1])
    assert len(trusted(tmp_path, keys)) == 3


def test_a_gap_behind_pinned_minutes_is_vouched_for_by_what_is_sealed_later(
    tmp_path: Path, keys: Keys
):
    made = signed(tmp_path, keys, 6)
    shutil.rmtree(made[2])  # the first two are pinned, say
    assert "missing" in refused(tmp_path, keys)
    signed(tmp_path, keys, 1, first=7)
    assert len(trusted(tmp_path, keys)) == 6
    shutil.rmtree(made[3])  # and retention goes on where it was
    assert len(trusted(tmp_path, keys)) == 5
    shutil.rmtree(made[5])
    assert "missing" in refused(tmp_path, keys)


def test_segments_of_two_recordings_do_not_mix(tmp_path: Path, keys: Keys):
    made = signed(tmp_path / "a", keys, 3)
    signed(tmp_path / "b", keys, 3)
    shutil.rmtree(made[1])
    shutil.copytree(tmp_path / "b/segments" / made[1].name, made[1])
    assert "belong to different recordings" in refused(tmp_path / "a", keys)


def test_an_hour_that_was_compacted_is_signed_again_and_still_in_its_place(
    tmp_path: Path, keys: Keys
):
    made = signed(tmp_path, keys, 4)
    annexed(made[1], keys)
    signer = keys.signer(tmp_path)
    done = compact(tmp_path, LIMITS, settled_s=None, signer=signer)
    assert (done.segments, done.problems) == (1, [])
    for path in made:
        shutil.rmtree(path)
    signed(tmp_path, keys, 2, first=5)
    names = [name.text for name in segments_in(tmp_path / "segments")]
    assert trusted(tmp_path, keys) == set(names)
    assert len(names) == 3
    shutil.rmtree(tmp_path / "segments" / names[1])
    assert "1 segment missing" in refused(tmp_path, keys)


def test_compaction_vouches_for_nothing_that_was_not_signed(
    tmp_path: Path, keys: Keys, others: Keys
):
    made = signed(tmp_path, keys, 3)
    another_table(made[1])
    done = compact(tmp_path, LIMITS, settled_s=None, signer=keys.signer(tmp_path))
    assert done.segments == 0
    assert done.problems == [f"{made[1].name}: not compacted: changed since it was signed"]
    assert compact(tmp_path, LIMITS, settled_s=None).segments == 0, "nor are signatures lost"
    assert compact(tmp_path, LIMITS, settled_s=None, signer=others.signer(tmp_path)).segments == 0


def test_what_is_still_open_is_left_out_and_listed(tmp_path: Path, keys: Keys):
    made = signed(tmp_path, keys, 2)
    opened = write_open(tmp_path, [simple(95.0)], 3)
    found = check_signed(tmp_path, read_public(str(keys.public)))
    assert found.left_out == (f"open/{opened.name}: unsigned: still open",)
    recording = Recording(tmp_path, signed=found)
    assert [segment.name for segment in recording.segments] == [path.name for path in made]
    assert recording.problems == [*found.left_out]


def test_what_was_kept_unsealed_is_left_out_too(tmp_path: Path, keys: Keys):
    """Else anyone could put one there."""
    signed(tmp_path, keys, 2)
    opened = write_open(tmp_path, [simple(95.0)], 3)
    opened.rename(tmp_path / "segments" / opened.name)
    found = check_signed(tmp_path, read_public(str(keys.public)))
    assert found.left_out == (f"segments/{opened.name}: unsigned: could not be sealed",)
    assert len(Recording(tmp_path, signed=found).segments) == 2


def test_a_recording_of_open_segments_alone_is_not_trusted(tmp_path: Path, keys: Keys):
    write_open(tmp_path, [simple(1.0)])
    assert refused(tmp_path, keys) == "it has no signed segment"


def test_commands_refuse_what_is_not_signed_in_one_line(tmp_path: Path, keys: Keys, others: Keys):
    signed(tmp_path, keys, 2)
    for command in (
        ("recording", "verify", tmp_path),
        ("diagnose", "--from", tmp_path),
        ("why", "eth0", "--from", tmp_path),
        ("fix", "plan", "--from", tmp_path),
    ):
        ended = sexton(*command, "--key", others.public)
        assert (ended.returncode, ended.stdout) == (2, b"")
        assert ended.stderr.count(b"\n") == 1
        assert b"not signed with this key" in ended.stderr
    good = sexton("recording", "verify", tmp_path, "--key", keys.public)
    assert (good.returncode, good.stderr) == (0, b"")
    assert b"signed with this key, none missing in between: 2 segments" in good.stdout
    good = sexton("diagnose", "--from", tmp_path, "--key", keys.public)
    assert (good.returncode != 2, good.stderr) == (True, b"")
    wrong = sexton("diagnose", "--key", keys.public)
    assert (wrong.returncode, wrong.stderr) == (2, b"sexton: --key requires --from DIR\n")


def test_an_export_keeps_its_signatures(tmp_path: Path, keys: Keys):
    made = signed(tmp_path / "rec", keys, 3)
    annexed(made[2], keys)
    out = tmp_path / "out"
    ended = sexton("recording", "export", tmp_path / "rec", "--out", out, "--format", "recording")
    assert ended.returncode == 0
    assert len(trusted(out, keys)) == 3


def test_a_recorder_signs_and_its_key_is_checked_first(tmp_path: Path, keys: Keys):
    quick = ("--no-probe", "--no-ring", "--no-trace", "--seconds", "1")
    place = tmp_path / "rec"
    ended = sexton("record", place, *quick, "--sign-key", keys.private)
    assert (ended.returncode, b"not signed" in ended.stderr) == (0, False)
    again = sexton("record", place, *quick, "--sign-key", keys.private)
    assert again.returncode == 0
    assert len(trusted(place, keys)) == 2
    bad = sexton("record", tmp_path / "none", *quick, "--sign-key", keys.public)
    assert (bad.returncode, bad.stderr.count(b"\n")) == (2, 1)
    assert not (tmp_path / "none").exists()


def bad_key(place: Path, keys: Keys, what: str) -> Path:
    path = place / "key"
    shutil.copy(keys.private, path)
    path.chmod(0o600)
    if what == "readable":
        path.chmod(0o640)
    elif what == "another's":
        os.chown(path, 65534, 65534)
    elif what == "huge":
        os.truncate(path, 1 << 40)
    elif what == "empty":
        os.truncate(path, 0)
    elif what == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif what == "X25519":
        return make_keys(place, "x25519").private
    elif what == "RSA":
        return make_keys(place, "rsa").private
    elif what == "public":
        path.write_bytes(keys.public.read_bytes())
    elif what == "with a password":
        openssl("pkey", "-in", keys.private, "-aes256", "-passout", "pass:x", "-out", path)
    elif what == "in another's directory":
        (place / "theirs").mkdir(0o777)
        (place / "theirs").chmod(0o777)
        return Path(shutil.move(path, place / "theirs/key"))
    elif what == "none":
        path.unlink()
    return path


@pytest.mark.root
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("readable", "other users may use this key: chmod 600"),
        ("another's", "belongs to user 65534"),
        ("huge", "too large for a key"),
        ("empty", "not a private key in PEM"),
        ("a pipe", "not a plain file"),
        ("X25519", "not an Ed25519 key"),
        ("RSA", "not an Ed25519 key"),
        ("public", "not a private key in PEM"),
        ("with a password", "has a password"),
        ("in another's directory", "other users may write into"),
        ("none", "No such file or directory"),
    ],
)
def test_a_key_that_cannot_sign_is_named_in_one_line(
    tmp_path: Path, keys: Keys, what: str, why: str
):
    with pytest.raises(StoreError, match=why):
        read_private(str(bad_key(tmp_path, keys, what)))


@pytest.mark.parametrize("what", ["RSA", "huge", "empty", "private"])
def test_a_public_key_that_is_none_is_named_in_one_line(tmp_path: Path, keys: Keys, what: str):
    path = make_keys(tmp_path, "rsa").public
    if what == "huge":
        os.truncate(path, 1 << 40)
    elif what == "empty":
        os.truncate(path, 0)
    elif what == "private":
        path = keys.private
    with pytest.raises(StoreError, match="key"):
        read_public(str(path))


def test_without_the_library_one_line_says_what_to_install(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for read, key in ((read_private, keys.private), (read_public, keys.public)):
        with pytest.raises(StoreError, match="pip install 'sexton\\[sign\\]'"):
            read(str(key))
