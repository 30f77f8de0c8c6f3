"""A recording's stacks are one timeline, whether its recorder has decoded them yet or not."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from sexton.errors import StoreError
from sexton.profile.captures import open_profile
from sexton.profile.select import Selection
from sexton.record.decode_child import Decoder, Request
from sexton.store.recording import Recording
from tests.support.made_capture import CORES, HERTZ, SECONDS, START_NS, made_capture
from tests.support.recordings import BOOT, simple, write_sealed

START_S = START_NS / 1e9
SAMPLES = CORES * HERTZ * SECONDS
NAME = "perf.data.2026111513300407"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "r"
    write_sealed(made, [simple(START_S), simple(START_S + SECONDS)])
    capture, kallsyms = made_capture(tmp_path)
    raw = made / "stacks" / NAME
    capture.rename(raw)
    ended = Recording(made).segments[0].end[1]
    os.utime(raw, (ended, ended))
    (made / "stacks" / f"kallsyms-{BOOT}.gz").write_bytes(gzip.compress(kallsyms.read_bytes()))
    return made


def flame(place: Path) -> dict[tuple[str, ...], int]:
    found = open_profile([place]).flame(Selection())
    names = found.tree.frames.names
    return {
        tuple(names[number] for number in found.tree.path(node)): int(count)
        for node, count in enumerate(found.own.tolist())
        if count
    }


def test_before_and_after_it_is_decoded_the_same_is_seen(place):
    opened = open_profile([place])
    assert opened.samples == SAMPLES
    before, heat = flame(place), opened.heat()
    request = Request(NAME, BOOT, START_S, START_S + SECONDS, True)
    assert Decoder(place).answer(request).startswith("done")
    assert not (place / "stacks" / NAME).exists()
    again = open_profile([place])
    assert flame(place) == before
    assert again.heat().busy.tolist() == heat.busy.tolist()
    assert again.heat().cells.tolist() == heat.cells.tolist()
    assert len(again.pieces) == len(opened.pieces) == 1
    (start, end), (first, last) = opened.span_ns, again.span_ns
    assert (start // 1000 * 1000, end // 1000 * 1000) == (first, last)


def test_one_that_is_decoded_and_not_yet_deleted_counts_once(place):
    raw = (place / "stacks" / NAME).read_bytes()
    Decoder(place).answer(Request(NAME, BOOT, START_S, START_S + SECONDS, True))
    (place / "stacks" / NAME).write_bytes(raw)
    assert open_profile([place]).samples == SAMPLES


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(place):
    ended = Recording(place).segments[0].end[1]
    bad = place / "stacks" / "perf.data.2026111513300408"
    bad.write_bytes(b"\x00" * 500)
    os.utime(bad, (ended, ended))
    opened = open_profile([place])
    assert opened.samples == SAMPLES
    assert any("perf.data.2026111513300408" in problem for problem in opened.facts.problems)


def test_a_recording_without_stacks_is_refused_with_the_reason(tmp_path):
    write_sealed(tmp_path / "r", [simple(1.0)])
    with pytest.raises(StoreError, match="no stacks in this recording"):
        open_profile([tmp_path / "r"])
