"""Where kubelet's configuration is found: by what starts kubelet, else in the usual places."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sexton.host.host import Host, open_host
from sexton.prevent.gate.rules.kubelet_config import check
from sexton.prevent.gate.target import Target
from sexton.prevent.kubelet import Flag, check_flags, flags_of, inspect, running
from sexton.prevent.kubelet.config import parse_flags
from tests.prevent.kubelet.test_checks import HEAD, KEPT


def tree(root: Path, files: dict[str, str]) -> Host:
    for path, content in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return open_host(str(root))


def test_a_tree_without_kubelet_has_none(tmp_path: Path) -> None:
    assert inspect(tree(tmp_path, {"/etc/os-release": "ID=x\n"})) == ()


def test_the_usual_place_is_looked_at(tmp_path: Path) -> None:
    files = inspect(tree(tmp_path, {"/var/lib/kubelet/config.yaml": HEAD + KEPT}))
    assert [(f.path, f.named_by, f.problems) for f in files] == [
        ("/var/lib/kubelet/config.yaml", "a usual path", ())
    ]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (
            "/usr/lib/systemd/system/kubelet.service",
            "[Service]\nExecStart=/k --config=/etc/k.yaml\n",
        ),
        (
            "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
            '[Service]\nEnvironment="KUBELET_CONFIG_ARGS=--config=/etc/k.yaml"\n',
        ),
        ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS='--v 2 --config /etc/k.yaml'\n"),
        (
            "/lib/systemd/system/kubelet.service",
            "ExecStart=/k \\\n  --v=2 \\\n  --config /etc/k.yaml\n",
        ),
    ],
)
def test_what_starts_kubelet_names_the_file(tmp_path: Path, path: str, content: str) -> None:
    files = inspect(
        tree(tmp_path, {path: content, "/etc/k.yaml": "a: [", "/var/lib/kubelet/config.yaml": "x"})
    )
    assert [(f.path, f.named_by, f.tree, f.unread) for f in files] == [
        ("/etc/k.yaml", f"--config in {path}", None, "")
    ]


def test_a_commented_flag_names_nothing() -> None:
    assert parse_flags("# --config=/etc/a\n; --config=/etc/b\nA=--v=3\n") == [("v", "3")]


def test_drop_ins_are_read_in_order_and_only_conf(tmp_path: Path) -> None:
    unit = "ExecStart=/k --config=/etc/k.json --config-dir=/etc/k.d\n"
    host = tree(
        tmp_path,
        {
            "/usr/lib/systemd/system/kubelet.service": unit,
            "/etc/k.json": "{}",
            "/etc/k.d/20-b.conf": "{}",
            "/etc/k.d/10-a.conf": "{}",
            "/etc/k.d/readme.txt": "no",
        },
    )
    assert [f.path for f in inspect(host)] == [
        "/etc/k.json",
        "/etc/k.d/10-a.conf",
        "/etc/k.d/20-b.conf",
    ]


def test_a_file_that_is_made_at_first_boot_is_told_as_unread(tmp_path: Path) -> None:
    host = tree(tmp_path, {"/etc/default/kubelet": "A=--config=/var/lib/kubelet/config.yaml\n"})
    (file,) = inspect(host)
    assert "first boot" in file.unread
    assert file.problems == ()


def test_a_link_out_of_the_image_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "secret.yaml"
    outside.write_text("secret: of-this-machine\n")
    image = tmp_path / "image"
    host = tree(image, {"/etc/os-release": "ID=x\n"})
    (image / "var/lib/kubelet").mkdir(parents=True)
    (image / "var/lib/kubelet/config.yaml").symlink_to(outside)
    (file,) = inspect(host)
    assert (file.text, file.absent) == ("", True)


def test_a_fifo_and_a_huge_file_are_not_read(tmp_path: Path) -> None:
    import os

    host = tree(tmp_path, {"/etc/default/kubelet": "A=--config=/a\nB=--config=/b\n"})
    os.mkfifo(tmp_path / "a")
    with (tmp_path / "b").open("wb") as huge:
        huge.truncate(10 << 30)
    assert [f.unread for f in inspect(host)] == [
        "a FIFO, not a regular file",
        "larger than 262,144 bytes",
    ]


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    host = tree(tmp_path, {"/etc/os-release": "ID=x\n", "/var/lib/kubelet/config.yaml": ""})
    (tmp_path / "var/lib/kubelet/config.yaml").write_bytes(b"a: \xff\xfe\n")
    (file,) = inspect(host)
    assert [p.message for p in file.problems] == ["not UTF-8: kubelet refuses to start"]


def test_flags_that_hurt_are_told_with_where_they_stand(tmp_path: Path) -> None:
    line = "KUBELET_EXTRA_ARGS=--housekeeping-interval=1s --feature-gates=CgroupV2=true\n"
    host = tree(tmp_path, {"/etc/default/kubelet": line})
    document = {
        problem.field: (problem.level, flag.read_from)
        for flag, problem in check_flags(flags_of(host))
    }
    assert document == {
        "--housekeeping-interval": ("warning", "/etc/default/kubelet"),
        "--feature-gates": ("error", "/etc/default/kubelet"),
    }


def test_the_default_housekeeping_is_fine(tmp_path: Path) -> None:
    host = tree(tmp_path, {"/etc/default/kubelet": "A=--housekeeping-interval=10s\n"})
    assert list(check_flags(flags_of(host))) == []


@contextmanager
def started(place: Path, *flags: str, below: tuple[str, ...] = ()) -> Iterator[int]:
    """A process named kubelet with these flags and this working directory, started by `below`."""
    program = place / "kubelet"
    program.write_text("#!/bin/sh\necho up\nread line\n")
    program.chmod(0o755)
    with subprocess.Popen(
        [*below, str(program), *flags], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.kill()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A kubelet with a relative path on its command line."""
    with started(tmp_path, "--config=conf/kubelet.yaml", "--v=2") as pid:
        yield pid, tmp_path


