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
from sexton.export.samples import Counts, Labels, Samples, Value

#: Compressing costs a millisecond and saves nine tenths of what crosses the network.
_LEVEL = 1
#: Label sets of counters that are remembered: a node exports fewer than a hundred at a time.
MOST_REMEMBERED = 1000
#: Of both formats; the library compares and repeats any other that a client makes up.
_VERSIONS = frozenset(("0.0.1", "0.0.4", "1.0.0"))


class Totals:
    """Counters and histograms that never fall while the exporter runs.

    What is counted may be forgotten: log lines leave the recording, a unit's counter is cleared, a
    driver is loaded again. Prometheus would take that for a restart from zero, and what is left for
    new events. So only increases are added to the first value. Of units and NICs that come and go
    for months, those that were not seen for longest are forgotten.
    """

    def __init__(self) -> None:
        #: The last value and the total, those seen last at the end.
        self._known: dict[tuple[str, Labels], tuple[Value, Value]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def apply(self, samples: Samples) -> None:
        """Replace values by their totals."""
        for family in FAMILIES:
            if family.kind is not Kind.GAUGE:
                for labels, value in list(samples.of(family)):
                    samples.put(family, labels, self._total((family.name, labels), value))
        for key in list(self._known)[: max(0, len(self._known) - MOST_REMEMBERED)]:
            del self._known[key]

    def _total(self, key: tuple[str, Labels], value: Value) -> Value:
        before, total = self._known.pop(key, (value, value))
        total = _grown(total, before, value)
        self._known[key] = value, total
        return total


def _grown(total: Value, before: Value, value: Value) -> Value:
    """The total, and what was added since before."""
    if isinstance(value, Counts):
        assert isinstance(total, Counts)
        assert isinstance(before, Counts)
        parts = zip(total.buckets, before.buckets, value.buckets, strict=True)
        buckets = tuple(known + max(now - then, 0) for known, then, now in parts)
        return Counts(buckets, total.sum + max(value.sum - before.sum, 0))
    assert not isinstance(total, Counts)
    assert not isinstance(before, Counts)
    return total + max(value - before, 0)


class Page:
    """One state of all metrics in the forms that were asked for; safe for threads."""

    def __init__(self, samples: Samples) -> None:
        self._samples = _Collected(samples)
        self._made: dict[tuple[str, bool], tuple[bytes, str]] = {}

    def body(self, accept: str, gzipped: bool) -> tuple[bytes, str]:
        """The text and its content type, for an Accept header."""
        encode, kind = choose_encoder(_known_versions(accept))
        key = kind, gzipped
        if key not in self._made:
            text = encode(self._samples)
            self._made[key] = gzip.compress(text, _LEVEL) if gzipped else text, kind
        return self._made[key]


def _known_versions(accept: str) -> str:
    """An Accept header without formats in versions that are not known: the forms of a page, which
    are kept, must be few.

    >>> _known_versions("application/openmetrics-text; version=1.0.0; q=0.5, text/plain;version=x")
    'application/openmetrics-text; version=1.0.0; q=0.5'
    """
    return ",".join(each for each in accept.split(",") if _versions(each) <= _VERSIONS)


def _versions(accepted: str) -> set[str]:
    words = map(str.strip, accepted.split(";"))
    return {word.partition("=")[2] for word in words if word.startswith("version=")}


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
