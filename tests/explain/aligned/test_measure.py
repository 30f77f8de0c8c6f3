from __future__ import annotations

import numpy as np

from sexton.explain.aligned.layout import Layout, Stratum
from sexton.explain.aligned.measure import BINS, measured
from sexton.model.aligned import F64, Signal

LAYOUT = Layout((Stratum(100.5, (60.5,)),), (5.0, 30.0), 60.0)


def one(mono: F64, value: F64, layout: Layout = LAYOUT) -> tuple[F64, F64]:
    (found,) = measured([Signal("core", "core 0", "time", "%", mono, value)], layout)
    return found.windows[:, 0], found.onset[0]


def test_a_window_is_the_mean_of_the_steps_that_ended_before_the_event():
    mono = np.arange(201.0)
    windows, onset = one(mono, mono.copy())
    assert windows[0].tolist() == [98.0, 58.0]  # 96 to 100, which were read at 96 to 100
    assert windows[1].tolist() == [85.5, 45.5]
    assert onset[0].tolist() == [41.0 + index for index in range(BINS)]


def test_what_came_of_the_event_is_not_in_the_window_before_it():
    mono = np.arange(201.0)
    value = np.where(mono > 100.5, 1e6, 1.0)
    windows, onset = one(mono, value)
    assert np.all(windows == 1.0)
    assert np.all(onset == 1.0)


def test_a_reading_every_ten_seconds_counts_where_most_of_its_step_is_before_the_event():
    slow = np.arange(0.0, 201, 10)
    early, late = np.zeros(21), np.zeros(21)
    early[11] = 60.0  # from 100 to 110
    windows, _ = one(slow, early)
    assert windows[0].tolist() == [0.0, 0.0]
    layout = Layout((Stratum(108.0, (60.0,)),), (5.0, 30.0), 60.0)
    windows, _ = one(slow, early, layout)
    assert windows[0].tolist() == [60.0, 0.0]
    assert windows[1].tolist() == [16.0, 0.0]  # 8 of 30 s
    late[12] = 60.0
    assert one(slow, late, layout)[0].max() == 0


def test_what_is_not_known_is_left_out_and_never_zero():
    mono = np.arange(201.0)
    value = np.full(201, 7.0)
    value[80:97] = np.nan
    windows, onset = one(mono, value)
    assert windows[0].tolist() == [7.0, 7.0]
    assert np.isnan(windows[1][0])
    assert windows[1][1] == 7.0
    assert np.isnan(onset[0]).sum() == 17


def test_a_gap_in_the_readings_is_unknown_time():
    mono = np.concatenate([np.arange(80.0), np.arange(150.0, 250.0)])
    value = np.ones(len(mono))
    value[80] = np.nan  # the step over the gap
    windows, _ = one(mono, value)
    assert np.isnan(windows[:, 0]).all()
    assert (windows[:, 1] == 1.0).all()


def test_a_signal_that_ends_before_the_event_or_has_one_reading_is_unknown():
    mono = np.arange(70.0)
    windows, _ = one(mono, np.ones(70))
    assert np.isnan(windows[:, 0]).all()
    assert np.isnan(one(np.array([100.0]), np.ones(1))[0]).all()
    assert np.isnan(one(np.array([]), np.array([]))[0]).all()


def test_signals_of_the_same_readings_are_measured_together_and_give_the_same():
    mono = np.arange(201.0)
    rng = np.random.default_rng(1)
    values = rng.normal(size=(300, 201))
    values[rng.random(values.shape) < 0.1] = np.nan
    together = list(measured((Signal("c", "", "", "", mono, value) for value in values), LAYOUT))
    assert [len(part.labels) for part in together] == [128, 128, 44]
    alone = np.stack([one(mono.copy(), value)[0] for value in values], axis=1)
    assert np.array_equal(np.concatenate([p.windows for p in together], axis=1), alone, True)
