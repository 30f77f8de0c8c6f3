"""Size of a capture as the recorder would store it: ``python -m bench.profile.seal FILE OUT``.

Runs without the memory limit of the recorder's decoder, which refuses captures that need more than
200 MB to decode, as this one does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sexton.profile.decode import decode
from sexton.profile.heat import heat_of
from sexton.profile.perf.perfdata import read_raw
from sexton.profile.recorded import annex_facts, annex_tables
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.symbols import Symbols
from sexton.store.annex import annex_name, write_annex
from sexton.store.retention import size_of


def main(capture: str, out: str) -> None:
    profile = decode(read_raw(capture), Symbols(SymbolOptions()))
    edges = {"start": [0.0, 0.0], "end": [1.0, 1.0]}
    header = {
        "boot_id": "bench",
        **edges,
        "origin": ["bench", 0, 0],
        "profile": annex_facts(profile),
    }
    name = annex_name("perf.data.2026111502140000")
    print(size_of(write_annex(Path(out), name, header, annex_tables(profile, heat_of(profile)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
