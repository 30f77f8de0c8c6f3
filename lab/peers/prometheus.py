"""Alerts of node_exporter's mixin, evaluated over scrapes as Prometheus 2 would.

`rate` and `increase` extrapolate to the edges of their range, as Prometheus' `extrapolatedRate`
does. An alert is *pending* from the first true evaluation and *fires* after being true for its
``for``. No scene lasts a quarter of an hour, so most alerts are pending at best; then the result is
when they would fire if nothing changed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lab.peers.series import SCRAPE_S, Key, Scrapes

RULES = Path(__file__).parent / "rules" / "node_mixin.toml"
_IDLE = ("idle", "iowait")
_Samples = Sequence[tuple[float, float]]


class Alert(NamedTuple):
    """One rule of the mixin."""

    name: str
    expr: str
    form: str
    range_s: float
    above: float
    for_s: float
    metric: str = "node_cpu_seconds_total"
    by: str = ""
    note: str = ""


class Raised(NamedTuple):
    """When an alert became pending, when it fires or would fire, and whether it fired.

    Seconds since the recording's first reading.
    """

    alert: Alert
    pending_s: float
    fires_s: float
    fired: bool


@cache
def book() -> dict[str, Any]:
    """The rules with their source."""
    return tomllib.loads(RULES.read_text("utf-8"))


@cache
def alerts() -> tuple[Alert, ...]:
    """The alerts whose metrics are recorded."""
    return tuple(Alert(**entry) for entry in book()["alert"])


def raised(scrapes: Scrapes) -> list[Raised]:
    """Every alert that was at least pending, ordered by firing time."""
    found = []
    for alert in alerts():
        true = [any(row) for row in _over_time(alert, scrapes)]
        if any(true):
            found.append(_raised(alert, true))
    return sorted(found, key=lambda alarm: (alarm.fires_s, alarm.alert.name))


def _raised(alert: Alert, true: Sequence[bool]) -> Raised:
    """The pending period closest to firing."""
    best: Raised | None = None
    since: int | None = None
    for place, holds in enumerate([*true, False]):
        if holds and since is None:
            since = place
        if not holds and since is not None:
            lasted = (place - 1 - since) * SCRAPE_S
            still = place == len(true)
            fired = lasted >= alert.for_s
            start = since * SCRAPE_S
            this = Raised(alert, start, start + alert.for_s, fired)
            if best is None or (fired and not best.fired) or (still and not best.fired):
                best = this
            since = None
    assert best is not None
    return best


def true_at(alert: Alert, scrapes: Scrapes) -> list[int]:
    """The number of series for which the expression is true, per evaluation."""
    return [sum(row) for row in _over_time(alert, scrapes)]


def _over_time(alert: Alert, scrapes: Scrapes) -> Iterator[list[bool]]:
    length = max((len(values) for values in scrapes.values()), default=0)
    for place in range(length):
        yield [value > alert.above for value in _values(alert, scrapes, place)]


def _values(alert: Alert, scrapes: Scrapes, place: int) -> Iterator[float]:
    """The values that the expression compares, one per series, at one evaluation."""
    mine = {key.labels: values for key, values in scrapes.items() if key.metric == alert.metric}
    if alert.form == "busy_share":
        yield from _busy_share(mine, place, alert.range_s)
        return
    others = {key.labels: values for key, values in scrapes.items() if key.metric == alert.by}
    for labels, values in mine.items():
        found = _one(alert, values, place)
        if alert.by:
            below = _one(alert, others.get(labels, ()), place)
            # 0 / 0 is NaN, which never exceeds a threshold; n / 0 is infinite, which does.
            if found is None or below is None or (not found and not below):
                continue
            found = found / below if below else float("inf")
        if found is not None:
            yield found


def _one(alert: Alert, values: Sequence[float | None], place: int) -> float | None:
    if alert.form in ("value", "ratio"):
        return values[place] if place < len(values) else None
    moved = rate(_range(values, place, alert.range_s), place * SCRAPE_S, alert.range_s)
    if moved is None or alert.form != "increase":
        return moved
    return moved * alert.range_s


def _busy_share(
    mine: Mapping[tuple[tuple[str, str], ...], Sequence[float | None]], place: int, range_s: float
) -> Iterator[float]:
    by_mode: dict[str, list[float]] = {}
    for labels, values in mine.items():
        mode = dict(labels)["mode"]
        moved = rate(_range(values, place, range_s), place * SCRAPE_S, range_s)
        if mode not in _IDLE and moved is not None:
            by_mode.setdefault(mode, []).append(moved)
    if by_mode:
        yield 100 * sum(sum(group) / len(group) for group in by_mode.values())


def _range(values: Sequence[float | None], place: int, range_s: float) -> _Samples:
    """The samples of a range, including its left edge as in Prometheus 2."""
    first = max(place - int(range_s / SCRAPE_S), 0)
    return [
        (number * SCRAPE_S, value)
        for number in range(first, min(place + 1, len(values)))
        if (value := values[number]) is not None
    ]


def rate(samples: _Samples, now_s: float, range_s: float) -> float | None:
    """Per second over the range, extrapolated to its edges; `None` with fewer than two samples.

    >>> rate([(0.0, 10.0), (15.0, 25.0), (30.0, 40.0)], 30.0, 30.0)
    1.0
    """
    if len(samples) < 2:
        return None
    (first_s, first), (last_s, last) = samples[0], samples[-1]
    moved = last - first
    before = first
    for _, value in samples[1:]:
        moved += before if value < before else 0.0  # counter reset
        before = value
    sampled_s = last_s - first_s
    mean_s = sampled_s / (len(samples) - 1)
    to_start, to_end = first_s - (now_s - range_s), now_s - last_s
    if moved > 0 and first >= 0:
        to_start = min(to_start, sampled_s * first / moved)
    reach_s = sampled_s
    for edge_s in (to_start, to_end):
        reach_s += edge_s if edge_s < 1.1 * mean_s else mean_s / 2
    return moved * (reach_s / sampled_s) / range_s


def promtool_test(scrapes: Scrapes) -> str:
    """Input for ``promtool test rules`` that expects our number of true series per expression."""
    length = max((len(values) for values in scrapes.values()), default=0)
    lines = ["rule_files: []", f"evaluation_interval: {SCRAPE_S:.0f}s", "tests:"]
    lines += [f"  - interval: {SCRAPE_S:.0f}s", "    input_series:"]
    for key, values in scrapes.items():
        shown = " ".join(_shown(values, place) for place in range(len(values)))
        lines += [f"      - series: '{_quoted(key)}'", f"        values: '{shown}'"]
    lines.append("    promql_expr_test:")
    for alert in alerts():
        for place, number in enumerate(true_at(alert, scrapes)):
            lines += [
                f"      - expr: 'count({alert.expr}) or vector(0)'",
                f"        eval_time: {place * SCRAPE_S:.0f}s",
                "        exp_samples:",
                f"          - {{labels: '{{}}', value: {number}}}",
            ]
    return "\n".join(lines) + "\n" if length else ""


def _shown(values: Sequence[float | None], place: int) -> str:
    """Prometheus marks a series that is no longer exported as stale."""
    value = values[place]
    if value is not None:
        return repr(value)
    return "stale" if place and values[place - 1] is not None else "_"


def _quoted(key: Key) -> str:
    return str(key).replace("'", "''")
