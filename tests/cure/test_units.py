"""Stop, disable, mask and override under a real systemd, and the way back, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.cure import units
from sexton.host.host import open_host
from tests.cure.unit_cases import CASES, CRASH, ETC, SLEEP, VENDOR, WANTS, link, write
from tests.yard.yard import Yard, YardError, why_not

pytestmark = [pytest.mark.root, pytest.mark.systemd]

#: The cases of `make test`.
_USUAL = ("in etc, wanted", "by an alias", "with drop-ins of its own", "an instance of a template")
#: Whatever a unit's directories hold; of directories no times, which systemd itself goes by.
SNAPSHOT = r"""
for top in /etc/systemd /run/systemd/system; do
    find "$top" ! -type d -printf '%p|%y|%l|%m|%U|%G|%T@|%s\n'
    find "$top" -type d -printf '%p|%y|%m|%U|%G\n'
    find "$top" -type f -exec sha256sum {} +
done | sort
"""
PRELUDE = """
import json, sys
from sexton.cure import units
from sexton.cure.writer import DryWriter, LiveWriter
from sexton.errors import CommandError
from sexton.host.host import open_host
writer = LiveWriter(open_host())
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Yard]:
    """A yard whose /etc/systemd and vendor directory can be written: they are its own."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as up:
        for directory in ("/etc/systemd", VENDOR):
            up.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
        up.run("mkdir", ETC)
        up.run("systemctl", "daemon-reload")
        yield up


def script(yard: Yard, *lines: str) -> None:
    yard.run("sh", "-ec", "\n".join((*lines, "systemctl daemon-reload")))


def snapshot(yard: Yard) -> list[str]:
    return yard.run("sh", "-c", SNAPSHOT).splitlines()


def asked(yard: Yard, code: str) -> dict[str, object]:
    return json.loads(yard.python(PRELUDE + code))


def state(yard: Yard, name: str) -> dict[str, object]:
    return asked(yard, f"print(json.dumps(units.snapshot_unit({name!r}).as_json()))")


def restore(yard: Yard, before: dict[str, object]) -> dict[str, object]:
    code = f"""
before = units.snapshot_from_json(json.loads({json.dumps(before)!r}))
done = units.restore(before, writer)
print(json.dumps([done.made, done.removed, done.left, done.started]))
"""
    made, removed, left, started = json.loads(yard.python(PRELUDE + code))
    return {"made": made, "removed": removed, "left": left, "started": started}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in _USUAL else pytest.mark.whole) for case in CASES],
)
def test_disabled_and_masked_it_stays_down_and_comes_back_to_the_last_bit(place: Yard, case: str):
    name, lines, file_state, links = CASES[case]
    script(place, *lines)
    if file_state != "masked-runtime":
        place.run("systemctl", "start", "--", name)
    untouched = snapshot(place)
    before = state(place, name)
    assert before["file_state"] == place.show(name, "UnitFileState")["UnitFileState"]
    # An older systemd calls a link out of its directories something else.
    assert before["file_state"] in (file_state, "linked", "linked-runtime", "indirect", "alias")
    done = asked(
        place,
        f"""
before = units.snapshot_unit({name!r})
units.stop(before, writer)
gone = units.disable(before, writer)
made = units.mask(before, writer)
print(json.dumps({{"gone": sorted(gone), "made": made}}))
""",
    )
    assert done["gone"] == links
    shown = place.show(name, "LoadState", "ActiveState", "UnitFileState")
    assert shown["LoadState"] == "masked", shown
    assert shown["ActiveState"] in ("inactive", "failed")
    with pytest.raises(YardError, match="masked"):
        place.run("systemctl", "start", "--", name)
    assert snapshot(place) != untouched
    back = restore(place, before)
    assert snapshot(place) == untouched
    assert back["left"] == []
    assert sorted(back["made"]) == links
    assert place.show(name, "UnitFileState")["UnitFileState"] == before["file_state"]
    assert back["started"] is (file_state != "masked-runtime")
    again = restore(place, before)
    assert again == {"made": [], "removed": [], "left": [], "started": False}
    assert snapshot(place) == untouched
    place.run("systemctl", "stop", "--", name)


def restarts(yard: Yard, name: str) -> int:
    return int(yard.show(name, "NRestarts")["NRestarts"])


def test_a_crash_loop_is_stopped_and_comes_back_as_a_crash_loop(place: Yard):
    name = "crash.service"
    script(place, write(f"{ETC}/{name}", CRASH), link(f"{WANTS}/{name}", f"{ETC}/{name}"))
    place.run("systemctl", "start", "--no-block", name)
    place.wait("the loop", lambda: restarts(place, name) >= 3)
    untouched = snapshot(place)
    before = state(place, name)
    assert before["active_state"] in ("activating", "active")
    assert before["restarts"] >= 3
    code = f"""
