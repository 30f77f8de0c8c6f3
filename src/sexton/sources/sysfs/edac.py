"""`/sys/devices/system/edac/mc`: corrected and uncorrected errors of memory modules.

Documented in the kernel's Documentation/admin-guide/ras.rst, "EDAC - Error Detection And
Correction". A controller has a folder for each module::

    mc0/ce_count 29589                   mc0/dimm0/dimm_label CPU_SrcID#0_Ha#0_Chan#0_DIMM#1
    mc0/ue_count 0                       mc0/dimm0/dimm_ce_count 29589
    mc0/ce_noinfo_count 0                mc0/dimm0/dimm_ue_count 0

Quirks: a module's own counters came with 4.10; before, only the controller's are read. Folders are
called `dimmN` or, with some drivers, `rankN`. What the hardware could not locate is in the
`*_noinfo_count` files and has no label here. Virtual machines have no memory controller, and a
firmware that handles errors itself (firmware first) leaves all at zero. At most `MOST` modules.

>>> number("29589\\n", "/x")
29589
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text
from sexton.model.rows.hardware import MemoryModule
from sexton.sources.registry import Reading, source

PATH = "/sys/devices/system/edac/mc"
MOST = 256
_CONTROLLER = re.compile(r"mc(\d{1,4})", re.ASCII)
_MODULE = re.compile(r"(?:dimm|rank)\d{1,4}", re.ASCII)


def number(content: str, path: str) -> int:
    """A file that holds one number."""
    digits = content.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise SourceMalformed(path, 1, "not a number")
    return int(digits)


@source(
    PATH,
    rows=(MemoryModule,),
    period_s=60.0,
    grant="load the EDAC driver of the memory controller  # virtual machines have none",
)
class Modules(Reading):
    """A row per module, and one per controller for what it could not locate."""

    def collect(self) -> Iterator[MemoryModule]:
        found = sorted(filter(_CONTROLLER.fullmatch, self._files.names(PATH)))
        if not found:
            raise SourceAbsent(PATH, "no memory controller reports its errors")
        left = MOST
        for name in found:
            controller, place = int(name[2:]), f"{PATH}/{name}"
            modules = sorted(filter(_MODULE.fullmatch, self._files.names(place)))[:left]
            left -= len(modules)
            rows = [
                row for row in (self._module(controller, place, item) for item in modules) if row
            ]
            yield from rows
            kinds = ("ce_noinfo_count", "ue_noinfo_count") if rows else ("ce_count", "ue_count")
            try:
                yield MemoryModule(
                    controller, "", *(self._number(f"{place}/{kind}") for kind in kinds)
                )
            except SourceAbsent:
                continue

    def _module(self, controller: int, place: str, name: str) -> MemoryModule | None:
        folder = f"{place}/{name}"
        try:
            label = text(self._files, f"{folder}/dimm_label").strip() or name
            counts = [self._number(f"{folder}/dimm_{kind}_count") for kind in ("ce", "ue")]
        except SourceAbsent:
            return None
        return MemoryModule(controller, label, counts[0], counts[1])

    def _number(self, path: str) -> int:
        return number(text(self._files, path), path)
