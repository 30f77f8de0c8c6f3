"""Symbols: names for addresses of the kernel, programs and JIT-compiled code."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SymbolOptions"]


class SymbolOptions(NamedTuple):
    """Where to look for symbols.

    `kallsyms` has the kernel symbols of the recorded boot, plain or gzipped; `None`: searched
    beside the capture, in perf's cache and, if it is provably the same kernel, on this machine.
    `directories` hold programs and debug files, by path, by file name or as
    ``.build-id/xx/yyyy.debug``. `root` is the tree in which paths of the capture are looked up.

    `cache` is a directory for symbols by build id; `None`: that of the user; "": none. A symbol or
    string table of more than `most_bytes` is not read; the dynamic symbols must do.
    """

    kallsyms: str | None = None
    directories: tuple[str, ...] = ()
    root: str = "/"
    cache: str | None = None
    most_bytes: int = 192 << 20
    #: Size limit of the cache.
    cache_bytes: int = 512 << 20