before = units.snapshot_unit({name!r})
units.stop(before, writer)
units.disable(before, writer)
print(json.dumps({{"made": units.mask(before, writer)}}))
"""
    made = asked(place, code)["made"]
    # Its own file is in /etc, where a mask's link cannot be.
    assert made == f"/etc/systemd/system.control/{name}"
    shown = place.show(name, "LoadState", "ActiveState")
    assert shown["LoadState"] == "masked"
    assert shown["ActiveState"] in ("inactive", "failed"), "by the moment it was caught in"
    back = restore(place, before)
    assert back["started"] is True
    assert snapshot(place) == untouched
    place.wait("the loop again", lambda: restarts(place, name) >= 3)
    place.run("systemctl", "stop", name)


def test_an_override_ends_the_loop_and_is_taken_back(place: Yard):
    name = "loop.service"
    script(place, write(f"{VENDOR}/{name}", CRASH))
    place.run("systemctl", "start", "--no-block", name)
    place.wait("the loop", lambda: restarts(place, name) >= 2)
    untouched = snapshot(place)
    before = state(place, name)
    code = f"""
before = units.snapshot_unit({name!r})
path = units.override(before, writer)
assert units.override(before, writer) == path, "twice is once"
units.stop(before, writer)
print(json.dumps({{"path": path}}))
"""
    assert asked(place, code)["path"] == f"{ETC}/{name}.d/zz-sexton.conf"
    shown = place.show(name, "Restart", "DropInPaths")
    assert "zz-sexton.conf" in shown["DropInPaths"]
    assert shown["Restart"] == "no"
    place.run("systemctl", "start", name, check=False)
    place.wait(
        "its end", lambda: place.show(name, "ActiveState")["ActiveState"] in ("failed", "inactive")
    )
    assert restarts(place, name) == 0
    back = restore(place, before)
    assert back["removed"] == [f"{ETC}/{name}.d/zz-sexton.conf", f"{ETC}/{name}.d"]
    assert snapshot(place) == untouched
    place.run("systemctl", "stop", name)


def test_an_undo_that_was_killed_before_systemd_heard_of_it_is_finished_by_the_next(place: Yard):
    name = "cut.service"
    # Whom nobody mentions systemd forgets, and reads anew: then there is nothing to be told.
    holder = f"[Unit]\\nDefaultDependencies=no\\nAfter={name}\\n"
    script(
        place,
        write(f"{VENDOR}/{name}", SLEEP),
        link(f"{WANTS}/{name}", f"{VENDOR}/{name}"),
        write(f"{VENDOR}/holder.target", holder),
    )
    place.run("systemctl", "start", name, "holder.target")
    untouched, before = snapshot(place), state(place, name)
    code = f"""
import os
before = units.snapshot_unit({name!r})
units.stop(before, writer)
units.disable(before, writer)
units.mask(before, writer)
if os.fork() == 0:
    writer.systemctl = lambda *args, **more: os.kill(os.getpid(), 9)
    units.restore(before, writer)
print(json.dumps({{"status": os.wait()[1]}}))
"""
    assert asked(place, code)["status"] == 9
    assert snapshot(place) == untouched
    assert place.show(name, "LoadState") == {"LoadState": "masked"}, "nobody told systemd"
    assert restore(place, before)["started"] is True
    assert place.show(name, "LoadState", "ActiveState", "UnitFileState") == {
        "LoadState": "loaded",
        "ActiveState": "active",
        "UnitFileState": "enabled",
    }
    place.run("systemctl", "stop", name)


def test_what_somebody_else_changed_meanwhile_stays_theirs(place: Yard):
    name = "shared.service"
    script(
        place,
        write(f"{VENDOR}/{name}", SLEEP),
        write(f"{ETC}/{name}.d/10-a.conf", "[Service]\\nNice=5\\n"),
        link(f"{WANTS}/{name}", f"{VENDOR}/{name}"),
    )
    before = state(place, name)
    code = f"""
