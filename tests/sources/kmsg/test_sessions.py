"""Login sessions that were refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.sources.kmsg.sessions import Sessions, parse
from tests.support.fixtures import kernel_text
from tests.support.trees import plant

REFUSED = {
    "MESSAGE": "pam_systemd(sshd:session): Failed to create session: Maximum number of sessions "
    "(8192) reached, refusing further sessions.",
    "SYSLOG_IDENTIFIER": "sshd",
    "_UID": "0",
    "__REALTIME_TIMESTAMP": "1700000000500000",
}


def test_a_refused_session_has_the_limit_and_the_program():
    (event,) = parse(json.dumps(REFUSED))
    assert (event.family, event.speaker, event.fields) == ("sessions", "sshd", {"limit": 8192})
    assert event.wall_s == 1_700_000_000.5


def test_an_ordinary_user_cannot_forge_it():
    assert list(parse(json.dumps({**REFUSED, "_UID": "1000"}))) == []


@pytest.mark.parametrize("kernel", ["5.10", "6.1"])
def test_a_quiet_journal_has_none(kernel: str):
    assert list(parse(kernel_text("kmsg.journal", kernel))) == []


def test_two_snapshots_give_each_once(tmp_path: Path):
    host = plant(tmp_path, {"/commands/journal_json": json.dumps(REFUSED) + "\n"})
    reading = Sessions(host)
    assert len(list(reading.collect())) == 1
    assert list(reading.collect()) == []


def test_no_journal_is_absent(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        Sessions(plant(tmp_path, {"/etc/os-release": ""})).collect()


@given(st.text(max_size=100), st.integers(0, 200))
def test_junk_is_events_or_nothing_and_never_a_crash(junk: str, place: int):
    good = json.dumps(REFUSED)
    for line in (junk, good[:place] + junk + good[place:], good[:place] + junk):
        for event in parse(f"Maximum number of sessions{junk}\n{line}"):
            assert event.family == "sessions"
