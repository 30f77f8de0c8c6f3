"""Choose the kallsyms that fits the kernel of a capture.

The kernel is at another address after each boot, and each build has another layout, so the wrong
table gives wrong names that look right. A table is used if its ``_text`` is at the address in the
capture; one given by the user also if the capture has no such address. This machine's own must be
of the same build (build id, or without one the release and the address). The same build at another
address is shifted, without its modules, which move independently. Otherwise nothing is guessed:
names are ``[unknown]`` and a problem line says what to pass.
"""

from __future__ import annotations

import contextlib
import glob
import os
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import SourceError
from sexton.host.large_files import open_image
from sexton.host.reader import Files, LiveFiles, text
from sexton.model.text import printable
from sexton.profile.perf import kallsyms
from sexton.profile.perf.kallsyms import Kallsyms
from sexton.profile.perf.raw import KernelFacts
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.cache import HEAD_SIZE, Cache
from sexton.profile.symbols.elf import build_id_in
from sexton.profile.symbols.programs import same_build_id

_PASS = "pass /proc/kallsyms of the recorded boot with --kallsyms FILE"
_SNAPSHOT = "kallsyms-*.gz"
_MOST_SNAPSHOTS = 16
#: An end that means unknown: the last page of the address space.
_NO_END = 0xFFFF_FFFF_FFFF_F000
_TRANSIENT = (b"\t[bpf]\n", b"\t[__builtin__ftrace]\n", b"\t[__builtin__kprobes]\n")


class CaptureKernel(NamedTuple):
    """What a capture says about its kernel."""

    kernel: KernelFacts
    release: str | None
    capture: str


class Kernels:
    """Tables of kernel symbols, each read once."""

    def __init__(self, options: SymbolOptions, cache: Cache) -> None:
        self._options = options
        self._cache = cache
        self._known: dict[str, Kallsyms | SourceError] = {}
        self._live = LiveFiles()
        self._problems: list[str] = []

    def table(self, wanted: CaptureKernel) -> Kallsyms | None:
        """The symbols of the capture's kernel; `None`: none provably fit."""
        if self._options.kallsyms is not None:
            return self._given(self._options.kallsyms, wanted)
        for path in _beside(wanted):
            with contextlib.suppress(SourceError):
                found = self._load(path)
                if _fits(found, wanted.kernel) is True:
                    return found
        return self._running(wanted)

    def is_running(self, wanted: CaptureKernel) -> bool:
        """Was it recorded on the running kernel (or one of the same build)?"""
        if self._options.root != "/":
            return False
        build_id = wanted.kernel.build_id
        if build_id is not None:
            return same_build_id(build_id, kernel_build_id(self._live))
        return wanted.release is not None and wanted.release == kernel_release(self._live)

    def problems(self) -> list[str]:
        """Problem lines since the last call."""
        lines, self._problems = self._problems, []
        return lines

    def _given(self, path: str, wanted: CaptureKernel) -> Kallsyms | None:
        try:
            found = self._load(path)
        except SourceError as error:
            self._unknown(str(error))
            return None
        if _fits(found, wanted.kernel) is not False:
            return found
        if path == kallsyms.PATH and self.is_running(wanted):
            return _moved(found, wanted.kernel)
        mismatch = _mismatch(found, wanted.kernel)
        self._unknown(f"{path} is of another boot or kernel ({mismatch}); {_PASS}")
        return None

    def _running(self, wanted: CaptureKernel) -> Kallsyms | None:
        unnamed = wanted.kernel.build_id is None and wanted.release is None
        if not self.is_running(wanted) and not (unnamed and self._options.root == "/"):
            self._unknown(f"recorded on another kernel than the running one; {_PASS}")
            return None
        try:
            found = self._load(kallsyms.PATH)
        except SourceError as error:
            self._unknown(str(error))
            return None
        if _fits(found, wanted.kernel) is True and (not unnamed or _ends(found, wanted.kernel)):
            if unnamed:
                self._problems.append(
                    "the capture does not name its kernel; its text range is that of the running "
                    "kernel, so that one is assumed"
                )
            return found
        if wanted.kernel.build_id is not None:
            return _moved(found, wanted.kernel)
        self._unknown(f"cannot confirm that the running kernel was recorded; {_PASS}")
        return None

    def _unknown(self, reason: str) -> None:
        self._problems.append(printable(f"kernel functions are [unknown]: {reason}"))

    def _load(self, path: str) -> Kallsyms:
        """The symbols of a file; an error is cached too."""
        known = self._known.get(path)
        if known is None:
            try:
                known = kallsyms.parse(self._text(path), path)
            except SourceError as error:
                known = error
            self._known[path] = known
        if isinstance(known, SourceError):
            raise known
        return known

    def _text(self, path: str) -> bytes:
        """The text of a file, cached where generating it takes longer than reading the cache."""
        key = self._key(path)
        kept = self._cache.load(key) if key is not None else None
        if kept is not None:
            return kept[HEAD_SIZE:]
        content = kallsyms.unpacked(self._live.read(path, kallsyms.MOST_BYTES), path)
        if path == kallsyms.PATH:
            content = _permanent(content)
        if key is not None:
            self._cache.store(key, content)
        return content

    def _key(self, path: str) -> str | None:
        try:
            if path.endswith(".gz"):
                with open_image(self._live, path) as image:
                    return "kallsyms-" + "-".join(f"{number:x}" for number in image.identity)
            if path != kallsyms.PATH:
                return None
            boot = self._live.read("/proc/sys/kernel/random/boot_id", 64).decode("ascii").strip()
            # Loaded modules change the table; `kptr_restrict` zeroes it, and is not cached.
            modules = zlib.crc32(self._live.read("/proc/modules"))
            return f"kallsyms-{boot}-{modules:x}"
        except (SourceError, UnicodeDecodeError):
            return None


