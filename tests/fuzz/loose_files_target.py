"""Fuzz target: what lies beside the segments of a recording, and signatures in them.

The first byte chooses the kind of file; the rest is its content.
"""

from __future__ import annotations

import json
from contextlib import suppress

from sexton.errors import SextonError
from sexton.profile.symbols.cache import check_names
from sexton.store.layout import SIGNATURE
from sexton.store.loose_files import check_mark, check_ring, check_shipped, check_status
from sexton.store.pins import pins_in, take_marks
from sexton.store.signing import check_form
from tests.support.recordings import scratch

_CHECKS = (check_mark, check_status, check_shipped, check_ring, check_names)


def one(data: bytes) -> None:
    with scratch() as place:
        for name in ("marks", "pins"):
            (place / name).mkdir()
        content = data[1:]
        for path in (place / "file", place / "marks/1.json", place / "pins/1.json"):
            path.write_bytes(content)
        (place / SIGNATURE).write_bytes(b"00" * 64 + b"\n" + content)
        chosen = data[:1]
        if chosen < bytes([len(_CHECKS)]):
            _CHECKS[chosen[0] if chosen else 0](place / "file")
            return
        with suppress(SextonError):
            check_form(place)
        pins_in(place)
        take_marks(place)


def _ring() -> bytes:
    import io

    import pyarrow.parquet as pq

    from sexton.model.rows.trace import TraceEvent
    from sexton.store.schema import schema_of

    whole = schema_of(TraceEvent)
    names = [name for name in whole.names if not name.startswith("read_")]
    sink = io.BytesIO()
    pq.write_table(whole.empty_table().select(names), sink)
    return sink.getvalue()


def seeds() -> list[bytes]:
    """One of each."""
    statement = {
        "schema": "sexton.signature/1", "recording": "0f" * 16, "kind": "segment", "name": "x",
        "files": {"manifest.json": "0f" * 32, "tables.zip": "0f" * 32}, "kept": [[1, 6]],
    }  # fmt: skip
    mark = {"text": "a", "mono_s": 1.0, "wall_s": 2.0, "boot_id": "x", "start": [1, 2]}
    status = {"schema": "sexton.status/1", "state": "recording", "pid": 1, "sources": {}}
    return [
        b"\x00" + json.dumps(mark).encode(),
        b"\x01" + json.dumps(status).encode(),
        b'\x02{"complete": true, "files": {"a": [1, 2]}}',
        b"\x03" + _ring(),
        b"\x04names",
        b"\xff" + json.dumps(mark).encode(),
        b"\xff" + json.dumps(statement).encode(),
    ]
