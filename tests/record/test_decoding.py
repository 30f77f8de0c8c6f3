"""The companion that has files decoded: when, in which order, and what becomes of failures."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.record import decoding
from sexton.record.budget import waited_children_s
from sexton.record.companions import Place
from sexton.record.decoding import Decoding, Pace
from sexton.store.recording import Recording
from sexton.store.verify import verify
from tests.kernel.conftest import until
from tests.support.made_capture import SECONDS, START_NS, made_capture
from tests.support.recordings import BOOT, simple, write_open, write_sealed

START_S = START_NS / 1e9
QUICK = Pace(patience_s=1e9, close_s=60.0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "r"
    write_sealed(made, [simple(START_S), simple(START_S + SECONDS)])
    return made


def given(place: Path, tmp_path: Path, *stamps: int) -> list[Path]:
    """Closed perf files, the first the oldest, each closed after all that the segment holds."""
    capture, kallsyms = made_capture(tmp_path)
    (place / "stacks" / f"kallsyms-{BOOT}.gz").write_bytes(gzip.compress(kallsyms.read_bytes()))
    made = []
    for number, stamp in enumerate(stamps):
        path = place / "stacks" / f"perf.data.20261115133004{stamp:02}"
        path.write_bytes(capture.read_bytes())
        # Monotonic time as a file's mtime: the tests must not depend on this machine's uptime.
        ended = time.time() - time.monotonic() + START_S + 2 * SECONDS + number / 10
        os.utime(path, (ended, ended))
        made.append(path)
    return made


def companion(place: Path, pace: Pace = QUICK) -> Decoding:
    made = Decoding(Place(open_host(), place, "node", BOOT, 1 << 30), pace)
    made._segment_s = 10 * SECONDS  # a file covers all of the segment
    return made


def look(decoder: Decoding, alarm: bool = False) -> list[str]:
    """A beat at which it looks for files; what was told."""
    decoder._looked_s = decoder._not_before_s = float("-inf")
    return [row.detail for row in decoder.beat(time.monotonic(), alarm)]


def beats(decoder: Decoding, alarm: bool = False) -> list[str]:
    """Look, and beat until nothing is under way; what was told."""
    lines = look(decoder, alarm)

    def is_over() -> bool:
        lines.extend(row.detail for row in decoder.beat(time.monotonic(), alarm))
        return decoder._batch is None

    assert until(is_over, 60)
    return [*lines, *(row.detail for row in decoder.beat(time.monotonic(), alarm))]


def samples(place: Path) -> list[str]:
    return [annex.name for segment in Recording(place).segments for annex in segment.annexes]


def fake(monkeypatch: pytest.MonkeyPatch, code: str) -> list[list[Any]]:
    """Another child; what each was given."""
    asked: list[list[Any]] = []
    real = decoding.start

    def start(argv, manners):
        asked.append(json.loads(argv[-2]))
        return real([sys.executable, "-c", code, argv[-2]], manners)

    monkeypatch.setattr(decoding, "start", start)
    return asked


DONE = """
import json, os, sys
for name, *_ in json.loads(sys.argv[1]):
    print("done", name, 10, 5, file=sys.stderr)
