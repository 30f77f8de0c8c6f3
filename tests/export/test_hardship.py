"""A thousand scrapes while a core is held, the disk is full and the recorder is killed."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sexton.export import families as f
from sexton.export.exporter import once
from sexton.export.pace import Pace
from tests.export.test_server import Served, serving
from tests.support.cli import ENVIRONMENT, SEXTON
from tests.web.serving import SCRAPE_S

pytestmark = [pytest.mark.root, pytest.mark.whole]

#: In each of four phases, besides those that wait for a phase to begin.
SCRAPES, PATIENCE_S = 250, 300.0
#: What is about the recorder and the exporter: it stays when readings are too old.
OWN = ("sexton_build", "sexton_exporter", "sexton_recorder_up", "sexton_recorder_last",
       "sexton_recorder_problem")  # fmt: skip
HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("held", flush=True)
while True:
    pass
"""


class Scraper:
    """Scrapes as Prometheus does, and checks what every page must hold."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._counters: dict[tuple[str, str], float] = {}
        self._last_reading = 0.0
        #: All of the last page, by name and labels.
        self.page: dict[tuple[str, str], float] = {}

    def __call__(self) -> dict[str, float]:
        """One scrape: what has no labels, by its name."""
        began = time.time()
        where = self._served.host, self._served.port
        with contextlib.closing(http.client.HTTPConnection(*where, timeout=SCRAPE_S)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            content = answer.read().decode()
            assert answer.status == 200
        found = {}
        for family in text_string_to_metric_families(content):
            for sample in family.samples:
                key = sample.name, str(sorted(sample.labels.items()))
                assert key not in found, key
                found[key] = sample.value
                if family.type in ("counter", "histogram"):
                    assert sample.value >= self._counters.get(key, 0.0), key
                    self._counters[key] = sample.value
        assert len(found) <= 400
        self.page = found
        plain = {name: value for (name, labels), value in found.items() if labels == "[]"}
        self._check_age(plain, {name for name, _ in found}, began)
        return plain

    def _check_age(self, plain: dict[str, float], names: set[str], began: float) -> None:
        last = plain.get("sexton_recorder_last_reading_timestamp_seconds")
        if last is None:
            assert all(name.startswith(OWN) for name in names), names
            return
        assert self._last_reading <= last <= time.time() + 1
        self._last_reading = last
        if not all(name.startswith(OWN) for name in names):
            assert began - last <= Pace().stale_s + 1
        if plain["sexton_recorder_up"]:
            assert began - last <= Pace().fresh_s + 1

    def until(self, ready: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        end = time.monotonic() + PATIENCE_S
        while not ready(found := self()):
            assert time.monotonic() < end, (found, self._served.said())
            time.sleep(0.05)
        return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "sexton-test", place], check=True)
    try:
        yield place
    finally:
        # Lazily: children of a killed recorder may take a moment to end.
        subprocess.run(["umount", "--lazy", place], check=True)


@contextlib.contextmanager
def recorder(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [*SEXTON, "record", directory, "--no-ring", "--no-probe"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def held(core: int) -> Iterator[None]:
    """A realtime task takes all it gets of a core."""
    command = [sys.executable, "-c", HOG, str(core)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n", "no realtime in this cgroup"
            assert os.sched_getscheduler(process.pid) == os.SCHED_FIFO
            yield
            assert process.poll() is None
        finally:
            process.kill()


def pin(pid: int, cores: set[int]) -> None:
    """A process, its threads and its children."""
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), cores)
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
            pin(int(child), cores)


def is_up(found: dict[str, float]) -> bool:
    return found.get("sexton_recorder_up") == 1 and "sexton_verdict" in found


def test_no_wrong_value_and_no_hang(small_disk, tmp_path):
    directory = small_disk / "recording"
    with recorder(directory) as recording:
        end = time.monotonic() + PATIENCE_S
        while not (directory / "status.json").exists():
            assert time.monotonic() < end
            time.sleep(0.1)
        exporting = "export", "--from", directory, "--listen", "127.0.0.1:0"
        with serving(tmp_path, *exporting) as served:
            scrape = Scraper(served)
            found = scrape.until(is_up)
            assert found["sexton_recorder_problem"] == 0
            for _ in range(SCRAPES):
                assert is_up(scrape())
            scrape.until(lambda _: says_what_is_recorded(scrape.page, directory))

            cores = os.sched_getaffinity(0)
            core = max(cores)
            pin(served.process.pid, {core})
            pin(recording.pid, cores - {core})
            with held(core):
                for _ in range(SCRAPES):
                    found = scrape()
                    assert found.get("sexton_recorder_problem", 0) == 0  # it has a core of its own
                    assert found["sexton_recorder_up"] == 0 or "sexton_memcgs_dying" in found
            pin(served.process.pid, cores)
            pin(recording.pid, cores)
            scrape.until(is_up)
            scrape.until(lambda _: says_what_is_recorded(scrape.page, directory))

            fill(small_disk / "fill")
            scrape.until(lambda found: found.get("sexton_recorder_problem") == 1)
            scrape.until(lambda found: "sexton_verdict" not in found)
            for _ in range(SCRAPES):
                found = scrape()
                assert found["sexton_recorder_problem"] == 1
                assert found["sexton_recorder_up"] == 0
                assert "sexton_verdict" not in found
            (small_disk / "fill").unlink()
            # Its status follows its readings by some seconds.
            scrape.until(lambda found: is_up(found) and found["sexton_recorder_problem"] == 0)
            scrape.until(lambda _: says_what_is_recorded(scrape.page, directory))

            os.kill(recording.pid, signal.SIGKILL)
            recording.wait()
            scrape.until(lambda found: found["sexton_recorder_up"] == 0)
            scrape.until(lambda found: "sexton_verdict" not in found)
            for _ in range(SCRAPES):
                found = scrape()
                assert found["sexton_recorder_up"] == 0
                assert "sexton_verdict" not in found
                assert "sexton_recorder_problem" not in found


def says_what_is_recorded(page: Mapping[tuple[str, str], float], directory: Path) -> bool:
    """Whether dying cgroups and restarts are those of the recording now: they may have changed
    since the last refresh."""
    recorded = once(directory)
    expected = {("sexton_memcgs_dying", "[]"): recorded.value(f.DYING)}
    for (unit,), value in recorded.of(f.UNIT_RESTARTS):
        expected["sexton_unit_restarts_total", str([("unit", unit)])] = value
    return all(page.get(key) == value for key, value in expected.items())


def fill(path: Path) -> None:
    """Take all the room there is left."""
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
