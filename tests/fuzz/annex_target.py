"""Fuzz target: the stacks of a recording. Parts: `P` a table's number and a Parquet file; `M` JSON
that is laid over the annex's manifest."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from sexton.errors import StoreError
from sexton.profile.recorded import check_annex
from sexton.replay.span import everything
from sexton.replay.stacks import function_signals, stacks_in
from sexton.store.annex import Annex, annexes_of
from sexton.store.recording import Recording
from sexton.store.verify import Checks, verify
from tests.fuzz.parts import joined
from tests.fuzz.sealed_segment_target import lay_over
from tests.support.annexes import with_stacks
from tests.support.recordings import manifest_of, scratch, table_of


@cache
def _held() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sexton-fuzz-")


@cache
def whole() -> Path:
    """An annex of a small recording, in a directory that ends with this process."""
    return with_stacks(Path(_held().name))


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted(manifest_of(whole())["tables"]))


def one(data: bytes) -> None:
    with scratch() as place:
        directory = place / "recording"
        shutil.copytree(whole().parents[2], directory)
        segment = directory / "segments" / whole().parent.name
        lay_over(segment / whole().name, names(), data)
        for trouble in verify(directory, checks=Checks(annex=check_annex)).troubles:
            assert "\n" not in trouble.detail
        for annex in annexes_of(segment, []):
            with suppress(StoreError):
                check_annex(Annex(annex.path))
        recording = Recording(directory)
        span = everything(recording)
        stacks_in(recording, span)
        list(function_signals(recording, span, None))
        assert all("\n" not in problem for problem in recording.problems)


def seeds() -> list[bytes]:
    """Its tables as they are, and changes to the manifest."""
    tables = [[(b"P", bytes([at]) + table_of(whole(), name))] for at, name in enumerate(names())]
    changes = [
        b'{"start":[1,2],"end":[900,904],"boot_id":"x"}',
        b'{"profile":{"events":[["cpu-clock",99]],"samples":7,"cores":2,"host":"a"}}',
    ]
    return [joined(each) for each in [*tables, *([(b"M", change)] for change in changes)]]