def flags_by(pid: int) -> list[Flag]:
    by = f"command line of kubelet[{pid}]"
    return [flag for flag in flags_of(open_host("/")) if flag.read_from == by]


def test_a_relative_path_begins_where_the_process_is(kubelet: tuple[int, Path]) -> None:
    pid, place = kubelet
    host = open_host("/")
    assert str(pid) in running(host)
    by = f"--config in command line of kubelet[{pid}]"
    mine = [flag for flag in flags_of(host) if flag.read_from in by]
    (absent,) = inspect(host, mine)
    assert (absent.path, absent.absent) == (f"{place}/conf/kubelet.yaml", True)
    (place / "conf").mkdir()
    (place / "conf/kubelet.yaml").write_text(HEAD + "cgroupVersion: v2\n")
    (found,) = inspect(host, mine)
    assert (found.path, found.named_by) == (f"{place}/conf/kubelet.yaml", by)
    assert [problem.field for problem in found.problems if problem.level == "error"] == [
        "cgroupVersion"
    ]


def test_beside_a_running_kubelet_it_is_unknown_and_never_not_applicable(
    kubelet: tuple[int, Path],
) -> None:
    target = Target(open_host("/"), "n", "a node", True, None, lambda host, window: None)
    told = check(target, {"strict": False, "required": False})
    assert not told.not_applicable
    assert any("kubelet.yaml" in lack.what for lack in told.missing)


def test_where_the_working_directory_cannot_be_read_the_file_is_unread() -> None:
    lost = Flag("config", "kubelet.yaml", "command line of kubelet[7]", None)
    (file,) = inspect(open_host("/"), [lost])
    assert (file.path, file.absent) == ("kubelet.yaml", False)
    assert "working directory cannot be read" in file.unread


