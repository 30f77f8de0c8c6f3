"""A window written down as a recording: what draws recordings can then draw a node's ten seconds.

One segment, in the shape in which `sexton record` leaves them. What no column can hold is left out,
as the recorder would leave it out.
"""

from __future__ import annotations

from pathlib import Path

from sexton import __version__
from sexton.errors import StoreError
from sexton.model.window import Window
from sexton.store.layout import prepare
from sexton.store.retention import Limits
from sexton.store.schema import tables
from sexton.store.writer import Writer

#: Kept for the few seconds in which it is read back: neither age nor size may touch it.
_ALL = Limits(age_s=10 * 365 * 86400.0, most_bytes=1 << 40)


def keep(window: Window, directory: Path) -> None:
    """Write all of `window` into `directory`, which must be empty or not there."""
    prepare(directory)
    node = window.node
    header = {
        "boot_id": (node.boot_id if node is not None else None) or "",
        "host": node.hostname if node is not None else "",
        "sexton": __version__,
        "providers": {},
        "periods": {},
    }
    writer = Writer(directory, header, _ALL)
    for kind in tables().values():
        for batch in window.batches(kind) or ():
            writer.append(kind, batch)
    if not writer.close(tuple(window.states.values())):
        raise StoreError(f"{directory}: {writer.written.problem or 'the disk did not answer'}")
