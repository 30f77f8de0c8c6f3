"""``python -m lab.ship_to URL`` tests `sexton record --ship URL` against a real destination.

It creates a small recording with a reset in it, ships its pinned minutes, reads every file back and
checks it, ships again (nothing may be sent twice), and deletes what it wrote. For object storage,
which `make check` does not have. Credentials come from the environment, as for the provider's own
tools.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab.synthetic.generate import write
from lab.synthetic.plan import Plan
from sexton.record.ship import Shipper
from sexton.store.pins import Pin, add_pin
from sexton.store.recording import Recording
from sexton.store.verify import verify

_MOST_S = 300.0


def main(url: str) -> int:
    """Returns 0 if everything worked."""
    node = f"ship-to-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="sexton-ship-") as scratch:
        directory, back = Path(scratch, "rec"), Path(scratch, "back")
        pinned = _make(directory)
        files, root = _remote(url)
        try:
            sent = _ship(url, node, directory)
            print(f"sent: {sent.counts.files} files, {sent.counts.bytes:,} bytes")
            again = _ship(url, node, directory)
            print(f"sent again: {again.counts.files} files")
            _fetch(files, f"{root}/{node}/reset", back)
            found = verify(back)
            print(
                f"read back: {found.files} files, {found.rows:,} rows, {found.troubles or 'whole'}"
            )
            same = [segment.name for segment in Recording(back).segments] == pinned
        finally:
            _clear(files, f"{root}/{node}")
    good = same and found.whole and not again.counts.files
    print("passed" if good else "FAILED")
    return 0 if good else 1


def _make(directory: Path) -> list[str]:
    """Write a recording of twelve minutes; returns the names of the pinned segments."""
    plan = Plan(cores=8, hours=0.2, processes=50, cgroups=50, queues=4, units=40)
    write(directory, plan, compacted=False)  # several segments, some of them pinned
    segments = Recording(directory).segments
    first, last = segments[1], segments[4]
    span = (first.start[0], last.end[0])
    add_pin(directory, Pin("reset", "nic_reset", "eth0", "", first.boot_id, *span, first.start[1]))
    stacks = directory / "stacks" / "perf.data.20250101000000"
    stacks.write_bytes(b"PERFILE2" + secrets.token_bytes(24 << 20))  # needs a multipart upload
    os.utime(stacks, (last.end[1], last.end[1]))
    return [segment.name for segment in segments[1:5]]


def _ship(url: str, node: str, directory: Path) -> Shipper:
    shipper = Shipper(url, node, directory, "another boot")
    started = time.monotonic()
    while not shipper.counts.shipped:
        if time.monotonic() - started > _MOST_S:
            raise SystemExit(f"not done after {_MOST_S:.0f} s: {shipper.status()}")
        time.sleep(0.1)
        for note in shipper.beat(time.monotonic(), True):
            print(note)
    shipper.close()
    return shipper


def _remote(url: str) -> tuple[Any, str]:
    """The destination, opened with pyarrow instead of Sexton's own code."""
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(url)
    return files, root.rstrip("/")


def _clear(files: Any, place: str) -> None:
    for _ in range(8):  # some gateways need the inner directories deleted first
        try:
            files.delete_dir(place)
        except FileNotFoundError:
            return
        except OSError as error:
            last = error
        else:
            return
    print(f"left behind: {place}: {last}")


def _fetch(files: Any, root: str, back: Path) -> None:
    from pyarrow import fs

    for entry in files.get_file_info(fs.FileSelector(root, recursive=True)):
        if entry.type == fs.FileType.File:
            target = back / entry.path.removeprefix(root).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with files.open_input_stream(entry.path) as stream:
                target.write_bytes(stream.read())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m lab.ship_to URL")
    sys.exit(main(sys.argv[1]))
