"""Without rights, in namespaces, in a container: an honest answer, and the line that would tell.

"Container without rights" is where inventing zombies, or calling a node healthy that cannot be
seen, would be easiest.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.detect.registry import essentials
from sexton.host.host import open_host
from sexton.sources.cgroupfs.layout import read_layout
from tests.support.other_user import NOBODY, BoundInstall, bound_install
from tests.support.tools import need
from tests.support.zombies import scratch_cgroup

pytestmark = pytest.mark.root
WATCH = ("diagnose", "--seconds", "2.5")
NODE_LINE = "sudo sexton diagnose"


@pytest.fixture
def place() -> Iterator[BoundInstall]:
    with bound_install() as made:
        yield made


def memory_anew() -> str:
    """Mounts the memory hierarchy as a namespace of its own shows it."""
    layout = read_layout(open_host())
    if layout.mount_point is None:
        pytest.skip("no memory hierarchy is mounted here")
    kind = "cgroup -o memory" if layout.version == 1 else "cgroup2"
    return f"umount -l {layout.mount_point}; mount -t {kind} sexton {layout.mount_point}"


def lines(ended: subprocess.CompletedProcess[str], status: int) -> list[str]:
    assert (ended.returncode, ended.stderr) == (status, "")
    assert "\x1b" not in ended.stdout
    return ended.stdout.splitlines()


def findings(ended: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert ended.stderr == ""
    answer = json.loads(ended.stdout)
    for finding in answer["findings"]:
        if finding["verdict"] == "unknown" and finding["id"] in essentials():
            assert any(lack["grant"] for lack in finding["missing"]), finding
    return {finding["id"]: finding["verdict"] for finding in answer["findings"]}


def test_nobody_is_told_what_root_would_add(place: BoundInstall) -> None:
    ended = place.run(*WATCH, via=NOBODY)
    assert (ended.stderr, ended.returncode in (0, 1, 3)) == ("", True)
    assert "tracefs.cgroup_events" in ended.stdout
    assert f"AS ROOT    {NODE_LINE} adds " in ended.stdout
    assert "trace instance" not in ended.stdout


def test_nobody_may_not_follow_deaths_and_is_told_who_may(place: BoundInstall) -> None:
    ended = place.run("zombies", "--watch", "--seconds", "1", via=NOBODY)
    assert (ended.returncode, ended.stdout) == (3, "")
    (line,) = ended.stderr.splitlines()
    assert line.endswith("sudo sexton zombies --watch")


@pytest.mark.parametrize("command", [("sources",), ("zombies", "--seconds", "0.5"), ("top",)])
def test_nobody_gets_an_answer_from_every_command(
    place: BoundInstall, command: tuple[str, ...]
) -> None:
    ended = place.run(*command, via=NOBODY)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_cgroup_namespace_with_300_live_cgroups_never_shows_a_zombie(place: BoundInstall) -> None:
    with scratch_cgroup() as (_, parent):
        for number in range(300):
            (parent / f"live{number}").mkdir()
        enter = f"echo 0 > {parent}/cgroup.procs"  # so that it becomes the namespace's root
        for command in (("zombies", "--seconds", "1", "--json"), (*WATCH, "--json")):
            ended = place.run(*command, before=enter, unshare="-C", first=memory_anew())
            assert ended.stderr == ""
            answer = json.loads(ended.stdout)
            if command[0] == "zombies":
                assert ended.returncode == 3
                assert answer["dying"] is None
                assert "namespace" in answer["reason"]
            else:
                assert findings(ended)["zombie_memcgs"] == "unknown"


def test_a_pid_namespace_hides_the_nodes_service_manager(place: BoundInstall) -> None:
    hidden = "-p -f --mount-proc"
    assert findings(place.run(*WATCH, "--json", unshare=hidden))["crash_looping_unit"] == "unknown"
    ended = place.run(*WATCH, unshare=hidden)
    shown = lines(ended, ended.returncode)
    assert ended.returncode in (1, 3)
    assert "in a PID namespace" in " ".join(ended.stdout.split())
    # The node itself may be sick, of whatever other tests have left in its log.
    assert len(shown) <= (60 if shown[0].startswith("SICK") else 40)


@pytest.mark.parametrize(
    "hide",
    ["umount -l /sys", "mount --bind /dev/null /proc/cgroups", "umount -l /proc"],
    ids=["no-sys", "no-proc-cgroups", "no-proc"],
)
def test_what_is_hidden_is_unknown_and_not_clean(place: BoundInstall, hide: str) -> None:
    ended = place.run(*WATCH, "--json", first=hide)
    seen = findings(ended)
    assert ended.returncode in (1, 3)
    assert seen["zombie_memcgs"] == "unknown"
    if hide.endswith("/proc"):
        assert seen["saturated_core"] == seen["defunct_processes"] == "unknown"


# --- a real container -----------------------------------------------------------------------------


def container(
    place: BoundInstall, bundle: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run it in runc: its own root and namespaces, with the few rights runc gives by itself."""
    runc = need("runc", package="runc")
    root = bundle / "rootfs"
    for name in (
        "usr",
        "proc",
        "sys",
        "dev",
        "tmp",
        "etc",
        "run",
        "opt/python",
        "opt/src",
        "opt/site",
    ):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(os.readlink(f"/{name}"))
    subprocess.run([runc, "spec"], cwd=bundle, check=True)
    config = json.loads((bundle / "config.json").read_text())
    inside = BoundInstall(Path("/opt"))
    config["process"].update(
        terminal=False,
        args=[*inside.command, *arguments],
        env=[f"{name}={value}" for name, value in inside.environment.items()],
    )
    config["mounts"] += [
        {"destination": target, "type": "bind", "source": source, "options": ["rbind", "ro"]}
        for target, source in [
            ("/usr", "/usr"),
            *((f"/opt/{name}", source) for name, source in place.bound.items()),
        ]
    ]
    name = f"sexton-test-{os.getpid()}-runc"
    config["linux"]["cgroupsPath"] = f"/{name}"
    if {"type": "cgroup"} not in config["linux"]["namespaces"]:
        config["linux"]["namespaces"].append({"type": "cgroup"})
    (bundle / "config.json").write_text(json.dumps(config))
    try:
        return subprocess.run(
            [runc, "run", name],
            cwd=bundle,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        subprocess.run([runc, "delete", "-f", name], capture_output=True, check=False)


def test_a_container_is_told_what_was_judged_and_what_to_type_on_the_node(
    place: BoundInstall, tmp_path: Path
) -> None:
    ended = container(place, tmp_path, *WATCH)
    shown = lines(ended, 3)
    assert shown[0].startswith("CANNOT TELL  ")
    assert len(shown) <= 30
    text = " ".join(ended.stdout.split())
    assert "in a container" in text
    assert "sexton runs in a cgroup namespace" in text
    assert "directory are not comparable" in text
    assert "saturated core no core held" in text, "what was judged"
    assert "NIC resets unknown" in text, "no interface in here says nothing of the node's"
    assert ended.stdout.count(NODE_LINE) == 1, "one line to type, not nine"


def test_a_container_shows_no_zombie(place: BoundInstall, tmp_path: Path) -> None:
    ended = container(place, tmp_path, "zombies", "--seconds", "0.5", "--json")
    assert (ended.returncode, ended.stderr) == (3, "")
    assert json.loads(ended.stdout)["dying"] is None
