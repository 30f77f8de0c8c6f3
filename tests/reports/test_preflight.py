"""`sexton.preflight/1`, and the same for a person; as root and as nobody."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.host.host import open_host
from sexton.record.preflight import (
    KernelUse,
    Parts,
    Planned,
    Preflight,
    Program,
    Right,
    Room,
    Wanted,
    preflight,
)
from sexton.reports.text.preflight import SCHEMA, preflight_json, preflight_text
from sexton.sources.registry import all_sources
from sexton.store.retention import Limits
from tests.support.cli import quiet, sexton
from tests.support.other_user import NOBODY, BoundInstall, bound_install

LIMITS = Limits(12 * 3600.0, 2 << 30)
#: A line for each source, and one screen of an ordinary terminal for the rest.
MOST_LINES = len(all_sources()) + 30
ROOM = Room("/var/lib", 8 << 30, 6e6, 0.0, LIMITS, 0.5)


class Homeless(BoundInstall):
    """The same for an interpreter that is in somebody's home."""

    __slots__ = ()

    @property
    def environment(self) -> dict[str, str]:
        # An interpreter in a home that only its owner may enter finds its library there no more.
        return {**super().environment, "LD_LIBRARY_PATH": f"{self.folder}/python/lib"}


@pytest.fixture
def place() -> Iterator[BoundInstall]:
    with bound_install() as made:
        yield Homeless(made.folder)


def made(**more: object) -> Preflight:
    facts = {
        "directory": "/var/lib/sexton",
        "problem": "",
        "reads": (),
        "kernel": (),
        "programs": (),
        "rights": (),
        "room": ROOM,
        "cores": 96,
        "written_share": 0.002,
        "cpu_percent": 6.0,
        "memory_bytes": 200 << 20,
        "ship": "",
        "not_read": ("arguments of processes",),
    }
    return Preflight(**{**facts, **more})


@pytest.mark.parametrize("width", [80, 88, 120])
def test_this_node_fits_on_one_screen_with_every_option(tmp_path, width):
    found = preflight(open_host(), Wanted(tmp_path, LIMITS, Parts(stacks=True)))
    lines = preflight_text(found, width).splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith("ready to record into ")
    for item in found.reads:
        assert sum(1 for line in lines if line.startswith(" ") and item.id in line) == 1, item.id
    for right in found.rights:
        state = "held" if right.held else "MISSING"
        listed = [line for line in lines if line.startswith(f" {right.name} ")]
        assert [state in line for line in listed] == ([True] if right.needed else [])
        assert right.needed or any("not needed" in line and right.name in line for line in lines)
    assert max(map(len, lines[1:])) <= width
    text = " ".join(" ".join(lines).split())
    for event in (name.rpartition(":")[2] for item in found.kernel for name in item.events):
        assert event in text
    for never in ("environments", "packets", "contents of files"):
        assert never in text


def test_the_json_has_all_of_it_and_is_json(tmp_path):
    found = preflight(open_host(), Wanted(tmp_path, LIMITS, Parts(stacks=True)))
    document = json.loads(json.dumps(preflight_json(found)))
    assert document["schema"] == SCHEMA == "sexton.preflight/1"
    assert document["could_start"] is True
    assert [item["id"] for item in document["reads"]] == [item.id for item in found.reads]
    assert document["estimate"]["core_share"] == pytest.approx(found.share, abs=1e-5)
    assert document["disk"]["size_bytes"] == LIMITS.most_bytes
    assert document["never_read"] == list(found.not_read)
    assert [capability["name"] for capability in document["capabilities"]] == [
        right.name for right in found.rights
    ]


def test_what_is_missing_says_what_would_help():
    denied = Planned("kmsg.log", "/dev/kmsg", 1.0, False, "denied", "no", "sudo it", None, 0)
    ring = KernelUse("event ring", ("sched:x",), 4096, "how", "tracefs is not mounted", "mount it")
    perf = Program("perf", "records", "perf is not installed", "apt-get install it")
    right = Right("CAP_SYSLOG", "the log", True, False, "no log then")
    text = preflight_text(made(reads=(denied,), kernel=(ring,), programs=(perf,), rights=(right,)))
    assert "kmsg.log              denied: no → sudo it" in text
    assert "unavailable: tracefs is not mounted → mount it" in text
    assert "unavailable: perf is not installed → apt-get install it" in text
    assert " CAP_SYSLOG        MISSING  no log then" in text
    assert "0 B of kernel buffers" in text  # a ring that cannot be armed takes none


