"""The exporter beside a recording that grows, stops, belongs to another boot, or is damaged."""

from __future__ import annotations

import os
import signal
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sexton.explorer.tiles.processes import Gone
from sexton.export import families as f
from sexton.export.exporter import Exporter, once
from sexton.export.pace import Pace
from sexton.model.rows.task import Process
from sexton.model.window import Batch
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
    assert found["sexton_exporter_failures_total"] == 0  # a recorder has just begun
    assert "sexton_verdict" not in found
    assert "sexton_recorder_last_reading_timestamp_seconds" not in found
    assert once(live.directory).value(f.RECORDER) == 0


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


@pytest.mark.parametrize(
    ("age_s", "problem", "expected"), [(0, "", 0), (0, "No space left", 1), (40, "", 1)]
)
def test_a_recorder_that_cannot_write_says_so_for_as_long_as_it_runs(
    live, exporting, age_s, problem, expected
):
    """On a full disk its status cannot be replaced either, and its readings grow old."""
    live.write([100.0 + age for age in SECONDS])
    live.status(at=time.time() - age_s, problem=problem)
    exporter = exporting(live.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_problem"] == expected
    assert found["sexton_recorder_up"] == 0
    assert "sexton_memcgs_dying" not in found
    assert once(live.directory).value(f.PROBLEM) == expected


def test_of_a_recorder_that_ended_nobody_knows_whether_it_could_write(live, exporting):
    live.write(SECONDS)
    live.status(problem="No space left on device")
    live.end()
    exporter = exporting(live.directory)
    exporter.refresh()
    assert "sexton_recorder_problem" not in scraped(exporter)


def test_a_recorder_is_down_once_its_last_reading_is_not_fresh(live, exporting):
    """Also between two refreshes, and while one of them takes long."""
    live.write([29.5 + age for age in SECONDS])
    exporter = exporting(live.directory)
    exporter.refresh()
    until = time.monotonic() + 30
    while scraped(exporter)["sexton_recorder_up"] == 1:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert scraped(exporter)["sexton_memcgs_dying"] == 7


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
    live.end()
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


def test_nobody_scrapes_nothing_is_read(live, exporting, monkeypatch):
    from threading import Thread

    live.write(SECONDS)
    exporter = exporting(live.directory, Pace(refresh_s=0.01, idle_s=0.2))
    asked = []
    ask = exporter._server.ask
    monkeypatch.setattr(
        exporter._server, "ask", lambda name, *rest: asked.append(name) or ask(name, *rest)
    )
    thread = Thread(target=exporter.run)
    thread.start()
    try:
        until = time.monotonic() + 20
        while exporter._state is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        before = -1
        while len(asked) != before:  # the last refresh has ended
            assert time.monotonic() < until
            before = len(asked)
            time.sleep(0.5)
        exporter.scrape("", False)
        while len(asked) == before:
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        exporter.stop()
        thread.join()


def test_after_a_pause_without_scrapes_nothing_is_said_that_is_not_known(live, exporting):
    live.write(SECONDS)
    exporter = exporting(live.directory, Pace(stale_s=0.2, idle_s=0.5))
    exporter.refresh()
    until = time.monotonic() + 10
    while time.monotonic() - exporter._scraped_s <= 0.5:
        assert time.monotonic() < until
        time.sleep(0.05)
    found = scraped(exporter)
    assert not any(name.startswith("sexton_recorder") for name in found)
    exporter.refresh()
    assert "sexton_recorder_up" in scraped(exporter)


def test_readings_of_the_boot_before_leave_no_trace_in_histograms(tmp_path, exporting):
    """Its clock was ahead, and what it saw is not about this boot."""
    directory = tmp_path / "recording"
    before = LiveRecording(directory, boot="0f8c2f5e-0000-4000-8000-000000000001")
    before.write([-1e6 + age for age in SECONDS])
    before.end()
    exporter = exporting(directory)
    exporter.refresh()
    now = LiveRecording(directory, sequence=2)
    now.write((3.0, 2.0, 1.0))
    exporter.refresh()
    found = scraped(exporter)
    now.end()
    assert found["sexton_core_kernel_ratio_count"] == 4
    assert found["sexton_recorder_up"] == 1


def test_readings_ahead_of_the_clock_are_not_of_now(live, exporting):
    live.write([-1000.0 + age for age in SECONDS])
    exporter = exporting(live.directory)
    exporter.refresh()
    found = scraped(exporter)
    assert found["sexton_recorder_up"] == 0
    assert "sexton_memcgs_dying" not in found


def test_readings_are_there_before_the_verdict(live, exporting, monkeypatch):
    live.write(SECONDS)
    exporter = exporting(live.directory)
    seen = []
    ask = exporter._server.ask

    def asking(question, *rest):
        seen.append((question, "sexton_memcgs_dying" in scraped(exporter)))
        return ask(question, *rest)

    monkeypatch.setattr(exporter._server, "ask", asking)
    exporter.refresh()
    assert seen == [("current", False), ("judged", True)]
    assert scraped(exporter)["sexton_core_kernel_ratio_count"] == 40  # counted once


def test_its_own_cpu_time_never_falls_between_two_pages(live, exporting):
    """A page of readings is made at one moment and handed out later."""
    from threading import Thread

    live.write(SECONDS)
    exporter = exporting(live.directory, Pace(stale_s=0.02, judge_s=0.0))
    seen, stop = [], []

    def scrape() -> None:
        while not stop:
            seen.append(scraped(exporter)["sexton_exporter_cpu_seconds_total"])

    thread = Thread(target=scrape)
    thread.start()
    for _ in range(20):
        live.write((0.0,))
        exporter.refresh()
    stop.append(True)
    thread.join()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_two_hundred_refreshes_leave_no_file_open(live, exporting):
    exporter = exporting(live.directory)

    def files() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), exporter._server.pid)]

    live.write(SECONDS)
    exporter.refresh()
    before = files()
    for turn in range(200):
        live.write((0.0,))
        if turn % 20 == 0:
            live.next_segment()
        exporter.refresh()
    assert [now - then for now, then in zip(files(), before, strict=True)] == [0, 0]


