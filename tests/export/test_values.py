"""Single values, from windows that are made for them, and how many there can be."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from itertools import count
from math import inf
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.synthetic import Plan
from sexton.explain.diagnosis import diagnose
from sexton.export import families as f
from sexton.export.current import current
from sexton.export.exposition import Page
from sexton.export.judged import judged
from sexton.export.samples import MOST_LABEL, Counts, Samples
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupDir, CgroupEvent, CgroupThrottle
from sexton.model.rows.cpu import ProbeCost, SoftirqWait
from sexton.model.rows.task import Process, ProcessCgroup, Thread
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.window import Batch, Window
from tests.detect.test_leak import counted, every, traced
from tests.support.recordings import HOSTILE
from tests.support.synthetic import INCIDENT, made


def exported(window: Window) -> Samples:
    samples = current(window, -inf, 15.0).samples
    samples.update(judged(window, diagnose(window)))
    return samples


def test_a_leak_has_its_pace_and_none_is_0():
    """A cgroup each two seconds, and none of them is released."""
    window = traced(every(2.0, 300.0), 300.0)
    leaking, calm = (judged(it, diagnose(it)) for it in (window, counted(*[40] * 61)))
    assert leaking.value(f.LEAK) == pytest.approx(0.5, rel=0.02)
    assert calm.value(f.LEAK) == 0.0


def waits(buckets: tuple[int, ...]) -> Any:
    probe = ProbeCost("on", *(None,) * (len(fields(ProbeCost)) - 1))
    row = SoftirqWait(0, "NET_RX", sum(buckets), sum(buckets), 5, None, None, buckets)
    batches = {SoftirqWait: [Batch(1.0, 101.0, (row,))], ProbeCost: [Batch(1.0, 101.0, (probe,))]}
    return current(Window(batches), -inf, 15.0).samples.value(f.SOFTIRQ_WAIT, "NET_RX")


@pytest.mark.parametrize("bucket", range(26))
def test_a_wait_is_in_the_first_bucket_that_holds_its_whole_power_of_two(bucket: int):
    """Bucket n of the probe ends at 2**n us, the last one nowhere."""
    found = waits((*[0] * bucket, 3))
    assert isinstance(found, Counts)
    ends_s = inf if bucket == 25 else 2**bucket / 1e6
    bounds = (*f.WAIT_SECONDS, inf)
    expected = next(at for at, bound in enumerate(bounds) if bound >= ends_s)
    assert found.buckets == tuple(3.0 * (at == expected) for at in range(len(bounds)))


@pytest.mark.whole
def test_a_large_node_with_hostile_names_has_at_most_400_series():
    plan = Plan(cores=96, cgroups=2000, units=300, processes=300, hours=0.1, plant=INCIDENT)
    window = renamed(made(plan).window)
    text = Page(exported(window)).body("", False)[0].decode("utf-8")
    found = [sample for each in text_string_to_metric_families(text) for sample in each.samples]
    assert len(found) <= 400
    families = Counter(sample.name for sample in found)
    assert families[f.UNIT_RESTARTS.name] == f.UNIT_RESTARTS.most
    assert families[f.OWNERS.name] > 1
    values = {
        value for sample in found for key, value in sample.labels.items() if key != "sentence"
    }
    assert max(map(len, values)) == MOST_LABEL
    assert sum(value[-9:-8] == "~" for value in values) >= 10  # escaped or cut


#: Whose names are anybody's.
NAMED: dict[type[Row], tuple[str, ...]] = {
    CgroupDir: ("path",), CgroupEvent: ("path",), CgroupThrottle: ("path",), Process: ("comm",),
    ProcessCgroup: ("path",), RestartMark: ("unit",), Thread: ("comm",), Unit: ("name",),
}  # fmt: skip


def renamed(window: Window) -> Window:
    """The same node, with a hostile name in place of each name on it, and units that restarted."""
    names: dict[str, str] = {}
    numbers = count()

    def hostile(name: str) -> str:
        if name not in names:
            number = next(numbers)
            names[name] = f"{HOSTILE[number % len(HOSTILE)]}{number}{name}"
        return names[name]

    def row_of(row: Row) -> Row:
        mine = NAMED.get(type(row), ())
        made = replace(row, **{each: below(getattr(row, each)) for each in mine})
        # So that there are too many, and long names are among those that are listed.
        return replace(made, restarts=len(made.name)) if isinstance(made, Unit) else made

    def below(path: str) -> str:
        return "/".join(hostile(part) if part else part for part in path.split("/"))

    batches = {
        kind: [replace(batch, rows=tuple(map(row_of, batch.rows))) for batch in read]
        for kind, read in window._batches.items()
    }
    return Window(batches, tuple(window.states.values()), window._providers)