before = units.snapshot_unit({name!r})
units.disable(before, writer)
units.mask(before, writer)
units.override(before, writer)
print("{{}}")
"""
    asked(place, code)
    script(
        place,
        write(f"{ETC}/{name}.d/10-a.conf", "[Service]\\nNice=9\\n"),
        write(f"{ETC}/{name}.d/50-new.conf", "[Service]\\nNice=1\\n"),
        link(f"{WANTS}/{name}", "/somewhere/else"),
    )
    back = restore(place, before)
    assert sorted(text.partition(":")[0] for text in back["left"]) == [
        f"{WANTS}/{name}",
        f"{ETC}/{name}.d/10-a.conf",
    ]
    assert back["removed"] == [f"{ETC}/{name}", f"{ETC}/{name}.d/zz-sexton.conf"]
    shown = place.run("sh", "-c", f"cd {ETC}/{name}.d; ls; cat 10-a.conf; readlink {WANTS}/{name}")
    assert shown.split() == [
        "10-a.conf", "50-new.conf", "[Service]", "Nice=9", "/somewhere/else"
    ]  # fmt: skip


def test_a_dry_run_names_every_change_and_makes_none(place: Yard):
    name, lines, _, links = CASES["the vendor's, wanted, required and upheld"]
    script(place, *(line.replace("vendor.service", "dry.service") for line in lines))
    untouched = snapshot(place)
    code = """
dry = DryWriter()
before = units.snapshot_unit("dry.service")
units.stop(before, dry)
units.disable(before, dry)
units.mask(before, dry)
units.override(before, dry)
print(json.dumps({"actions": dry.actions}))
"""
    actions = asked(place, code)["actions"]
    assert [verb for verb, _, _ in actions] == [
        "systemctl",
        *["remove link"] * 3,
        "systemctl",
        "make link",
        "systemctl",
        "make directory",
        "write file",
        "systemctl",
    ]
    gone = sorted(path for verb, path, _ in actions if verb == "remove link")
    assert gone == [path.replace(name, "dry.service") for path in links]
    assert snapshot(place) == untouched


@pytest.mark.parametrize(
    "name", ["*.service", "a/../b.service", "x", "a b.service", "-x", "\x1b.service", ""]
)
def test_a_name_that_is_none_is_refused_before_systemd_is_asked(place: Yard, name: str):
    code = f"""
try:
    units.snapshot_unit({name!r})
except CommandError as error:
    print(json.dumps({{"error": str(error)}}))
"""
    error = asked(place, code)["error"]
    assert "is not a unit name" in error
    assert "\x1b" not in error


def test_a_unit_that_is_not_there_is_told_so(place: Yard):
    assert state(place, "never.service")["load_state"] == "not-found"
    assert state(place, "never.service")["entries"] != []  # the directories, which are there


def test_a_unit_that_does_not_stop_in_time_is_told_so(place: Yard):
    stubborn = SLEEP.replace(
        "/bin/sleep 1000", '/bin/sh -c "trap : TERM; while :; do sleep 1; done"'
    )
    script(place, write(f"{VENDOR}/stubborn.service", stubborn))
    place.run("systemctl", "start", "stubborn.service")
    code = """
try:
    units.stop(units.snapshot_unit("stubborn.service"), writer, 0.5)
except CommandError as error:
    print(json.dumps({"error": str(error)}))
"""
    assert "not finished within 0.5 s; systemd continues" in asked(place, code)["error"]
    place.run("systemctl", "kill", "-s", "KILL", "stubborn.service")


def test_a_fork_of_systemd_that_executes_nothing_yet_is_no_process_of_the_unit(tmp_path: Path):
    """It has systemd's name, which is protected: a loop that was caught so could not be stopped."""
    files = {
        "proc/1/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/system.slice/leak.service/cgroup.procs": "57\n58\n59\n",
        "proc/1/cmdline": "/sbin/init\0",
    }
    for pid, parent, command in (
        (57, 1, "/sbin/init"),
        (58, 1, "/lib/systemd/systemd\0--user"),
        (59, 40, "/sbin/init"),  # of a container
    ):
        files[f"proc/{pid}/comm"] = "systemd\n"
        files[f"proc/{pid}/stat"] = f"{pid} (systemd) S {parent} 1 1 0\n"
        files[f"proc/{pid}/cmdline"] = f"{command}\0"
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    host, place = open_host(str(tmp_path)), "/system.slice/leak.service"
    assert units._processes(host, place) == [(58, "systemd"), (59, "systemd")]
    (tmp_path / "proc/1/cmdline").unlink()  # unknown: none of them is left out
    assert [pid for pid, _ in units._processes(host, place)] == [57, 58, 59]