def _fits(found: Kallsyms, kernel: KernelFacts) -> bool | None:
    """Is its text at the address of the capture? `None`: unknown for one of them."""
    has = found.marks.get(kernel.text_symbol or "_text")
    if has is None or kernel.text_address is None:
        return None
    if has != kernel.text_address:
        return False
    return _ends(found, kernel) is not False


def _ends(found: Kallsyms, kernel: KernelFacts) -> bool | None:
    """perf maps the kernel up to one of these symbols: it distinguishes builds without KASLR, and
    identifies the kernel of a capture that was truncated before its metadata."""
    ends = {found.marks[name] for name in ("_etext", "_edata") if name in found.marks}
    if kernel.end is None or kernel.end >= _NO_END or not ends:
        return None
    return kernel.end in ends


def _mismatch(found: Kallsyms, kernel: KernelFacts) -> str:
    symbol = kernel.text_symbol or "_text"
    has, recorded = found.marks.get(symbol, 0), kernel.text_address or 0
    return f"{symbol} at {has:#x}, in the capture at {recorded:#x}"


def _moved(found: Kallsyms, kernel: KernelFacts) -> Kallsyms:
    has = found.marks.get(kernel.text_symbol or "_text")
    if has is None or kernel.text_address is None:
        return found
    return found.shifted(kernel.text_address - has)


def _beside(wanted: CaptureKernel) -> Iterator[str]:
    """Snapshots beside the capture, and that of perf."""
    if wanted.capture:
        folder = os.path.dirname(os.path.abspath(wanted.capture))
        names = sorted(glob.glob(_SNAPSHOT, root_dir=folder))
        yield from (os.path.join(folder, name) for name in names[:_MOST_SNAPSHOTS])
    if wanted.kernel.build_id is not None:
        home = os.path.expanduser("~/.debug")
        yield f"{home}/[kernel.kallsyms]/{wanted.kernel.build_id}/kallsyms"


def _permanent(content: bytes) -> bytes:
    """Without symbols that come and go: BPF programs, trampolines."""
    return b"".join(line for line in content.splitlines(True) if not line.endswith(_TRANSIENT))


def kernel_build_id(files: Files) -> str | None:
    """The running kernel's build id."""
    try:
        return build_id_in(files.read("/sys/kernel/notes", 1 << 16))
    except SourceError:
        return None


def kernel_release(files: Files) -> str | None:
    """The release, as in ``uname -r``."""
    try:
        return text(files, "/proc/sys/kernel/osrelease").strip()
    except SourceError:
        return None
