"""`/proc/pressure/{cpu,memory,io,irq}`: pressure stall information (PSI).

Documented in the kernel's Documentation/accounting/psi.rst. An excerpt of `memory`::

    some avg10=0.00 avg60=0.05 avg300=0.02 total=212593
    full avg10=0.00 avg60=0.03 avg300=0.00 total=156340

"some": at least one task waited; "full": all of them did. Averages are percentages, the total is
microseconds since boot. Quirks: CONFIG_PSI is needed (4.20); with `psi=0`, or on distributions
that disable it by default, the files exist and reading them fails with EOPNOTSUPP, which counts as
absent. `cpu` has no "full" line before 5.13, and for the whole machine that line is always zero.
`irq` (6.1) has only "full" and needs CONFIG_IRQ_TIME_ACCOUNTING.

>>> list(parse("io", "some avg10=0.41 avg60=0.22 avg300=0.61 total=14795053\\n"))[0].total_us
14795053
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text
from sexton.model.rows.memory import Pressure
from sexton.sources.registry import Reading, source

PATH = "/proc/pressure"
RESOURCES = ("cpu", "memory", "io", "irq")


@source(
    f"{PATH}/*",
    rows=(Pressure,),
    period_s=1.0,
    grant="boot with psi=1 on a kernel built with CONFIG_PSI=y",
)
class PressureFiles(Reading):
    """Those of the four files that exist."""

    def collect(self) -> Iterator[Pressure]:
        seen = False
        for resource in RESOURCES:
            try:
                content = text(self._files, f"{PATH}/{resource}")
            except SourceAbsent:
                continue
            seen = True
            yield from parse(resource, content)
        if not seen:
            raise SourceAbsent(PATH, "pressure stall information (PSI) is off")


def parse(resource: str, content: str) -> Iterator[Pressure]:
    """The rows of one file."""
    path = f"{PATH}/{resource}"
    for number, line in enumerate(content.splitlines(), 1):
        kind, _, rest = line.partition(" ")
        if kind not in ("some", "full"):
            continue
        pairs = dict(word.partition("=")[::2] for word in rest.split())
        try:
            avg10, avg60, avg300 = (float(pairs[name]) for name in ("avg10", "avg60", "avg300"))
            total_us = int(pairs["total"])
        except (KeyError, ValueError):
            raise SourceMalformed(path, number, "not a line of averages and a total") from None
        if not math.isfinite(avg10 + avg60 + avg300):
            raise SourceMalformed(path, number, "an average that is not a number")
        yield Pressure(resource, kind, avg10, avg60, avg300, total_us)
