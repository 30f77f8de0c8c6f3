"""The root file system for all kernels: Debian 12 with systemd, perf, runc and Python wheels.

Built in three cached steps: the debootstrap tree, the project's Python dependencies (unpacked on
this machine, never under emulation), and a disk image of both. The project itself is not in it: it
comes with each run (see payload.py), so a code change rebuilds nothing here.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

from lab.vm import archive
from lab.vm.cache import build_folder, key
from lab.vm.tools import LabError, log, require, run

SUITE = "bookworm"
#: The suite's Python version, which the wheels must match.
PYTHON = "3.11"
PLATFORMS = ("manylinux_2_36_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64")
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "kmod",
    "ethtool",
    "iproute2",
    "procps",
    "busybox-static",
    "python3",
    "linux-perf",
    "runc",
)
PROJECT = Path(__file__).parents[2]
#: Timers that would disturb a small machine.
_UNWANTED = ("apt-daily", "dpkg-db-backup", "e2scrub", "fstrim")
_FILES = {
    "etc/hostname": "lab\n",
    "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 lab\n::1 localhost\n",
    "etc/machine-id": "5e470000000000000000000000001ab0\n",
    "etc/fstab": "",
    "etc/systemd/journald.conf.d/lab.conf": "[Journal]\nStorage=volatile\n",
    "usr/local/bin/sexton": (
        "#!/usr/bin/python3\nfrom sexton.cli.main import command\nraise SystemExit(command())\n"
    ),
}


def base_key() -> str:
    return key("base", SUITE, *PACKAGES)


def wheels_key() -> str:
    constraints = (PROJECT / "constraints.txt").read_bytes()
    return key("wheels", PYTHON, *PLATFORMS, constraints, *requirements())


def image_key() -> str:
    files = json.dumps(_FILES, sort_keys=True)
    return key("image", base_key(), wheels_key(), files, *_UNWANTED, _IMAGE)


#: Increase it when the way the image is built changes.
_IMAGE = "1"


def requirements() -> list[str]:
    """Dependencies of the project as a node installs it (``sexton[node]``), from pyproject.toml."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    pending, wanted = [*project["dependencies"], "sexton[node]"], set()
    while pending:
        text = pending.pop()
        if text.startswith("sexton["):
            for extra in text.removeprefix("sexton[").removesuffix("]").split(","):
                pending += project["optional-dependencies"][extra]
        else:
            wanted.add(text)
    return sorted(wanted)


def root_image(cache: Path) -> Path:
    """The image's path, built if missing. Call only while holding `lock_cache`."""
    image = cache / f"root-{image_key()}.img"
    if image.exists():
        return image
    require("mkfs.ext4", "cp", "unshare")
    tree, wheels = base_tree(cache), wheel_tree(cache)
    log("building the root image")
    with build_folder(image) as folder:
        root = folder / "root"
        run(["cp", "--archive", "--reflink=auto", tree, root])
        run(["cp", "--archive", f"{wheels}/.", root / SITE])
        _configure(root)
        # Compiled by the guest's Python on this machine, because importing is slow under emulation.
        compiler = ["python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        run(["unshare", "--mount", "--", "chroot", root, *compiler, f"/{SITE}"])
        make_image(root, folder / "made.img", spare_mb=1024)
        (folder / "made.img").rename(image)
    return image


def base_tree(cache: Path) -> Path:
    tree = cache / f"base-{base_key()}"
    if tree.exists():
        return tree
    if os.geteuid() != 0:
        raise LabError("debootstrap needs root: sudo python -m lab.vm build (`run` does not)")
    require("debootstrap", "unshare")
    url = archive.mirror()
    log(f"debootstrap {SUITE} with {', '.join(PACKAGES)}")
    with build_folder(tree) as folder:
        made = folder / "root"
        # In a mount namespace, so that its mounts disappear with it, also after a failure.
        run(
            [
                "unshare",
                "--mount",
                "--",
                "debootstrap",
                "--variant=minbase",
                "--arch=amd64",
                f"--keyring={archive.keyring()}",
                f"--include={','.join(PACKAGES)}",
                SUITE,
                str(made),
                url,
            ],
            env=archive.proxies(),
        )
        for lists in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(made / lists, ignore_errors=True)
            (made / lists / "partial").mkdir(parents=True)
        made.rename(tree)
    return tree


def wheel_tree(cache: Path) -> Path:
    """The dependencies, unpacked as in the guest."""
    tree = cache / f"wheels-{wheels_key()}"
    if tree.exists():
        return tree
    log(f"pip: {' '.join(requirements())} for Python {PYTHON}")
    with build_folder(tree) as folder:
        install(requirements(), folder / "site")
        (folder / "site").rename(tree)
    return tree


def install(what: list[str], target: Path, *options: str) -> None:
    """Unpack wheels for the guest's Python, whichever Python runs this."""
    fitting = [word for name in (*PLATFORMS, "linux_x86_64") for word in ("--platform", name)]
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "--only-binary=:all:",
            "--implementation",
            "cp",
            "--python-version",
            PYTHON,
            *fitting,
            "--target",
            str(target),
            *options,
            *what,
        ],
        # A relative path, because pip splits the variable at spaces.
        env={"PIP_CONSTRAINT": "constraints.txt"},
        cwd=PROJECT,
    )
    shutil.rmtree(target / "bin", ignore_errors=True)  # scripts for this machine's Python


def _configure(root: Path) -> None:
    for name, content in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(content)
        path.chmod(0o755 if content.startswith("#!") else 0o644)
    for wants in (root / "etc/systemd/system").glob("*.wants"):
        for unit in wants.iterdir():
            if unit.name.startswith(_UNWANTED):
                unit.unlink()


def make_image(tree: Path, image: Path, spare_mb: int) -> None:
    """An ext4 image of a folder, built without mounting anything."""
    used = sum(
        -(-path.lstat().st_size // 4096) * 4096 + 512
        for path in tree.rglob("*")
        if not path.is_dir() or path.is_symlink()
    )
    with image.open("wb") as file:
        file.truncate((used * 11 // 10 + spare_mb * 1024**2) // 4096 * 4096)
    run(
        [
            "mkfs.ext4",
            "-q",
            "-F",
            "-m",
            "0",
            "-E",
            "root_owner=0:0,lazy_itable_init=1",
            "-d",
            str(tree),
            str(image),
        ]
    )