def test_a_fork_server_that_is_stopped_does_not_hold_up_the_end(live, exporting):
    live.write(SECONDS)
    exporter = exporting(live.directory)
    exporter.refresh()
    os.kill(exporter._server.pid, signal.SIGSTOP)
    began = time.monotonic()
    exporter.close()
    assert time.monotonic() - began < 10


def test_once_says_of_an_old_recording_only_since_when(live):
    live.write([100.0 + age for age in SECONDS])
    found = {name for name in once(live.directory)._values if name != "sexton_build_info"}
    assert found == {"sexton_recorder_up", "sexton_recorder_last_reading_timestamp_seconds"}
    live.write(SECONDS)
    found = once(live.directory)
    assert found.value(f.DYING) == 7
    assert found.value(f.RECORDER) == 1
    live.end()
    assert once(live.directory).value(f.RECORDER) == 0


def _judging(exporter: Exporter, monkeypatch, status: int, window_s: float) -> list[str]:
    """What is asked, with verdicts that are as given."""
    asked = []
    ask = exporter._server.ask

    def asking(question, *rest):
        asked.append(question)
        answer = ask(question, *rest)
        if question == "judged":
            answer.samples.put(f.VERDICT, (), status)
            answer.samples.put(f.VERDICT_WINDOW, (), window_s)
        return answer

    monkeypatch.setattr(exporter._server, "ask", asking)
    return asked


@pytest.mark.parametrize(
    ("verdict", "again"),
    [((0, 300.0), False), ((3, 299.0), False), ((1, 300.0), True), ((0, 20.0), True)],
    ids=["healthy", "cannot tell", "a problem", "hardly recorded"],
)
def test_a_verdict_without_a_problem_stands_until_an_alarm(
    live, exporting, monkeypatch, verdict, again
):
    """Judging costs most. What was recorded for a moment only is judged again soon, too."""
    live.write(SECONDS)
    live.status(alarms=0)
    exporter = exporting(live.directory, Pace(judge_s=0.0, calm_s=1000.0))
    asked = _judging(exporter, monkeypatch, *verdict)
    exporter.refresh()
    exporter.refresh()
    assert asked.count("judged") == 1 + again
    assert "sexton_verdict" in scraped(exporter)
    live.status(alarms=1)
    exporter.refresh()
    assert asked.count("judged") == 2 + again


def _hog(age_s: float) -> Batch[Process]:
    mono_s = time.monotonic() - age_s
    spent_ms = int(mono_s * 900)
    row = Process(7, 2, "kworker", "R", 0, 0, spent_ms, 0, 1, True)
    return Batch(mono_s, time.time() - age_s, (row,))


def test_a_core_in_the_kernel_has_its_task_named_though_tasks_are_not_read_each_time(
    live, exporting
):
    ages = (3.0, 2.0, 1.0, 0.0)
    live.write(ages, kernel=0.9)
    live.flush({Process: [_hog(age_s) for age_s in ages]})
    exporter = exporting(live.directory)
    exporter.refresh()
    assert scraped(exporter)["sexton_worst_core_info{core=0,task=kworker}"] == 1


def test_a_counter_of_the_verdict_that_fell_counts_only_what_is_new(live, exporting, monkeypatch):
    """Log lines leave the recording: then a verdict counts fewer resets than the one before. Each
    is published again with every refresh."""
    live.write(SECONDS)
    live.status(alarms=0)
    exporter = exporting(live.directory, Pace(calm_s=1000.0))
    verdicts, ask = iter((7, 2, 5)), exporter._server.ask

    def asking(question, *rest):
        answer = ask(question, *rest)
        if question == "judged":
            answer.samples.put(f.VERDICT_WINDOW, (), 300.0)
            answer.samples.put(f.NIC_RESETS, ("eth0",), next(verdicts))
        return answer

    monkeypatch.setattr(exporter._server, "ask", asking)
    seen = []
    for alarms in (0, 0, 1, 1, 1, 2, 2):
        live.status(alarms=alarms)
        exporter.refresh()
        seen.append(scraped(exporter)["sexton_nic_resets_total{nic=eth0}"])
    assert seen == [7, 7, 7, 7, 7, 10, 10]


def test_while_an_alarm_lasts_a_healthy_verdict_does_not_stand(live, exporting, monkeypatch):
    """At its beginning there may be too little to find."""
    live.write(SECONDS)
    live.status(alarms=1, alarm=True)
    exporter = exporting(live.directory, Pace(judge_s=0.0, calm_s=1000.0))
    asked = _judging(exporter, monkeypatch, 0, 300.0)
    exporter.refresh()
    exporter.refresh()
    assert asked.count("judged") == 2
    live.status(alarms=1, alarm=False)
    exporter.refresh()
    exporter.refresh()
    assert asked.count("judged") == 3
    assert "sexton_verdict" in scraped(exporter)
