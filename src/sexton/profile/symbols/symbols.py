"""Everything that can name an address of a capture, behind one door.

Tables are read when the first address asks for them. A few stay in memory for the next file of
the same set; the rest is found again by the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sexton.errors import SourceError
from sexton.host.large_files import BytesImage, open_image
from sexton.host.reader import Files, LiveFiles, RootedFiles
from sexton.model.profile import Facts
from sexton.profile.perf.kallsyms import Kallsyms
from sexton.profile.perf.raw import KernelFacts, MappedFile
from sexton.profile.symbols.cache import Cache, default_directory
from sexton.profile.symbols.demangle import Demangler
from sexton.profile.symbols.elf import Elf
from sexton.profile.symbols.kernel import Kernels, Wanted
from sexton.profile.symbols.options import SymbolOptions
from sexton.profile.symbols.perfmap import MOST_BYTES, parse
from sexton.profile.symbols.programs import Programs, same_build_id
from sexton.profile.symbols.running import innermost_pid, own_vdso, root_of, started_wall_s
from sexton.profile.symbols.symtab import read_table
from sexton.profile.symbols.table import EMPTY, Table

VDSO = "[vdso]"
#: Bytes of tables held between two captures.
_MOST_HELD = 48 << 20
_MOST_WRITTEN = 200_000
#: What the kernel calls memory that is no file; code there was made by its process.
_MADE = re.compile(r"//anon|/dev/zero|/anon_hugepage|/memfd:|/SYSV|/?\[(?!v|uprobes)")


def is_made(path: str) -> bool:
    """Is it memory rather than a file, so that only its process can name what is there?

    >>> [is_made(each) for each in ("//anon", "[heap]", "/[aio]", "/memfd:x (deleted)")]
    [True, True, True, True]
    >>> [is_made(each) for each in ("/usr/bin/python3", "[vdso]", "[vsyscall]", "[uprobes]")]
    [False, False, False, False]
    """
    return _MADE.match(path) is not None


class Symbols:
    """Tables of names for one or many captures."""

    def __init__(self, options: SymbolOptions | None = None) -> None:
        options = options or SymbolOptions()
        directory = default_directory() if options.cache is None else options.cache
        cache = Cache(directory or None, options.cache_bytes)
        self._options = options
        self._kernels = Kernels(options, cache)
        self._programs = Programs(options, cache)
        self._files: Files = LiveFiles() if options.root == "/" else RootedFiles(options.root)
        self._held: dict[MappedFile, Table] = {}
        self._held_bytes = 0
        self._written: dict[str, str] = {}

    def demangler(self) -> Demangler:
        """Makes names as they were written; one for each capture."""
        if len(self._written) > _MOST_WRITTEN:
            self._written.clear()
        return Demangler(self._written)

    def kernel(self, kernel: KernelFacts, facts: Facts) -> Kallsyms | None:
        """The kernel's symbols, if some are proven to be the capture's."""
        return self._kernels.table(Wanted(kernel, facts.release, facts.path))

    def program(
        self, file: MappedFile, pids: Sequence[int], until_wall_s: float | None = None
    ) -> Table:
        """A mapped file's names by their place in it; `pids` had it mapped until then."""
        found = self._held.get(file)
        if found is None:
            found = self._programs.table(file, pids, until_wall_s)
            size = len(found.text) + 24 * len(found)
            # What was not there may be there for the next capture: a container's, for one.
            if len(found) and self._held_bytes + size <= _MOST_HELD:
                self._held[file] = found
                self._held_bytes += size
        return found

    def vdso(self, file: MappedFile, kernel: KernelFacts, facts: Facts) -> Table:
        """The vDSO's names: this machine's own, where the capture's kernel is the running one."""
        content = own_vdso(LiveFiles())
        if content is None:
            return EMPTY
        try:
            elf = Elf(BytesImage(content, VDSO))
            if file.build_id is not None:
                same = same_build_id(file.build_id, elf.build_id())
            else:
                same = self._kernels.is_running(Wanted(kernel, facts.release, facts.path))
            return read_table(elf) if same else EMPTY
        except SourceError:
            return EMPTY

    def made(self, pid: int, until_wall_s: float | None) -> Table:
        """What process `pid` said of the code it made; it was last sampled at `until_wall_s`."""
        for files, path in self._map_places(pid, until_wall_s):
            try:
                with open_image(files, path) as image:
                    return parse(image.read(0, min(image.size, MOST_BYTES)))
            except SourceError:
                continue
        return EMPTY

    def problems(self) -> list[str]:
        """What a person should know about missing names; told once."""
        return self._kernels.problems() + self._programs.problems()

    def _map_places(self, pid: int, until_wall_s: float | None) -> Iterator[tuple[Files, str]]:
        if self._options.root == "/":
            began = started_wall_s(self._files, pid)
            # Another process may have the number by now. Both times are exact to a second.
            another = began is not None and until_wall_s is not None and began > until_wall_s + 1
            with root_of(pid) as root:
                if root is not None and not another:
                    yield root, f"/tmp/perf-{innermost_pid(self._files, pid)}.map"
        yield self._files, f"/tmp/perf-{pid}.map"
        own = LiveFiles()
        yield from ((own, f"{each}/perf-{pid}.map") for each in self._options.directories)
