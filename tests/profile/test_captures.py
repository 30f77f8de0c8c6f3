"""Any capture as one timeline: only pieces that overlap a range are read, and few are kept."""

from __future__ import annotations

import gc
import gzip
import re
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from sexton.errors import CommandError, SextonError, SourceMalformed, StoreError
from sexton.model.profile import Clock, Event, Heat, Profile
from sexton.profile import files, recorded
from sexton.profile.captures import Opened, open_profile
from sexton.profile.heat import heat_of
from sexton.profile.select import ALL, Selection
from sexton.profile.symbols import SymbolOptions
from tests.profile.naive import by_path, paths_of
from tests.support.profiles import SECOND, Sample, profile_of

EVERY = ALL._replace(idle=True)
OPTIONS = SymbolOptions(cache="")


class Held:
    """A piece whose samples are in memory."""

    def __init__(self, samples: list[Sample], wall_minus_ns: int | None = None) -> None:
        self._profile = profile_of(samples, clock=Clock("monotonic", wall_minus_ns))
        self.clock = self._profile.facts.clock
        self.start_ns, self.end_ns = self._profile.span_ns or (0, 0)
        self.events: tuple[Event, ...] = (Event("cpu-clock", 97),)
        self.asked = 0

    @property
    def samples(self) -> int:
        return len(self._profile)

    def heat(self) -> Heat:
        return heat_of(self._profile)

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:
        self.asked += 1
        return self._profile


class Damaged(Held):
    def heat(self) -> Heat:
        raise StoreError("heat of 7: damaged")

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:
        raise StoreError("stacks of 7: damaged")


