"""`sexton gate` as a pipeline runs it: directories, tars, disks; files written; exits 0, 1, 2."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import resource
import stat
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import yaml

from sexton.cli.main import main
from sexton.host.host import Host
from sexton.host.reader import RootedFiles
from sexton.prevent.gate import is_booted
from tests.prevent.gate.making import IN_TIME, image
from tests.support.cli import one_line, quiet, sexton
from tests.support.tools import need


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return image(tmp_path / "healthy")


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """The deb package's ecs.service in an image for Kubernetes."""
    return image(tmp_path / "sick", ecs="deb")


def rules(ended: subprocess.CompletedProcess[bytes]) -> dict[str, str]:
    return {rule["id"]: rule["outcome"] for rule in json.loads(ended.stdout)["rules"]}


def test_a_healthy_image_passes(healthy: Path) -> None:
    ended = sexton("gate", "--root", healthy)
    quiet(ended, (0,))
    assert ended.stdout.startswith(b"PASSED  ")


def test_an_image_with_the_deb_packages_ecs_fails_unbooted(sick: Path) -> None:
    ended = sexton("gate", "--root", sick, "--format", "json")
    quiet(ended, (1,))
    document = rules(ended)
    assert (document["unneeded_units"], document["restart_without_backoff"]) == ("fail", "fail")
    assert document["kubelet_config"] == "pass"
    assert document["memcg_count"] == "not_applicable"


def test_gate_and_audit_count_the_same_units_under_every_verdict(sick: Path) -> None:
    """Also the protected ones of the distribution itself, which the text counts and does not
    name."""
    wants = sick / "etc/systemd/system/multi-user.target.wants"
    for name in ("dbus", "systemd-journald", "cron"):
        unit = sick / f"usr/lib/systemd/system/{name}.service"
        unit.write_text("[Service]\nExecStart=/usr/sbin/sshd\n")
        (wants / unit.name).symlink_to(f"/usr/lib/systemd/system/{unit.name}")
    audited = json.loads(sexton("audit", "--root", sick, "--json").stdout)
    counts = {key: value for key, value in audited["counts"].items() if key != "with_faults"}
    verdicts = Counter(subject["verdict"] for subject in audited["subjects"])
    assert counts == {key: verdicts[key] for key in counts}
    assert counts["protected"] >= 3
    text = sexton("audit", "--root", sick).stdout.decode()
    said = {
        word.lower(): int(number)
        for word, number in re.findall(r"^ (UNKNOWN|NEEDED|PROTECTED) +([0-9]+)", text, re.M)
    }
    assert said == {key: number for key, number in counts.items() if number and key in said}
    assert "protected" in said
    gated = json.loads(sexton("gate", "--root", sick, "--format", "json").stdout)
    rule = next(rule for rule in gated["rules"] if rule["id"] == "unneeded_units")
    total, _, rest = rule["summary"].partition(": ")
    assert total == f"{len(audited['subjects'])} units"
    told = {word: int(number) for number, word in (part.split(" ", 1) for part in rest.split(", "))}
    assert told == counts