def test_where_the_working_directory_is_gone_the_file_is_unread(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    with started(away, "--config=k.yaml") as pid:
        shutil.rmtree(away)
        (file,) = inspect(open_host("/"), flags_by(pid))
    assert (file.path, file.absent) == ("k.yaml", False)
    assert "is gone" in file.unread


def test_a_directory_may_be_named_as_if_it_was_removed(tmp_path: Path) -> None:
    place = tmp_path / "k (deleted)"
    place.mkdir()
    (place / "k.yaml").write_text(HEAD + KEPT)
    with started(place, "--config=k.yaml") as pid:
        (file,) = inspect(open_host("/"), flags_by(pid))
    assert (file.path, file.unread) == (f"{place}/k.yaml", "")


def test_a_path_on_a_command_line_may_contain_spaces(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/k.yaml").write_text(HEAD + KEPT)
    for flags in (("--config", "a b/k.yaml"), (f"-config={tmp_path}/a b/k.yaml",)):
        with started(tmp_path, *flags) as pid:
            (file,) = inspect(open_host("/"), flags_by(pid))
        assert (file.path, file.unread) == (f"{tmp_path}/a b/k.yaml", "")


def test_a_running_kubelet_whose_file_is_missing_gets_no_advice_for_images(tmp_path: Path) -> None:
    with started(tmp_path, "--config=k.yaml") as pid:
        (file,) = inspect(open_host("/"), flags_by(pid))
    assert (file.absent, file.unread) == (True, "not found")


def test_a_kubelet_with_a_root_of_its_own_has_its_own_paths(tmp_path: Path) -> None:
    """An absolute link in it starts at that root."""
    jail = tmp_path / "jail"
    tree(jail, {"/etc/real.yaml": HEAD + KEPT, "/etc/conf.d/1.conf": HEAD + KEPT})
    (jail / "etc/k.yaml").symlink_to("/etc/real.yaml")
    (jail / "etc/more").symlink_to("/etc/conf.d")
    flags = [
        Flag("config", "/etc/k.yaml", "kubelet[7]", f"{jail}", f"{jail}"),
        Flag("config", "etc/real.yaml", "kubelet[7]", f"{jail}", f"{jail}"),
        Flag("config-dir", "/etc/more", "kubelet[7]", f"{jail}", f"{jail}"),
    ]
    files = inspect(open_host("/"), flags)
    assert [(file.path.removeprefix(str(jail)), file.unread) for file in files] == [
        ("/etc/k.yaml", ""),
        ("/etc/real.yaml", ""),
        ("/etc/more/1.conf", ""),
    ]


@pytest.mark.root
@pytest.mark.parametrize("value", ["k.yaml", "{place}/k.yaml"])
def test_a_kubelet_with_mounts_of_its_own_is_read_below_its_root(
    tmp_path: Path, value: str
) -> None:
    place = tmp_path / "conf"
    place.mkdir()
    (place / "k.yaml").write_text("a: [")  # ours, which that kubelet does not see
    mounting = 'mount -t tmpfs none "$0" && cp -r "$1"/. "$0" && cd "$0" && shift && exec "$@"'
    theirs = tmp_path / "theirs"
    tree(theirs, {"/k.yaml": HEAD + "cgroupVersion: v2\n"})
    below = ("unshare", "--mount", "sh", "-c", mounting, str(place), str(theirs))
    with started(tmp_path, f"--config={value.format(place=place)}", below=below) as pid:
        (file,) = inspect(open_host("/"), flags_by(pid))
    assert file.path == f"/proc/{pid}/root{place}/k.yaml"
    assert [problem.field for problem in file.problems if problem.level == "error"] == [
        "cgroupVersion"
    ]


def test_a_relative_path_in_a_unit_begins_at_its_working_directory(tmp_path: Path) -> None:
    unit = "[Service]\nWorkingDirectory=-/srv/k\nExecStart=/k --config=./k.yaml\n"
    host = tree(
        tmp_path, {"/etc/systemd/system/kubelet.service": unit, "/srv/k/k.yaml": HEAD + KEPT}
    )
    assert [file.path for file in inspect(host)] == ["/srv/k/k.yaml"]
    bare = tree(
        tmp_path / "2",
        {"/etc/systemd/system/kubelet.service": "ExecStart=/k --config=k.yaml", "/k.yaml": HEAD},
    )
    assert [file.path for file in inspect(bare)] == ["/k.yaml"]
    expanded = "ExecStart=/k --config=$FILE"
    unknown = tree(tmp_path / "3", {"/etc/systemd/system/kubelet.service": expanded})
    assert inspect(unknown) == ()


def test_the_measured_cost_of_a_read_is_in_the_reason() -> None:
    flag = Flag("housekeeping-interval", "1s", "unit")
    ((_, plain),) = check_flags([flag])
    ((_, priced),) = check_flags([flag], read_s=0.02)
    assert "core at this interval" not in plain.message
    assert priced.message.startswith(plain.message)
    assert "takes 20 ms here: 2.00% of a core at this interval, 0.200% at the default" in (
        priced.message
    )
