"""The pattern catalogue: every entry knows its line, refuses its near miss, and fears no line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.finding import Severity
from sexton.sources.kmsg import catalogue
from sexton.sources.kmsg.catalogue import MOST_CHARACTERS, Recogniser, patterns, recognise
from sexton.sources.kmsg.records import LogLine
from tests.support.fixtures import FIXTURES

FAMILIES = {
    "nic_reset nic_starved nic_watchdog nic_other soft_lockup hard_lockup rcu_stall hung_task oom",
    "workqueue_lockup",
    "conntrack slub sessions cgroup filesystem no_space block_error disk_timeout memory_error",
    "hardware_error thermal clock gpu",
}
PATTERNS = patterns()
decorator = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)


def line(message: str, facility: int | None = 0) -> LogLine:
    return LogLine(1_000_000, None, message, facility)


@decorator
def test_the_matching_line_gives_exactly_its_fields(pattern):
    assert pattern.read(pattern.examples["match"]) == pattern.examples["fields"]


@decorator
def test_the_near_miss_is_refused(pattern):
    assert pattern.read(pattern.examples["no_match"]) is None


@decorator
def test_no_other_entry_takes_the_line_first(pattern):
    known = recognise(pattern.examples["match"], pattern.origin)
    assert known is not None
    assert known.pattern.id == pattern.id


@decorator
def test_an_entry_is_complete(pattern):
    assert pattern.family in " ".join(FAMILIES).split()
    assert pattern.severity in Severity
    assert pattern.hint in pattern.examples["match"]
    assert len(pattern.note) > 10


def test_ids_are_unique():
    assert len({pattern.id for pattern in PATTERNS}) == len(PATTERNS)


def test_a_line_without_any_hint_needs_no_entry(monkeypatch):
    monkeypatch.setattr(catalogue, "_entries", lambda content: pytest.fail("entries were made"))
    assert recognise("Linux version 6.1.0-18-cloud-amd64 (debian-kernel@lists.debian.org)") is None
    assert recognise("IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready") is None


def test_hints_are_found_without_reading_the_entries():
    found = [set(file.hints) for file in catalogue._files()]
    assert found == [{entry.hint for entry in file.entries()} for file in catalogue._files()]


def test_every_family_has_an_entry():
    assert {pattern.family for pattern in PATTERNS} == set(" ".join(FAMILIES).split())


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("NMI watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [kworker/0:1:88]", {"cpu": 0}),
        ("INFO: rcu_sched self-detected stall on CPU { 3}  (t=2100 jiffies)", {"cpu": 3}),
        ("watchdog: CPU28: Watchdog detected hard LOCKUP on cpu 28", {"cpu": 28}),
        ("NETDEV WATCHDOG: eth0 (ena): transmit queue 2 timed out 5340 ms", {"queue": 2}),
        ("ena 0000:00:05.0 eth0 (unregistering): Trigger reset is on", {"nic": "eth0"}),
        ("ena 0000:00:05.0: Device reset completed, status: 0", {"phase": "done"}),
        ("ena 0000:00:05.0 eth0: Potential MSIX issue on Rx side Queue = 9.", {"queue": 9}),
        ("nf_conntrack: table full in netns 4026531840, dropping packet", {"netns": 4026531840}),
        ("SLUB: Unable to allocate memory on node -1 (gfp=0x8020)", {"node": -1}),
        ("i40e 0000:5e:00.0 eno1: tx_timeout recovery level 2, hung_queue 5", {"queue": 5}),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
            "global_oom,task_memcg=/a,b,task=x,pid=1,task=y,pid=22,uid=0",
            {"pid": 22, "uid": 0},
        ),
    ],
)
def test_variants_of_the_same_format(message, fields):
    known = recognise(message)
    assert known is not None
    assert {name: known.fields.get(name) for name in fields} == fields


WORDING = [
    text.split("\t", 1)
    for text in (FIXTURES / "kmsg/wording.txt").read_text(encoding="utf-8").splitlines()
    if text and not text.startswith("#")
]


@pytest.mark.parametrize(("name", "message"), WORDING, ids=[text[:60] for _, text in WORDING])
def test_the_wording_of_the_kernels_sources(name, message):
    known = recognise(message)
    assert ("-" if known is None else known.pattern.id) == name


@pytest.mark.parametrize("pattern", ["oom-kill", "oom-killed-memcg", "hung-task", "soft-lockup"])
def test_a_process_with_a_newline_in_its_name_is_recognised(pattern):
    # The kernel escapes it in /dev/kmsg; the reader of records has undone that.
    entry = next(entry for entry in PATTERNS if entry.id == pattern)
    plain = entry.examples["match"]
    comm = entry.examples["fields"]["comm"]
    known = recognise(plain.replace(comm, "a\nb"))
    assert known is not None
    assert (known.pattern.id, known.fields["comm"]) == (pattern, "a\nb")


def test_a_process_called_like_a_number_stays_text():
    known = recognise("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [12:2914]")
    assert known is not None
    assert known.fields["comm"] == "12"


PART_1 = (
    "ena 0000:00:05.0 eth0: [1/2] Lost TX completions are above threshold (140 > 128), "
    "completion timeout: 5000 (msec), 9 msecs since interrupt, 9 msecs since napi, qid: 5"
)


def pair(second: str) -> dict[str, object]:
    recogniser = Recogniser()
    assert recogniser.event(line(PART_1)) is not None
    event = recogniser.event(line(f"ena 0000:00:05.0 eth0: {second}"))
    assert event is not None
    return {name: event.fields[name] for name in ("queue", "cpu")}


def test_the_swapped_pair_of_2_17_is_swapped_back():
    assert pair("[2/2] qid: 17, napi CPU: 5") == {"queue": 5, "cpu": 17}


def test_a_driver_that_stopped_swapping_is_believed():
    assert pair("[2/2] qid: 5, napi CPU: 17") == {"queue": 5, "cpu": 17}


def test_the_first_half_of_another_device_settles_nothing():
    recogniser = Recogniser()
    recogniser.event(line(PART_1.replace("0000:00:05.0", "0000:00:06.0")))
    event = recogniser.event(line("ena 0000:00:05.0 eth0: [2/2] qid: 5, napi CPU: 17"))
    assert event is not None
    assert event.fields["queue"] == 17


def test_the_end_of_what_never_began_is_no_event():
    recogniser = Recogniser()
    mounted = "EXT4-fs ({}): mounted filesystem with ordered data mode. Quota mode: none."
    said = ["EXT4-fs (sda1): Remounting filesystem read-only", mounted.format("sda1")]
    assert recogniser.event(line(mounted.format("sda1"))) is None
    assert [recogniser.event(line(message)) is not None for message in said] == [True, True]
    assert recogniser.event(line(mounted.format("sdb1"))) is None


def test_first_halves_do_not_pile_up():
    recogniser = Recogniser()
    for number in range(1000):
        recogniser.event(line(PART_1.replace("05.0", f"{number:04x}")))
    assert len(recogniser._halves) < 100


def test_a_line_a_process_wrote_is_not_believed():
    forged = "ena 0000:20:03.0 eth0: Trigger reset is on"
    assert Recogniser().event(line(forged, facility=1)) is None
    assert Recogniser(trust_user_records=True).event(line(forged, facility=1)) is not None


def test_a_process_name_cannot_pose_as_a_driver():
    evil = "Killed process 1 (x\nena 0000:20:03.0 eth0: Trigger reset is on) total-vm:1kB"
    known = recognise(evil)
    assert known is None or known.pattern.family == "oom"


@given(st.text(max_size=300))
def test_junk_is_unknown_and_never_a_crash(message):
    recognise(message)


@given(st.data())
def test_a_damaged_line_is_known_or_not_and_never_a_crash(data):
    pattern = data.draw(st.sampled_from(PATTERNS))
    good = pattern.examples["match"]
    place = data.draw(st.integers(0, len(good)))
    recognise(good[:place] + data.draw(st.text(max_size=20)) + good[place:], pattern.origin)


EVIL = [
    "oom-kill:constraint=A," + ",oom_memcg=a,task_memcg=,task=b,pid=1" * 2000,
    "oom-kill:constraint=A," + ",oom_memcg=" * 5000,
    "ena " + "0" * 50_000,
    "ena 0000:00:05.0 " * 5000 + ": Trigger reset is on",
    "rcu: " + "\t" * 20_000 + "softirq=",
    "INFO: task " + ":1" * 20_000 + " blocked for more than x",
    "Out of memory: Killed process 1 (" + ")" * 50_000,
    "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { " + "1-... " * 9000,
]


@pytest.mark.parametrize("evil", EVIL, ids=lambda text: text[:20])
def test_a_long_evil_line_ends_and_is_no_known_one(evil):
    """Every regex meets it, with its own hint in front and without: a runaway one never ends."""
    assert recognise(evil) is None
    for pattern in PATTERNS:
        assert pattern.read(pattern.hint + evil) is None
        assert pattern.regex.match(evil[:MOST_CHARACTERS]) is None


@decorator
def test_every_repetition_is_bounded(pattern):
    """The one exception cannot back up into what it has taken (an atomic group)."""
    text = pattern.regex.pattern
    if pattern.id == "oom-kill":
        text = text.replace(r"[^\n]*?", "")
    assert not re.search(r"(?<!\\)[*+]|(?<!\\)\{\d*,\}", text)


def test_what_lies_past_the_bound_is_not_read():
    far = "ena 0000:20:03.0 eth0: Device reset completed successfully, Driver info: "
    assert recognise(far + "x" * 60) is not None
    assert recognise(" " * MOST_CHARACTERS + far) is None