@pytest.mark.parametrize("form", ["tar", "tar.gz", "disk"])
def test_the_same_image_in_another_form_says_the_same(
    sick: Path, tmp_path: Path, form: str
) -> None:
    """Also what lies where only this image has it: kubelet's configuration."""
    (sick / "opt/k8s").mkdir(parents=True)
    config = sick / "opt/k8s/kubelet.yaml"
    (sick / "var/lib/kubelet/config.yaml").rename(config)
    config.write_text(config.read_text() + "cgroupVersion: v2\n")
    unit = sick / "usr/lib/systemd/system/kubelet.service"
    unit.write_text(unit.read_text().replace("/var/lib/kubelet/config", "/opt/k8s/kubelet"))
    packed = tmp_path / "image"
    if form == "disk":
        make = need("mke2fs", package="e2fsprogs")
        subprocess.run([make, "-q", "-F", "-t", "ext4", "-d", sick, packed, "20M"], check=True)
    else:
        with tarfile.open(packed, "w:gz" if form == "tar.gz" else "w") as tar:
            tar.add(sick, arcname=".")
    directory = json.loads(sexton("gate", "--root", sick, "--format", "json").stdout)
    other = json.loads(sexton("gate", "--root", packed, "--format", "json").stdout)
    assert other["kind"].startswith("a disk image" if form == "disk" else "a tar")
    for value in (directory, other):
        for rule in value["rules"]:
            del rule["spent_s"]
    assert directory["rules"] == other["rules"]
    broken = {rule["id"] for rule in other["rules"] if rule["outcome"] == "fail"}
    assert broken == {"unneeded_units", "restart_without_backoff", "kubelet_config"}


def test_several_reports_are_written_in_one_run_and_text_is_told(
    sick: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("g.sarif", "g.xml", "g.json", "g.txt")]
    outs = [word for file in files for word in ("--out", str(file))]
    ended = sexton("gate", "--root", sick, *outs)
    assert ended.returncode == 1
    assert ended.stdout.startswith(b"FAILED  ")
    sarif, junit, message, text = (file.read_text() for file in files)
    assert json.loads(sarif)["version"] == "2.1.0"
    assert junit.startswith("<?xml")
    assert json.loads(message)["schema"] == "sexton.gate/1"
    assert text.startswith("FAILED  ")
    assert len(ended.stderr.splitlines()) == 4


@pytest.mark.parametrize("form", ["json", "sarif", "junit", "text"])
def test_a_format_goes_to_standard_output_alone(sick: Path, form: str) -> None:
    ended = sexton("gate", "--root", sick, "--format", form)
    quiet(ended, (1,))


def test_a_policy_and_its_waivers_open_the_gate(sick: Path, tmp_path: Path) -> None:
    policy = tmp_path / "gate.toml"
    policy.write_text(
        "".join(
            f'[[waivers]]\nrule = "{rule}"\nsubject = "ecs.service"\nowner = "o@example.com"\n'
            f'expires = {IN_TIME}\nreason = "the vendor knows"\n'
            for rule in ("restart_without_backoff", "unneeded_units")
        )
    )
    ended = sexton("gate", "--root", sick, "--policy", policy)
    quiet(ended, (0,))
    assert f"waived  ecs.service: o@example.com, until {IN_TIME}".encode() in ended.stdout
    good = policy.read_text()
    for day, value in (("2020-01-31", b"expired on 2020-01-31"), ("2999-01-31", b"366 days ahead")):
        policy.write_text(good.replace(str(IN_TIME), day))
        ended = sexton("gate", "--root", sick, "--policy", policy)
        quiet(ended, (1,))
        assert value in b" ".join(ended.stdout.split())
    policy.write_text(good.replace('owner = "o@example.com"\n', "", 1))
    ended = sexton("gate", "--root", sick, "--policy", policy)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert "waiver 1 has no owner" in one_line(ended.stderr)


def test_the_printed_policy_is_one_that_is_taken(healthy: Path, tmp_path: Path) -> None:
    policy = tmp_path / "gate.toml"
    policy.write_bytes(sexton("gate", "--print-policy").stdout)
    quiet(sexton("gate", "--root", healthy, "--policy", policy), (0,))


def test_the_corrected_kubelet_configuration_is_written(healthy: Path, tmp_path: Path) -> None:
    config = healthy / "var/lib/kubelet/config.yaml"
    good = config.read_text()
    config.write_text(good + "cgroupVersion: v2\n")
    before = config.read_bytes()
    out = tmp_path / "mended.yaml"
    ended = sexton("gate", "--root", healthy, "--kubelet-out", out)
    assert ended.returncode == 1
    assert yaml.safe_load(out.read_text()) == yaml.safe_load(good)
    assert config.read_bytes() == before
    config.write_text(out.read_text())
    quiet(sexton("gate", "--root", healthy), (0,))


