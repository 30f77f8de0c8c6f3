"""`systemctl show`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.model.rows.unit import Timer, Unit
from sexton.sources.systemd.show import locate, parse, slice_path, span_us
from tests.support.fixtures import kernel_text, kernels


def units(kernel: str) -> dict[str, Unit]:
    rows = parse(kernel_text("systemd.show", kernel))
    return {row.name: row for row in rows if isinstance(row, Unit)}


@pytest.mark.parametrize(
    ("kernel", "name", "restarts"),
    [
        ("6.18", "crash.service", 16),
        ("6.1", "demo-crash.service", 99),
        ("5.10", "demo-crash.service", 127),
    ],
)
def test_a_crash_loop_waits_without_a_cgroup_and_is_still_located(kernel, name, restarts):
    unit = units(kernel)[name]
    assert (unit.active_state, unit.sub_state) == ("activating", "auto-restart")
    assert (unit.restarts, unit.restart_policy, unit.restart_delay_us) == (
        restarts,
        "always",
        100_000,
    )
    assert (unit.cgroup, unit.cgroup_origin) == (f"/system.slice/{name}", "slice + name")
    assert unit.main_start_us
    assert (unit.result, unit.exit_status) == ("exit-code", 1)


def test_a_running_unit_has_the_cgroup_systemd_gives():
    unit = units("6.1")["demo-idle.service"]
    assert (unit.cgroup, unit.cgroup_origin) == ("/system.slice/demo-idle.service", "systemd")
    assert (unit.file_state, unit.restarts) == ("enabled", 0)


def test_what_the_capture_did_not_ask_for_is_unknown_and_not_zero():
    assert units("6.1")["demo-crash.service"].main_exit_us is None
    assert units("6.18")["crash.service"].main_exit_us


def test_a_nested_slice_spells_its_path():
    unit = units("6.1")["modprobe@configfs.service"]
    assert unit.cgroup == "/system.slice/system-modprobe.slice/modprobe@configfs.service"


def test_a_timer_knows_its_period_and_its_last_run():
    rows = {row.name: row for row in parse(kernel_text("systemd.show", "6.18"))}
    timer = rows["tick.timer"]
    assert timer == Timer("tick.timer", "tick.service", 1_766_656_339, 500_000)


def test_a_timer_without_details_still_names_its_unit():
    rows = {row.name: row for row in parse(kernel_text("systemd.show", "6.1"))}
    assert rows["fstrim.timer"] == Timer("fstrim.timer", "fstrim.service", None, None)


def test_a_unit_that_is_not_there_has_no_place():
    text = "Id=a.service\nLoadState=not-found\nSlice=system.slice\nControlGroup=\n"
    (unit,) = parse(text)
    assert isinstance(unit, Unit)
    assert (unit.cgroup, unit.cgroup_origin) == (None, "")


@pytest.mark.parametrize("line", ["NRestarts=-1", "NRestarts=x", "RestartUSec=soon", "NRestarts=²"])
def test_a_broken_value_is_named_by_its_line(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"Id=a.service\nDescription=x=y\n{line}\n"))
    assert caught.value.line == 3


def test_spans_are_read_as_systemd_writes_them():
    assert span_us("1y 2month 3w 4d") == 31_557_600_000_000 + 2 * 2_629_800_000_000 + (
        25 * 86_400_000_000
    )
    assert span_us("29min 26.656339s") == 1_766_656_339
    assert span_us("5us") == 5
    with pytest.raises(ValueError, match="1 parsec"):
        span_us("1 parsec")


@pytest.mark.parametrize("path", kernels("systemd.show"), ids=lambda path: path.stem)
@given(data=st.data())
def test_junk_is_rows_or_malformed_and_never_a_crash(path, data):
    good = path.read_bytes()
    start = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 80))
    text = good[:start] + data.draw(st.binary(max_size=40)) + good[start + cut :]
    with contextlib.suppress(SourceMalformed):
        list(parse(text.decode("utf-8", "surrogateescape")))


@given(st.text(max_size=30))
def test_a_span_is_a_number_infinity_or_refused(text):
    try:
        value = span_us(text)
    except ValueError:
        return
    assert value is None or value >= 0


def test_a_unit_in_the_root_slice_is_at_the_top():
    assert slice_path("-.slice") == ""
    assert locate("", "-.slice", "a.service") == ("/a.service", "slice + name")


def test_without_a_cgroup_and_a_slice_the_path_is_unknown():
    assert locate("", None, "a.service") == (None, "")
