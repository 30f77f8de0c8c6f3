"""The rules for `NRestarts`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sexton.cli.fix import verify
from sexton.model.rows.kubernetes import Container
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.window import Batch, Window, columns_of
from sexton.prevent.audit import wanted_sources
from sexton.series import restarts
from sexton.series.restarts import FIELDS, RestartCount
from sexton.sources.registry import all_sources


def unit(restarts: int | None, main_start_us: int | None = None, name: str = "a.service") -> Unit:
    return Unit(
        name, "loaded", "activating", "auto-restart", "enabled", restarts, "always", 100_000,
        main_start_us, None, None, None, None, f"/system.slice/{name}", "slice + name",
    )  # fmt: skip


def batches(*readings: Sequence[Unit]) -> list[Batch[Unit]]:
    return [Batch(float(second), 1e9 + second, tuple(rows)) for second, rows in enumerate(readings)]


def restarts_in(read: Sequence[Batch[Unit]]) -> dict[str, RestartCount]:
    columns = columns_of(read, Unit, FIELDS)
    return restarts.restarts_in([] if columns is None else [columns])


def counted(*readings: tuple[int | None, int | None]) -> RestartCount:
    return restarts_in(batches(*[[unit(*reading)] for reading in readings]))["a.service"]


def test_restarts_are_the_increase_and_not_the_value():
    assert counted((97, 1), (99, 2), (104, 3)) == RestartCount(7, 104, False, 2.0)


def test_a_decrease_is_a_new_baseline():
    assert counted((97, 1), (2, 2), (5, 3)) == RestartCount(3, 5, True, 2.0)


def test_a_counter_that_moved_without_a_start_does_not_count():
    assert counted((3, 50), (4, 50)).count == 0


def test_a_manual_restart_moves_the_start_and_does_not_count():
    assert counted((3, 50), (3, 60)).count == 0


def test_if_the_start_is_unknown_the_counter_is_used():
    assert counted((3, None), (5, None)).count == 2
    assert counted((0, None), (5, 70)).count == 5


def test_a_unit_that_was_missing_continues_from_its_last_value():
    found = restarts_in(batches([unit(3, 1)], [], [unit(5, 2)]))
    assert found["a.service"] == RestartCount(2, 5, False, 2.0)


def test_an_unread_counter_is_no_counter():
    assert restarts_in(batches([unit(None)], [unit(None)])) == {}
    assert counted((3, 1), (None, 2), (4, 3)).count == 1


def test_units_are_counted_apart():
    found = restarts_in(
        batches([unit(1, 1), unit(9, 1, "b.service")], [unit(2, 2), unit(9, 1, "b.service")])
    )
    assert {name: restart.count for name, restart in found.items()} == {
        "a.service": 1,
        "b.service": 0,
    }


READINGS = st.lists(
    st.tuples(st.none() | st.integers(0, 1000), st.none() | st.integers(0, 5)), max_size=12
)


@given(READINGS)
def test_the_count_is_never_negative_and_never_more_than_the_rises(readings):
    found = restarts_in(batches(*[[unit(*reading)] for reading in readings])).get("a.service")
    known = [restarts for restarts, _ in readings if restarts is not None]
    if not known:
        assert found is None
        return
    assert found is not None
    rises = sum(max(0, b - a) for a, b in itertools.pairwise(known))
    assert 0 <= found.count <= rises
    assert found.since_boot == known[-1]
    assert found.rebased == any(b < a for a, b in itertools.pairwise(known))


@given(READINGS, st.integers(0, 12))
def test_the_count_only_grows_as_more_is_read(readings, cut):
    whole = batches(*[[unit(*reading)] for reading in readings])
    nothing = RestartCount(0, 0, False, 0.0)
    earlier = restarts_in(whole[:cut]).get("a.service", nothing)
    later = restarts_in(whole).get("a.service", nothing)
    assert earlier.count <= later.count
    assert earlier.rebased <= later.rebased


def test_whatever_counts_restarts_reads_systemd_and_the_journal():
    for kinds in (
        {kind for source in wanted_sources() for kind in source.rows},
        {kind for source in all_sources() if source.id in verify._SOURCES for kind in source.rows},
    ):
        assert {Unit, RestartMark} <= kinds


def container(restarts: int | None, started_s: float | None = None, uid: str = "u") -> Container:
    return Container(f"{restarts}", "prod", "api", "app", uid, restarts, started_s)


def of_containers(*readings: Sequence[Container], start: float = 0.0) -> dict[str, object]:
    read = [Batch(float(at), at, tuple(rows)) for at, rows in enumerate(readings, int(start))]
    return dict(restarts.containers(Window({Container: read})))


def test_a_containers_restarts_are_steps_of_its_log_numbers_at_the_time_of_its_start():
    # At the first reading the dead one before it still has its log.
    rows = [container(56, -300.0), container(57, -10.0)]
    found = of_containers(rows, [], [container(58, 1.5)], [container(60, 2.9)])
    known = found["prod", "api", "app"]
    assert (known.restarts.recent, known.restarts.total, known.last_s) == (3, 60, 2.9)
    assert known.restarts.period_s(5) == 11.5


def test_without_start_times_the_first_reading_is_the_baseline():
    found = of_containers([container(56), container(57)], [], [container(58)])
    known = found["prod", "api", "app"].restarts
    assert (known.recent, known.total) == (1, 58)
    assert of_containers([container(57)])["prod", "api", "app"].restarts.recent == 0


def test_what_was_not_read_is_no_restart():
    assert of_containers([container(None)], [container(None)]) == {}


def test_a_pod_that_was_made_anew_counts_from_its_own_start():
    found = of_containers([container(57, -5.0)], [container(0, 0.5, "v")], [container(1, 1.5, "v")])
    known = found["prod", "api", "app"].restarts
    assert (known.recent, known.total) == (1, 1)
