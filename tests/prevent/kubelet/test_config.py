"""Where kubelet's configuration is found: by what starts kubelet, else in the usual places."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.host.host import Host, open_host
from sexton.prevent.kubelet import check_flags, flags_of, inspect
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
    assert [f.unread for f in inspect(host)] == ["not a regular file", "larger than 262,144 bytes"]


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
