"""`/sys/bus/pci/drivers/nvidia` and `amdgpu`: GPUs that have a driver, and their models.

The folder of a PCI driver has a link for each of its devices, named by its address. The model is in
`/proc/driver/nvidia/gpus/ADDRESS/information` (of driver 535)::

    Model:           NVIDIA H100 80GB HBM3
    IRQ:             10
    GPU UUID:        GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b
    Video BIOS:      96.00.99.00.01
    Bus Type:        PCIe
    DMA Size:        52 bits
    DMA Mask:        0xfffffffffffff
    Bus Location:    0000:62:00.0
    Device Minor:    5
    GPU Firmware:    535.129.03
    GPU Excluded:    No

Quirks: fields are separated by blanks and tabs. The driver answers from memory, without
accessing the card: it works for one that has fallen off the bus. amdgpu has no such file. At most
`MOST` devices.

>>> model("Model: \\t\\t NVIDIA A10G\\nIRQ:   \\t\\t 42\\n")
'NVIDIA A10G'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import text
from sexton.model.rows.hardware import Gpu
from sexton.sources.registry import Reading, source

PATH = "/sys/bus/pci/drivers"
MOST = 64
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_MODEL = re.compile(r"^Model:[ \t]{1,16}(\S[^\n]{0,120})$", re.MULTILINE)


def model(information: str) -> str | None:
    """The model in NVIDIA's file."""
    found = _MODEL.search(information)
    return found[1].strip() if found else None


@source(f"{PATH}/{{nvidia,amdgpu}}", rows=(Gpu,), period_s=0.0)
class Gpus(Reading):
    """A row per GPU; none where there is no such driver."""

    def collect(self) -> Iterator[Gpu]:
        self._files.names(PATH)  # absent in a tree without /sys: not the same as no GPU
        for driver in ("nvidia", "amdgpu"):
            try:
                names = sorted(filter(_ADDRESS.fullmatch, self._files.names(f"{PATH}/{driver}")))
            except SourceAbsent:
                continue
            for bus in names[:MOST]:
                yield Gpu(bus, driver, self._model(bus) if driver == "nvidia" else None)

    def _model(self, bus: str) -> str | None:
        try:
            return model(text(self._files, f"/proc/driver/nvidia/gpus/{bus}/information", 65536))
        except SourceError:
            return None