def test_without_a_kubelet_there_is_nothing_to_correct_and_that_is_said(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    (bare / "etc/systemd/system").mkdir(parents=True)
    (bare / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\n")
    out = tmp_path / "mended.yaml"
    ended = sexton("gate", "--root", bare, "--kubelet-out", out)
    assert "not written" in one_line(ended.stderr)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--root", "/no/such/image"), "No such file"),
        (("--root", ""), "image path is empty"),
        (("--root", "EMPTY"), "no operating system found"),
        (("--root", "FILE"), ""),
        (("--root", "FIFO"), "not a directory, a file or a block device"),
        (("--root", "HEALTHY", "--seconds", "5"), "nothing runs in it"),
        (("--root", "HEALTHY", "--policy", "/no/such.toml"), "No such file"),
        (("--root", "HEALTHY", "--policy", "EMPTY"), "directory"),
        (("--root", "HEALTHY", "--policy", "FIFO"), "not a regular file"),
        (("--root", "HEALTHY", "--policy", "/dev/zero"), "not a regular file"),
        (("--root", "HEALTHY", "--policy", "HUGE"), "larger than"),
        (("--root", "HEALTHY", "--policy", "BAD"), "did you mean memcg_count?"),
        (("--root", "HEALTHY", "--agents", "BAD"), "unknown key 'rules'"),
        (("--root", "HEALTHY", "--agents", "/no/such.toml"), "No such file"),
        (("--root", "HEALTHY", "--out", "x.pdf"), "add --format"),
        (("--root", "HEALTHY", "--out", "-"), "--out needs a file name"),
        (("--root", "HEALTHY", "--out", "/no/such/dir/x.json"), "No such file"),
        (("--root", "HEALTHY", "--format", "json", "--out", "a", "--out", "b"), "suffixes"),
        (("--root", "HEALTHY", "--out", "a.json", "--out", "a.json"), "same file twice"),
        (("--format", "pdf"), "is not one of text"),
        (("--print-policy", "--root", "/"), "cannot be combined"),
        (("--seconds", "0"), "--seconds"),
        (("extra",), "unexpected argument"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_2(arguments, told, tmp_path, healthy) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello")
    (tmp_path / "bad.toml").write_text("[rules.memcg_cuont]\n")
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(10 << 30)
    known = {
        "EMPTY": tmp_path / "empty",
        "FILE": tmp_path / "file",
        "FIFO": tmp_path / "fifo",
        "HUGE": tmp_path / "huge",
        "BAD": tmp_path / "bad.toml",
        "HEALTHY": healthy,
    }
    ended = sexton("gate", *(str(known.get(word, word)) for word in arguments), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert told in one_line(ended.stderr)


def test_an_image_of_hostile_links_is_judged_without_leaving_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("apiVersion: stolen-from-this-machine\n")
    root = image(tmp_path / "image")
    config = root / "var/lib/kubelet/config.yaml"
    config.unlink()
    config.symlink_to(secret)
    release = root / "etc/os-release"
    release.unlink()
    release.symlink_to("/etc/os-release")  # itself, inside the image
    for name in ("boot/grub/grub.cfg", "etc/default/grub"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to("../" * 20 + str(secret).lstrip("/"))
    os.mkfifo(root / "etc/default/kubelet")
    ended = sexton("gate", "--root", root, "--format", "json")
    quiet(ended, (0, 1))
    assert b"stolen" not in ended.stdout


def test_an_image_cannot_claim_to_be_booted(tmp_path: Path) -> None:
    """It would be watched without a limit on time and without the filter of system calls."""
    claims = {"/proc/cgroups": "memory 1 70000 1\n", "/proc/1/mountinfo": ""}
    root = image(tmp_path / "image", claims)
    assert not is_booted(Host(RootedFiles(str(root)), live=False))
    ended = sexton("gate", "--root", root, "--format", "json")
    quiet(ended, (0,))
    assert json.loads(ended.stdout)["booted"] is False


def test_a_tree_with_procfs_is_booted() -> None:
    assert is_booted(Host(RootedFiles("/"), live=False))


def test_this_node_is_judged_live() -> None:
    ended = sexton("gate", "--seconds", "0.5", "--format", "json")
    quiet(ended, (0, 1))
    document = json.loads(ended.stdout)
    assert document["booted"] is True
    assert document["watched_s"] > 0
    assert set(rules(ended)) >= {"memcg_count", "dying_memcgs", "crash_loops", "waivers"}


def test_nothing_of_the_image_is_touched(sick: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = sorted(sick.rglob("*"))
        return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in found]

    before = state()
    sexton("gate", "--root", sick)
    assert state() == before


#: Enough for the interpreter and its libraries, and far less than a sparse file pretends to hold.
_MEMORY = 3 << 30


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """All that may lie in an image where a unit, a directory or a setting is expected."""
    root = image(tmp_path / "hostile", ecs="deb")
    units = root / "etc/systemd/system"
    with (units / "sparse.service").open("wb") as stream:
        stream.truncate(10 << 30)
    with (root / "etc/machine-id").open("wb") as stream:
        stream.truncate(10 << 30)
    os.mkfifo(units / "fifo.service")
    (units / "loop.service").symlink_to("loop.service")
    (units / "round.service.d").symlink_to(".")
    (units / "out.service").symlink_to("/proc/self/environ")
    (units / "up.service.wants").symlink_to("../../../../../../../../etc/systemd/system")
    wants = units / "multi-user.target.wants"
    for name in (b"\xff\xfe.service", b"\x1b[2J.service", b"a\nb.service", b"<script>.service"):
        (wants / os.fsdecode(name)).symlink_to("/usr/lib/systemd/system/ssh.service")
    for name in ("sparse.service", "fifo.service", "loop.service", "out.service"):
        (wants / name).symlink_to(f"/etc/systemd/system/{name}")
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):  # in a container that may make none
            os.mknod(units / "device.service", stat.S_IFCHR | 0o600, os.makedev(1, 5))
            (wants / "device.service").symlink_to("/etc/systemd/system/device.service")
    deep = root / "usr/lib/systemd/system"
    for _ in range(60):
        deep /= "d"
    deep.mkdir(parents=True)
    return root


@pytest.mark.parametrize("form", ["directory", "tar", "disk"])
@pytest.mark.parametrize("command", ["gate", "audit"])
def test_a_hostile_image_is_read_safely_and_what_is_wrong_with_it_still_found(
    hostile: Path, tmp_path: Path, command: str, form: str
) -> None:
    given, packed = hostile, tmp_path / "packed"
    if form == "tar":
        line = ["tar", "-S", "-C", hostile, "-cf", packed, "."]
        subprocess.run(line, check=True)
        given = packed
    elif form == "disk":
        make = need("mke2fs", package="e2fsprogs")
        subprocess.run([make, "-q", "-F", "-t", "ext4", "-d", hostile, packed, "30M"], check=True)
        given = packed
    ended = sexton(command, "--root", given, preexec_fn=_bounded)
    quiet(ended, (1,))
    assert b"ecs.service" in ended.stdout
    assert b"\x1b" not in ended.stdout
    assert b"PATH=" not in ended.stdout, "this process's own environment"


UNKNOWN = ("unneeded_units", "restart_without_backoff", "kubelet_config")


def many_units(root: Path) -> Path:
    """Sixty units that would not pass."""
    for number in range(60):
        unit = root / f"etc/systemd/system/loop-{number:02}.service"
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text("[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=10\n")
        wants = root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit.name).symlink_to(f"../{unit.name}")
    return root


@pytest.mark.parametrize("features", ["metadata_csum", "^metadata_csum"])
def test_a_damaged_disk_never_passes(
    healthy: Path, tmp_path: Path, features: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four bytes hid all of them, and the gate opened without a word."""
    make = need("mke2fs", package="e2fsprogs")
    disk = tmp_path / "disk"
    command = [make, "-q", "-F", "-t", "ext4", "-b", "4096", "-O", features]
    subprocess.run([*command, "-d", many_units(healthy), disk, "20M"], check=True)
    raw = bytearray(disk.read_bytes())
    for kind in (1, 7):  # the files, and the links that enable them
        at = next(
            at
            for at in range(0, len(raw), 4)
            if raw[at + 8 : at + 13] == b"loop-" and raw[at + 6 : at + 8] == bytes((15, kind))
        )
        rest = 4096 - at % 4096 - (0 if features.startswith("^") else 12)
        raw[at + 4 : at + 6] = rest.to_bytes(2, "little")
    disk.write_bytes(raw)
    ended = sexton("gate", "--root", disk, "--json")
    quiet(ended, (1,))
    assert {rules(ended)[rule] for rule in UNKNOWN} == {"unknown"}
    assert b"damaged ext4 file system" in ended.stdout
    assert main(["audit", "--root", str(disk)]) == 3
    assert "UNREAD" in capsys.readouterr().out


@pytest.mark.parametrize("packing", ["w", "w:gz"])
def test_a_tar_that_was_cut_between_members_never_passes(
    healthy: Path, tmp_path: Path, packing: str
) -> None:
    packed = tmp_path / "image.tar"
    with tarfile.open(packed, "w") as out:
        out.add(healthy, ".")
        end = out.offset
        out.add(many_units(tmp_path / "more"), ".")
    content = packed.read_bytes()[:end]
    packed.write_bytes(gzip.compress(content) if packing == "w:gz" else content)
    ended = sexton("gate", "--root", packed, "--json")
    quiet(ended, (1,))
    assert {rules(ended)[rule] for rule in UNKNOWN} == {"unknown"}
    assert b"without its end marker" in ended.stdout
    assert main(["audit", "--root", str(packed)]) == 3


def test_units_that_may_not_be_read_are_unknown_and_not_absent(healthy: Path) -> None:
    unit = healthy / "usr/lib/systemd/system/large.service"
    unit.write_bytes(b"[Service]\nRestart=always\n" + b"#" * (2 << 20))
    wants = healthy / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit.name).symlink_to(f"/usr/lib/systemd/system/{unit.name}")
    ended = sexton("gate", "--root", healthy, "--json")
    quiet(ended, (1,))
    assert rules(ended)["restart_without_backoff"] == "unknown"
    assert rules(ended)["kubelet_config"] == "pass"
    assert main(["audit", "--root", str(healthy)]) == 3


def test_four_changed_bytes_of_a_disk_without_checksums_do_not_open_the_gate(
    tmp_path: Path,
) -> None:
    """The entry `system` of /usr/lib/systemd without its inode: no unit is found any more."""
    root = image(tmp_path / "image")
    disk = tmp_path / "disk"
    command = [need("mke2fs", package="e2fsprogs"), "-q", "-F", "-t", "ext2", "-b", "1024", "-d"]
    subprocess.run([*command, str(root), str(disk), "4M"], check=True)
    intact = sexton("gate", "--root", disk)
    quiet(intact, (0,))
    assert b"no checksums" in intact.stdout
    raw = disk.read_bytes()
    at = re.search(rb"[^\0]\0\0\0..\x06\x02system", raw, re.DOTALL)
    assert at is not None
    disk.write_bytes(raw[: at.start()] + bytes(4) + raw[at.start() + 4 :])
    ended = sexton("gate", "--root", disk)
    quiet(ended, (1,))
    assert b"damaged ext4 file system" in ended.stdout
