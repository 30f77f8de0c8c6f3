"""The exporter beside a recording that grows, stops, belongs to another boot, or is damaged."""

from __future__ import annotations

import os
import signal
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sexton.explorer.tiles.processes import Gone
from sexton.export.exporter import Exporter, Pace
from tests.export.live import LiveRecording

SECONDS = tuple(float(age) for age in range(20, -1, -1))


@pytest.fixture
def live(tmp_path):
    made = LiveRecording(tmp_path / "recording")
    yield made
    made.end()


@pytest.fixture
def exporting():
    """Makes exporters, and ends their processes."""
    made = []

    def make(directory, pace=Pace()):  # noqa: B008 - immutable
        made.append(Exporter(directory, pace))
        return made[-1]

    yield make
    for exporter in made:
        exporter.close()


def scraped(exporter: Exporter) -> dict[str, float]:
    """Every series without labels by its name, the others by name and labels."""
    content, _ = exporter.scrape("", False)
    found = {}
    for family in text_string_to_metric_families(content.decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_a_fresh_recording_has_a_verdict_and_a_recorder(live, exporting):
    live.write(SECONDS)
    live.status(alarms=2, lost_rows=0, problem="", shed=[{"source": "perf.stacks", "how": "rest"}])
    exporter = exporting(live.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 1
    assert found["sexton_verdict"] == 3  # two tables alone cannot tell
    assert found["sexton_memcgs_dying"] == 7
    assert found["sexton_alarms_total"] == 2
    assert found["sexton_recorder_problem"] == 0
    assert found["sexton_recorder_shed{how=rest,source=perf.stacks}"] == 1
    assert found["sexton_source_up{source=procfs.stat}"] == 1
    assert found["sexton_source_up{source=kmsg.log}"] == 0
    assert not any("sysfs.gpus" in name for name in found)
    assert found["sexton_core_kernel_ratio_count"] == 40  # two cores, twenty steps
    assert found["sexton_core_kernel_ratio_bucket{le=0.25}"] == 0
    assert found["sexton_worst_core_kernel_ratio"] == pytest.approx(0.5, abs=0.02)


def test_each_step_of_a_core_is_counted_once(live, exporting):
    live.write((3.0, 2.0, 1.0))
    exporter = exporting(live.directory)
    exporter.refresh()
    exporter.refresh()
    assert scraped(exporter)["sexton_core_kernel_ratio_count"] == 4
    live.write((0.0,))
    exporter.refresh()
    assert scraped(exporter)["sexton_core_kernel_ratio_count"] == 6


def test_before_the_first_reading_there_is_no_state_at_all(live, exporting):
    exporter = exporting(live.directory)
    assert "sexton_recorder_up" not in scraped(exporter)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 0
    assert found["sexton_exporter_failures_total"] == 1
    assert "sexton_verdict" not in found


def test_a_recorder_that_was_killed_is_down_at_once(live, exporting):
    live.write(SECONDS)
    live.end()
    exporter = exporting(live.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 0
    assert found["sexton_memcgs_dying"] == 7  # the readings are still those of now


def test_old_values_are_left_out(live, exporting):
    live.write([100.0 + age for age in SECONDS])
    exporter = exporting(live.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 0
    assert found["sexton_recorder_last_reading_timestamp_seconds"] == pytest.approx(
        time.time() - 100, abs=5
    )
    assert not any(name.startswith(("sexton_verdict", "sexton_memcgs")) for name in found)


def test_values_grow_old_between_two_refreshes(live, exporting):
    live.write(SECONDS)
    exporter = exporting(live.directory, Pace(stale_s=0.5))
    exporter.refresh()
    until = time.monotonic() + 10
    while "sexton_memcgs_dying" in scraped(exporter):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert scraped(exporter)["sexton_recorder_up"] == 0


def test_another_boot_is_never_now(tmp_path, exporting):
    other = LiveRecording(tmp_path / "other", boot="0f8c2f5e-0000-4000-8000-000000000001")
    other.write(SECONDS)
    exporter = exporting(other.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 0
    assert "sexton_verdict" not in found
    other.end()


def test_the_verdict_waits_for_its_turn_or_an_alarm(live, exporting, monkeypatch):
    live.write(SECONDS)
    live.status(alarms=0)
    exporter = exporting(live.directory)
    asked = []
    ask = exporter._server.ask

    def asking(question, *rest):
        asked.append(question)
        return ask(question, *rest)

    monkeypatch.setattr(exporter._server, "ask", asking)
    exporter.refresh()
    exporter.refresh()
    assert asked == ["current", "judged", "current"]
    live.status(alarms=1)
    exporter.refresh()
    assert asked[3:] == ["current", "judged"]


@pytest.mark.parametrize(
    "status",
    [b"", b"{", b"[]", b'"x"', b"[" * 100_000, b'{"alarms": NaN, "lost_rows": -1, "shed": 5}',
     b'{"shed": [1, {}, {"source": {}, "how": []}], "problem": 7, "alarms": 1e400}'],
)  # fmt: skip
def test_a_status_of_anybody_is_only_half_believed(live, exporting, status):
    live.write(SECONDS)
    (live.directory / "status.json").write_bytes(status)
    exporter = exporting(live.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 1
    assert "sexton_alarms_total" not in found
    assert "sexton_recorder_problem" not in found


def test_a_damaged_recording_is_a_failure_and_no_wrong_value(live, exporting, capfd):
    live.write(SECONDS)
    exporter = exporting(live.directory)
    (place,) = (live.directory / "open").iterdir()
    for file in place.iterdir():
        file.write_bytes(b"\xff" * file.stat().st_size)
    exporter.refresh()
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_exporter_failures_total"] == 2
    assert "sexton_memcgs_dying" not in found
    assert capfd.readouterr().err.count("sexton: metrics:") == 1  # said once


def test_without_the_process_that_reads_it_gives_up(live, exporting):
    live.write(SECONDS)
    exporter = exporting(live.directory)
    os.kill(exporter._server.pid, signal.SIGKILL)
    with pytest.raises(Gone):
        exporter.refresh()


def test_nobody_scrapes_nothing_is_read(live, exporting):
    from threading import Thread

    live.write(SECONDS)
    exporter = exporting(live.directory, Pace(refresh_s=0.01, idle_s=0.2))
    thread = Thread(target=exporter.run)
    thread.start()
    try:
        until = time.monotonic() + 20
        while exporter._state is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.5)  # longer than idle_s: the last refresh has ended
        before = exporter._spent_s
        time.sleep(0.3)
        assert exporter._spent_s == before
        exporter.scrape("", False)
        while exporter._spent_s == before:
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        exporter.stop()
        thread.join()
