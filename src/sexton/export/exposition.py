"""Samples as text: Prometheus' text format, or OpenMetrics if the client accepts it.

The library of the Prometheus project writes both, and chooses by the Accept header.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from sexton.export.families import FAMILIES, Family, Kind
from sexton.export.samples import Counts, Samples

#: Compressing costs a millisecond and saves nine tenths of what crosses the network.
_LEVEL = 1


class Totals:
    """Counters that never fall while the exporter runs.

    What is counted may be forgotten: log lines leave the recording, a unit's counter is cleared, a
    driver is loaded again. Prometheus would take that for a restart from zero, and what is left for
    new events. So only increases are added to the first value.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}

    def apply(self, samples: Samples) -> None:
        """Replace the values of counters by their totals."""
        for family in FAMILIES:
            if family.kind is Kind.COUNTER:
                for labels, value in list(samples.of(family)):
                    if isinstance(value, float | int):
                        samples.put(family, labels, self._total(family, labels, value))

    def _total(self, family: Family, labels: tuple[str, ...], value: float) -> float:
        key = family.name, labels
        before, total = self._last.get(key, (value, value))
        total += max(value - before, 0)
        self._last[key] = value, total
        return total


class Page:
    """One state of all metrics in the forms that were asked for; safe for threads."""

    def __init__(self, samples: Samples) -> None:
        self._samples = _Collected(samples)
        self._made: dict[tuple[str, bool], tuple[bytes, str]] = {}

    def body(self, accept: str, gzipped: bool) -> tuple[bytes, str]:
        """The text and its content type, for an Accept header."""
        encode, kind = choose_encoder(accept)
        key = kind, gzipped
        if key not in self._made:
            text = encode(self._samples)
            self._made[key] = gzip.compress(text, _LEVEL) if gzipped else text, kind
        return self._made[key]


class _Collected(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            name = family.name.removesuffix("_total")
            made = Metric(name, family.help, family.kind.value)
            for labels, value in self._samples.of(family):
                named = dict(zip(family.labels, labels, strict=True))
                if isinstance(value, Counts):
                    _add_histogram(made, family, named, value)
                else:
                    made.add_sample(family.name, named, value)
            if made.samples:
                yield made


def _add_histogram(made: Metric, family: Family, labels: dict[str, str], value: Counts) -> None:
    reached = 0.0
    for bound, number in zip((*family.buckets, float("inf")), value.buckets, strict=True):
        reached += number
        le = floatToGoString(bound)  # type: ignore[no-untyped-call]
        made.add_sample(f"{made.name}_bucket", {**labels, "le": le}, reached)
    made.add_sample(f"{made.name}_count", labels, reached)
    made.add_sample(f"{made.name}_sum", labels, value.sum)
