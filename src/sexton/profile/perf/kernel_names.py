"""Names for kernel addresses: what perf saw come, then kallsyms.

A BPF program, a trampoline or a kprobe's page tells its name and extent when it is loaded (record
type 17, KSYMBOL); where one is unloaded and another takes its place, the later one counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I32, UNKNOWN
from sexton.profile.perf.kallsyms import KERNEL, Kallsyms
from sexton.profile.perf.raw import KernelSymbol

U64 = npt.NDArray[np.uint64]
BPF = "[bpf]"


def kernel_names(
    addresses: U64, table: Kallsyms | None, loaded: list[KernelSymbol]
) -> tuple[list[tuple[str, str]], I32]:
    """Distinct names with their modules, and which of them each address has."""
    found: list[tuple[str, str]] = [(UNKNOWN, KERNEL)]
    which = np.zeros(len(addresses), np.int32)
    if table is not None:
        symbols, each = np.unique(table.find(addresses), return_inverse=True)
        known = symbols[symbols >= 0]
        found += zip(table.names(known), table.module_names(known), strict=True)
        missed = int(len(symbols) > len(known))
        which = np.where(missed & (each == 0), 0, each + 1 - missed).astype(np.int32)
    if loaded:
        _name_loaded(addresses, loaded, found, which)
    return found, which


def _name_loaded(
    addresses: U64, loaded: list[KernelSymbol], found: list[tuple[str, str]], which: I32
) -> None:
    ordered = sorted({each.start: each for each in loaded}.values())
    start = np.array([each.start for each in ordered], np.uint64)
    end = np.array([each.end for each in ordered], np.uint64)
    row = np.searchsorted(start, addresses, side="right") - 1
    inside = (row >= 0) & (addresses < end[np.maximum(row, 0)])
    rows, each = np.unique(row[inside], return_inverse=True)
    which[inside] = len(found) + each
    found += [(ordered[one].name, BPF) for one in rows.tolist()]
