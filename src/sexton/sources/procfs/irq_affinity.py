"""`/proc/irq/N/smp_affinity_list` and `effective_affinity_list`: the cores of each interrupt.

Documented in the kernel's Documentation/core-api/irq/irq-affinity.rst. An excerpt::

    /proc/irq/38/smp_affinity_list:       0-1
    /proc/irq/38/effective_affinity_list: 1

Quirks: the allowed cores are the configured ones; a controller that can target only one core picks
one of them, and only the *effective* list says which. That file exists since 4.13 and only with
CONFIG_GENERIC_IRQ_EFFECTIVE_AFF_MASK: elsewhere `effective` is `None`. It is empty for a line that
was never started. A line that disappears between listing and reading is skipped. Two small reads
per line, once per window: 2,000 lines take less than a tenth of a second.

>>> cpu_list("0-3,8,10-11")
(0, 1, 2, 3, 8, 10, 11)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from sexton.errors import SourceAbsent, SourceError, SourceMalformed
from sexton.host.reader import Files, text
from sexton.model.rows.cpu import IrqAffinity
from sexton.sources.registry import Reading, source

PATH = "/proc/irq"
#: More cores than Linux can be built for: a longer list is junk.
_MOST_CPUS = 8192


@source("/proc/irq/*/smp_affinity_list", rows=(IrqAffinity,), period_s=0.0)
class IrqAffinities(Reading):
    """Every numbered interrupt's cores."""

    def collect(self) -> Iterator[IrqAffinity]:
        for irq in sorted(int(name) for name in self._files.names(PATH) if name.isdecimal()):
            allowed = self._cpus(f"{PATH}/{irq}/smp_affinity_list")
            if allowed is not None:
                effective = self._cpus(f"{PATH}/{irq}/effective_affinity_list")
                yield IrqAffinity(irq, allowed, effective)

    def _cpus(self, path: str) -> tuple[int, ...] | None:
        try:
            content = text(self._files, path)
        except SourceAbsent:
            return None
        try:
            return cpu_list(content)
        except ValueError:
            raise SourceMalformed(path, 1, "not a list of cores") from None


def irq_cpus(files: Files, irq: int | str) -> tuple[int, ...]:
    """The cores that serve an interrupt: the effective ones if known, else the allowed ones."""
    for name in ("effective_affinity_list", "smp_affinity_list"):
        try:
            cpus = cpu_list(text(files, f"{PATH}/{irq}/{name}"))
        except (SourceError, ValueError):
            continue
        if cpus:
            return cpus
    return ()


@lru_cache(maxsize=512)  # most lines share a few lists, and a list of 256 cores is long
def cpu_list(content: str) -> tuple[int, ...]:
    """The kernel's list format, ``0-3,8``, in order; an empty one is ``()``."""
    cpus: list[int] = []
    for piece in content.strip().split(","):
        if not piece:
            continue
        first, dash, last = piece.partition("-")
        start = int(first)
        stop = int(last) if dash else start
        if not 0 <= start <= stop < _MOST_CPUS or len(cpus) > _MOST_CPUS:
            raise ValueError(piece)
        cpus.extend(range(start, stop + 1))
    return tuple(cpus)
