"""Where names may be looked for."""

from __future__ import annotations

from typing import NamedTuple


class SymbolOptions(NamedTuple):
    """What a person or the recorder said about names.

    `kallsyms` is the kernel's symbols of the capture's boot, plain or gzipped; `None`: looked for
    beside the capture, in perf's cache and, where it is proven to be the same kernel, on this
    machine. `directories` hold programs and debug files, by path, by bare name or as
    ``.build-id/xx/yyyy.debug``. `root` is the tree the capture's paths are looked up in.

    `cache` is a directory for names by build id; `None`: the user's own; "": none. Of a program
    whose table of symbols or of names has more than `most_bytes`, that table is not read: what it
    needs to run has to do.
    """

    kallsyms: str | None = None
    directories: tuple[str, ...] = ()
    root: str = "/"
    cache: str | None = None
    most_bytes: int = 192 << 20
    #: What the cache may take.
    cache_bytes: int = 512 << 20