"""


def test_closed_files_are_decoded_and_counted(place, tmp_path):
    raw = given(place, tmp_path, 1, 2)
    size = raw[0].stat().st_size
    decoder = companion(place)
    assert beats(decoder) == []
    assert not any(path.exists() for path in raw)
    assert samples(place) == ["profile-2026111513300401", "profile-2026111513300402"]
    told = decoder.status()
    assert (told["decoded"], told["failed"], told["waiting"]) == (2, 0, 0)
    assert told["raw_bytes"] == 2 * size > 10 * told["kept_bytes"] > 0
    assert verify(place).whole


def test_one_that_cannot_be_decoded_is_told_once_and_holds_up_no_other(place, tmp_path):
    bad, good = given(place, tmp_path, 1, 2)
    bad.write_bytes(b"PERFILE2 and then nothing that makes sense" * 100)
    decoder = companion(place)
    told = beats(decoder)
    assert len(told) == 1
    assert told[0].startswith(f"{bad.name} not decoded, kept as perf wrote it: ")
    assert bad.exists()
    assert not good.exists()
    assert beats(decoder) == []
    assert decoder.status()["failed"] == 1
    assert decoder.status()["waiting"] == 0


def test_no_child_is_started_for_a_file_whose_segment_is_still_open(place, tmp_path, monkeypatch):
    asked = fake(monkeypatch, DONE)
    given(place, tmp_path, 1)
    write_open(place, [simple(START_S)], 2)
    decoder = companion(place)
    decoder._segment_s = 1.0  # after all that is sealed
    beats(decoder)
    assert asked == []
    assert decoder.status()["waiting"] == 1
    shutil.rmtree(place / "open")
    beats(decoder)
    assert len(asked) == 1


def test_when_behind_the_newest_go_first_and_it_is_said(place, tmp_path, monkeypatch):
    asked = fake(monkeypatch, DONE)
    given(place, tmp_path, *range(10, 40))
    monkeypatch.setattr(decoding, "_MOST_FILES", 8)
    told = beats(companion(place))
    assert told == ["30 files waiting to be decoded, newest first"]
    names = [name for name, *_ in asked[0]]
    assert names == [f"perf.data.20261115133004{index}" for index in range(39, 31, -1)]


def test_a_segment_that_stays_open_is_waited_for_with_patience(place, tmp_path):
    for segment in (place / "segments").iterdir():
        os.rename(segment, tmp_path / "gone")
    write_open(place, [simple(START_S)], 2)
    (raw,) = given(place, tmp_path, 1)
    decoder = companion(place)
    beats(decoder)
    assert raw.exists()
    assert decoder.status()["failed"] == 0
    os.rename(tmp_path / "gone", place / "segments" / "00000001-20261115T133000Z")
    decoder._pace = QUICK._replace(patience_s=0.0)
    beats(decoder)
    assert decoder.status()["failed"] == 1 or not raw.exists()


def test_a_child_that_dies_over_a_file_is_tried_again_twice(place, tmp_path, monkeypatch):
    asked = fake(monkeypatch, "import os; os.kill(os.getpid(), 11)")
    (raw,) = given(place, tmp_path, 1)
    decoder = companion(place)
    told = []
    for _ in range(5):
        told += beats(decoder)
    assert len(asked) == 3
    assert told == [f"{raw.name} not decoded, kept as perf wrote it: ended with -11"]
    assert raw.exists()


def test_a_child_that_takes_too_long_or_too_much_memory_is_ended(place, tmp_path, monkeypatch):
    fake(monkeypatch, "import time; x = bytearray(80 << 20); time.sleep(600)")
    given(place, tmp_path, 1)
    decoder = companion(place)
    monkeypatch.setattr(decoding, "_MOST_BYTES", 50 << 20)
    look(decoder)
    child = decoder._batch.child
    assert until(lambda: decoder.beat(time.monotonic(), False) is not None and not decoder._batch)
    assert child.status() is not None
    assert "MB of memory; killed" in decoder.status()["last_error"]
    monkeypatch.setattr(decoding, "_MOST_BYTES", 1 << 40)
    look(decoder)
    decoder.beat(time.monotonic() + 700, False)
    assert decoder._batch is None
    assert "not finished after 600 s" in decoder.status()["last_error"]


def test_it_has_the_lowest_priority_and_its_cost_is_spread_and_counted_once(
    place, tmp_path, monkeypatch
):
    seen = tmp_path / "seen"  # a quick child must not be gone before it was looked at
    burn = f"while time.process_time() < 0.5 or not os.path.exists({str(seen)!r}): pass"
    fake(monkeypatch, f"import os, time\n{burn}\n{DONE}")
    given(place, tmp_path, 1)
    decoder = companion(place)
    decoder._segment_s = 100.0
    before_s = waited_children_s()
    look(decoder)
    assert os.getpriority(os.PRIO_PROCESS, decoder._batch.child.pid) == 19
    assert until(lambda: decoder.cost()[1] > 1 << 20)
    seen.touch()
    assert until(lambda: decoder.beat(time.monotonic(), False) is not None and not decoder._batch)
    assert decoder.status()["cpu_s"] >= 0.3
    assert decoder.cost()[0] < 0.1, "it is owed over the minutes that were decoded"
    assert waited_children_s() - before_s < 0.3, "and not counted as any child's"
    begin, _, cpu_s = decoder._owed[0]
    decoder._owed = [(begin - 200, begin - 100, cpu_s)]
    assert decoder.cost()[0] == pytest.approx(cpu_s)


def test_resting_ends_the_child_and_starts_none(place, tmp_path, monkeypatch):
    asked = fake(monkeypatch, "import time; time.sleep(600)")
    (raw,) = given(place, tmp_path, 1)
    decoder = companion(place)
    look(decoder)
    child = decoder._batch.child
    aside = place / "stacks" / ".new-profile-2026111513300401"
    aside.mkdir()
    decoder.rest()
    assert child.status() is not None
    assert not aside.exists()
    beats(decoder)
    assert len(asked) == 1
    decoder.wake()
    look(decoder)
    assert len(asked) == 2
    decoder._give_up()
    assert raw.exists()
    assert decoder.status()["failed"] == 0


def test_at_the_end_what_is_left_is_decoded_even_if_it_was_not_due(place, tmp_path):
    raw = given(place, tmp_path, 1, 2)
    write_open(place, [simple(START_S)], 2)
    decoder = companion(place)
    decoder._segment_s = 1.0
    beats(decoder)
    assert all(path.exists() for path in raw)
    decoder.close()
    assert not any(path.exists() for path in raw)
    assert len(samples(place)) == 2


def test_at_the_end_it_waits_no_longer_than_it_may(place, tmp_path, monkeypatch):
    fake(monkeypatch, "import time; time.sleep(600)")
    (raw,) = given(place, tmp_path, 1)
    decoder = companion(place, QUICK._replace(close_s=1.0))
    began = time.monotonic()
    decoder.close()
    assert time.monotonic() - began < 30
    assert raw.exists()
    assert decoder._batch is None


def test_where_no_child_can_be_started_it_goes_on(place, tmp_path, monkeypatch):
    def refuse(*_):
        raise SourceAbsent("python", "not installed")

    monkeypatch.setattr(decoding, "start", refuse)
    given(place, tmp_path, 1)
    decoder = companion(place)
    assert beats(decoder) == []
    assert "not installed" in decoder.status()["last_error"]
    decoder.close()
