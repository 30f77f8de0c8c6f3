"""perf's files in a recording that its recorder has not decoded yet: the last minutes, most often.

They are pieces of the timeline like any other file, decoded when somebody looks at them. One that
becomes an annex meanwhile is left out from then on, and that is said.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sexton.errors import SextonError
from sexton.model.profile import Facts
from sexton.model.text import printable
from sexton.profile.files import PERF_DATA, FilePiece, Recent, recognise
from sexton.profile.kept import KeptPiece, kept_pieces, last_boot
from sexton.profile.perf.rotation import first_sample_ns
from sexton.profile.symbols.options import SymbolOptions
from sexton.profile.symbols.symbols import Symbols
from sexton.store.annex import annex_name, boot_at
from sexton.store.pieces import waiting_stacks


def pieces_of_recording(path: Path, facts: Facts) -> list[KeptPiece | FilePiece]:
    """All stacks of one boot, the last that has any, in the order of time.

    What the reader should know ends in `facts.problems`. `StoreError` where it is no recording.
    """
    kept = kept_pieces(path, facts)
    boot_id = kept[-1].annex.boot_id if kept else last_boot(path)
    waiting = waiting_pieces(path, boot_id, {piece.annex.name for piece in kept}, facts)
    begins: list[tuple[int, KeptPiece | FilePiece]] = [(each.start_ns, each) for each in kept]
    begins += [(each.begun_ns or 0, each) for each in waiting]
    return [piece for _, piece in sorted(begins, key=lambda each: each[0])]


def waiting_pieces(
    recording: Path, boot_id: str, done: Collection[str], facts: Facts
) -> list[FilePiece]:
    """Those of one boot whose annex is not among `done`, by their begin; what cannot be read is
    told in `facts.problems`."""
    kallsyms = recording / "stacks" / f"kallsyms-{boot_id}.gz"
    options = SymbolOptions(kallsyms=str(kallsyms) if kallsyms.exists() else None)
    symbols, recent = Symbols(options), Recent()
    found: list[tuple[int, FilePiece]] = []
    for each in waiting_stacks(recording):
        if annex_name(each.path.name) in done:
            continue
        try:
            if boot_at(recording, each.path.stat().st_mtime) != boot_id:
                continue
            known = recognise(each.path)
            begun = first_sample_ns(str(each.path))
        except FileNotFoundError:  # decoded just now
            continue
        except SextonError as error:
            facts.problems.append(printable(f"left out: {error}"))
            continue
        if known.format == PERF_DATA and begun is not None:
            found.append((begun, FilePiece(known, symbols, recent, begun)))
        else:
            facts.problems.append(printable(f"left out: {each.path}: cannot be read as perf's"))
    return [piece for _, piece in sorted(found, key=lambda each: each[0])]