def second_of(second: int, name: str = "main") -> list[Sample]:
    return [Sample(second * SECOND + at * SECOND // 4, stack=(name, "work")) for at in range(4)]


def test_pieces_are_one_timeline_in_the_order_of_time():
    late, early = Held(second_of(8, "late")), Held(second_of(3, "early"))
    opened = Opened([late, early])
    assert opened.pieces == [early, late]
    assert opened.span_ns == (3 * SECOND, 8 * SECOND + 3 * SECOND // 4)
    assert opened.samples == 8
    assert opened.heat().second.tolist() == [3, 8]
    assert opened.heat(4 * SECOND, None).second.tolist() == [8]
    assert paths_of(opened.flame(ALL)) == by_path(second_of(3, "early") + second_of(8, "late"))
    assert (opened.hertz, [event.name for event in opened.events]) == (97, ["cpu-clock"])


def test_only_pieces_that_overlap_the_range_are_decoded():
    pieces = [Held(second_of(at)) for at in range(5)]
    opened = Opened(pieces)
    flame = opened.flame(Selection(2 * SECOND, 3 * SECOND + 1))
    assert flame.samples == 5
    assert [piece.asked for piece in pieces] == [0, 0, 1, 1, 0]


def test_a_second_shared_by_two_pieces_is_added_up():
    halves = [Sample(at * SECOND // 10, stack=("main",)) for at in range(10)]
    opened = Opened([Held(halves[:6]), Held(halves[6:])])
    assert opened.heat().samples.tolist() == [10]
    assert len(list(opened.heats())) == 2


def test_wall_time_is_that_of_the_piece_which_holds_the_moment():
    opened = Opened([Held(second_of(10), 1000 * SECOND), Held(second_of(20), 1003 * SECOND)])
    assert opened.wall_s(10 * SECOND) == 1010
    assert opened.wall_s(15 * SECOND) == 1015
    assert opened.wall_s(20 * SECOND) == 1023
    assert opened.wall_s(0) == 1000
    assert opened.time_ns(1010.5) == 10 * SECOND + SECOND // 2
    assert opened.time_ns(1023.25) == 20 * SECOND + SECOND // 4
    assert opened.time_ns(5000.0) == 3997 * SECOND
    assert Opened([Held(second_of(10))]).time_ns(5.0) is None


def test_a_damaged_piece_is_left_out_and_named():
    opened = Opened([Held(second_of(1)), Damaged(second_of(2)), Held(second_of(3))])
    assert opened.flame(ALL).samples == 8
    assert opened.heat().second.tolist() == [1, 3]
    assert len(opened.pieces) == 2
    assert opened.facts.problems == ["skipped: stacks of 7: damaged"]
    with pytest.raises(StoreError, match="damaged"):
        Opened([Damaged(second_of(2))]).heat()


def text_of(samples: list[Sample]) -> str:
    """As ``perf script`` writes them."""
    said = []
    for sample in samples:
        whole, part = divmod(sample.time_ns, SECOND)
        said.append(
            f"{sample.comm} {sample.pid} [{sample.cpu:03d}] {whole}.{part:09d}: 1 cpu-clock: "
        )
        said += [f"\t    7f{at:02d} {name}+0x1 (/bin/app)" for at, name in enumerate(sample.stack)][
            ::-1
        ]
        said.append("")
    return "\n".join(said) + "\n"


def written(path: Path, samples: list[Sample]) -> Path:
    path.write_text(text_of(samples))
    return path


def test_perf_script_text_plain_and_gzipped_is_opened_by_content(tmp_path):
    samples = [*second_of(3), Sample(5 * SECOND, 1, ("main",), comm="a b", pid=7)]
    plain = written(tmp_path / "whatever.bin", samples)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        opened = open_profile([path], OPTIONS)
        assert paths_of(opened.flame(EVERY)) == by_path(samples)
        assert opened.facts.path == str(path)
        assert opened.span_ns == (3 * SECOND, 5 * SECOND)


def test_a_range_of_folded_stacks_is_refused_because_they_have_no_times(tmp_path):
    path = tmp_path / "out.folded"
    path.write_text("app;main;work 7\nswapper;do_idle;default_idle 9\n")
    opened = open_profile([path], OPTIONS)
    assert opened.span_ns is None
    assert len(opened.heat()) == 0
    assert (opened.flame(ALL).samples, opened.flame(EVERY).samples) == (7, 16)
    with pytest.raises(CommandError, match="no timestamps"):
        opened.flame(Selection(start_ns=5))


def test_several_files_are_one_timeline_however_they_are_named(tmp_path):
    paths = [written(tmp_path / "a", second_of(8)), written(tmp_path / "b", second_of(2))]
    opened = open_profile(paths, OPTIONS)
    assert opened.span_ns == (2 * SECOND, 8 * SECOND + 3 * SECOND // 4)
    assert [profile.facts.path for profile in opened.profiles()] == [str(paths[1]), str(paths[0])]
    assert opened.facts.path == f"{paths[1]}, {paths[0]}"


def test_at_most_two_decoded_files_are_in_memory_and_each_is_decoded_once_in_a_pass(
    tmp_path, monkeypatch
):
    paths = [written(tmp_path / f"{at}", second_of(at)) for at in range(6)]
    alive: weakref.WeakSet[Profile] = weakref.WeakSet()
    most, reads = [], []
    plain = files.ProfileFile.read

    class Remembered(Profile):
        """One that can be referred to weakly."""

    def read(self, symbols):
        gc.collect()
        most.append(len(alive))
        reads.append(self.path)
        found = plain(self, symbols)
        kept = Remembered(*(getattr(found, name) for name in Profile.__slots__))
        alive.add(kept)
        return kept

    monkeypatch.setattr(files.ProfileFile, "read", read)
    opened = open_profile(paths, OPTIONS)
    assert opened.samples == 24
    assert len(reads) == 6
    opened.heat()
    assert len(reads) == 6
    assert opened.flame(ALL).samples == 24
    assert len(reads) <= 12
    assert max(most) <= 2


def message(paths: list[Path]) -> str:
    with pytest.raises(SextonError) as caught:
        open_profile(paths, OPTIONS).flame(ALL)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_an_unreadable_file_is_an_error_of_one_line(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "directory").mkdir()
    (tmp_path / "comments").write_text("# ========\n# captured on    : x\n# ========\n#\n")
    (tmp_path / "recording" / "segments").mkdir(parents=True)
    assert "No such file" in message([tmp_path / "absent"])
    assert message([tmp_path / "empty"]) == f"{tmp_path}/empty: empty file"
    assert "unknown format; expected perf.data, perf script text" in message([tmp_path / "noise"])
    assert "not a recording, and no perf.data in it" in message([tmp_path / "directory"])
    assert "no perf script samples found" in message([tmp_path / "comments"])
    assert "no stacks in this recording" in message([tmp_path / "recording"])
    assert "a recording cannot be combined with other files" in message(
        [tmp_path / "recording", tmp_path / "empty"]
    )
    assert "no capture given" in message([])


def test_a_file_of_a_set_that_is_no_capture_is_an_error_and_one_that_breaks_is_left_out(
    tmp_path, monkeypatch
):
    good, bad = written(tmp_path / "a", second_of(1)), written(tmp_path / "b", second_of(2))
    plain = files.ProfileFile.read

    def read(self, symbols):
        if self.path == str(bad):
            raise SourceMalformed(self.path, 0, "is cut off\x1b[2J")
        return plain(self, symbols)

    monkeypatch.setattr(files.ProfileFile, "read", read)
    opened = open_profile([good, bad], OPTIONS)
    assert opened.flame(ALL).samples == 4
    assert opened.facts.problems == [rf"skipped: {bad}: is cut off\x1b[2J"]


def test_missing_symbols_of_the_idle_task_are_reported():
    nameless = [Sample(at, stack=("k:[unknown]",), comm="swapper") for at in range(9)]
    problems = files.summary_of(profile_of([*nameless, *second_of(1)])).facts.problems
    assert problems[0].startswith("9 samples of the idle task have no kernel symbols")
    assert files.summary_of(profile_of(second_of(1))).facts.problems == []


READ = """
import pathlib
from sexton.profile.captures import open_profile
from sexton.profile.select import Selection
from sexton.profile.symbols import SymbolOptions
opened = open_profile([pathlib.Path("-")], SymbolOptions(cache=""))
print(opened.facts.path, opened.flame(Selection(idle=True)).samples, opened.span_ns)
"""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("piped", [False, True])
def test_standard_input_is_read_from_a_pipe_and_from_a_file(tmp_path, piped, packed):
    content = text_of(second_of(3)).encode()
    content = gzip.compress(content) if packed else content
    (tmp_path / "in").write_bytes(content)
    command = [sys.executable, "-c", READ]
    if piped:
        done = subprocess.run(command, input=content, capture_output=True, check=True)
    else:
        with (tmp_path / "in").open("rb") as stream:
            done = subprocess.run(command, stdin=stream, capture_output=True, check=True)
    assert done.stdout.decode() == f"standard input 4 ({3 * SECOND}, {3 * SECOND + 750_000_000})\n"


def test_a_recording_s_pieces_are_opened(tmp_path, monkeypatch):
    (tmp_path / "segments").mkdir()

    def pieces(path, facts):
        facts.path, facts.format = str(path), "recording"
        return [Held(second_of(1)), Held(second_of(2))]

    monkeypatch.setattr(recorded, "pieces_of_recording", pieces)
    opened = open_profile([tmp_path], OPTIONS)
    assert opened.facts.format == "recording"
    assert opened.flame(Selection(stack=re.compile("work"))).samples == 8


def test_facts_of_several_are_summed_up(tmp_path, monkeypatch):
    paths = [written(tmp_path / f"perf.data.2026111513300{at}00", second_of(at)) for at in range(3)]
    plain = files.ProfileFile.read

    def read(self, symbols):
        found = plain(self, symbols)
        found.facts.lost = 5
        return replace(found, facts=found.facts)

    monkeypatch.setattr(files.ProfileFile, "read", read)
    opened = open_profile(paths, OPTIONS)
    assert (opened.facts.lost, opened.facts.throttled) == (15, None)
    assert opened.facts.path == str(tmp_path / "perf.data")