def test_a_disk_that_is_too_small_is_reported():
    tight = ROOM._replace(free_bytes=10 << 20)
    assert "MORE THAN IS FREE" in preflight_text(made(room=tight))
    assert "MORE THAN IS FREE" not in preflight_text(made())
    assert "unknown free" in preflight_text(made(room=ROOM._replace(free_bytes=None)))


def test_size_bounds_what_age_would_take():
    assert ROOM.full == pytest.approx(12 * 6e6)
    assert ROOM._replace(stacks_an_hour=1e9).full == LIMITS.most_bytes


def test_hostile_names_reach_no_terminal():
    hostile = "/tmp/\x1b[2J\udcff"
    bad = Planned("x.y", hostile, 1.0, True, "ok", hostile, hostile, 0.1, 1)
    lost = bad._replace(id="x.z", read_s=None, state="absent")
    found = made(
        directory=hostile, problem=hostile, reads=(bad, lost), room=ROOM._replace(place=hostile)
    )
    text = preflight_text(found)
    assert "\x1b" not in text
    text.encode()
    json.dumps(preflight_json(found)).encode()
    assert "\\u001b" not in json.dumps(preflight_json(found))


def test_the_command_ends_with_2_where_a_recorder_could_not_start(tmp_path):
    could = sexton("record", tmp_path / "new", "--preflight", "--stacks")
    quiet(could, (0,))
    assert could.stdout.startswith(b"ready to record")
    (tmp_path / "file").write_bytes(b"")
    could_not = sexton("record", tmp_path / "file", "--preflight", "--json")
    quiet(could_not, (2,))
    document = json.loads(could_not.stdout)
    assert document["could_start"] is False
    assert document["problem"].endswith("file: not a directory")
    assert not (tmp_path / "new").exists()


def test_the_options_of_the_recorder_are_those_of_its_preflight(tmp_path):
    left_out = ("--no-probe", "--no-ring", "--no-trace", "--cpu", "3", "--retain", "1h")
    ended = sexton("record", tmp_path, "--preflight", "--json", "--size", "16M", *left_out)
    document = json.loads(ended.stdout)
    assert document["kernel"] == []
    assert document["estimate"]["core_percent_limit"] == 3.0
    assert (document["disk"]["retain_s"], document["disk"]["size_bytes"]) == (3600.0, 16 << 20)
    assert document["sends_to"] is None


def test_where_minutes_go_is_said_without_the_password(tmp_path):
    ship = "s3://key:secret@bucket/path"
    found = preflight(open_host(), Wanted(tmp_path, LIMITS, ship=ship))
    text = preflight_text(found)
    assert "SENDS: pinned minutes to s3://…@bucket/path, at each alarm" in text
    assert "secret" not in text + json.dumps(preflight_json(found))
    assert "SENDS: nothing" in preflight_text(made())


@pytest.mark.root
def test_a_directory_without_write_permission_is_one_line(place: BoundInstall, tmp_path: Path):
    ended = place.run("record", "/var/lib/sexton-test-nobody", "--preflight", via=NOBODY)
    assert (ended.returncode, ended.stderr) == (2, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == "cannot start: /var/lib: this user may not write there"
    assert len(lines) <= MOST_LINES
    assert not os.path.lexists("/var/lib/sexton-test-nobody")


@pytest.mark.root
def test_nobody_could_record_into_a_directory_of_its_own_with_less(place: BoundInstall):
    first = "install -d -o 65534 /run/sexton-test-own"
    # A mount of its own over /run, so that nothing stays.
    command = ("record", "/run/sexton-test-own/r", "--preflight", "--json")
    ended = place.run(*command, via=NOBODY, first=f"mount -t tmpfs t /run; {first}")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    states = {item["id"]: item["state"] for item in document["reads"]}
    assert states["procfs.stat"] == states["procfs.tasks"] == states["cgroupfs.census"] == "ok"
    assert states["nic.ethtool"] == "ok"  # open to everybody: no CAP_NET_ADMIN
    problems = {item["what"]: item["problem"] for item in document["kernel"]}
    assert problems["cgroup events"]
    assert problems["softirq probe"] == "needs CAP_BPF and CAP_PERFMON"
    rights = {capability["name"]: capability for capability in document["capabilities"]}
    assert rights["CAP_BPF"]["held"] is False
    assert rights["CAP_BPF"]["needed"] is True
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "0"
    assert (states["kmsg.log"] == "denied") is restricted
    assert rights["CAP_SYSLOG"]["needed"] is restricted


@pytest.mark.root
def test_a_read_only_file_system_is_named_even_to_root(place: BoundInstall):
    ended = place.run("record", "/run/sexton", "--preflight", first="mount -t tmpfs -o ro t /run")
    assert ended.returncode == 2
    assert ended.stdout.splitlines()[0] == "cannot start: /run: read-only file system"
