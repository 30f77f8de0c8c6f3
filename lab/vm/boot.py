"""A bootable kernel: its image, an initramfs with drivers, and a disk with its modules."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path

from lab.vm import archive
from lab.vm.cache import build_folder, key
from lab.vm.cpio import Cpio
from lab.vm.kernels import Kernel, newest
from lab.vm.payload import GUEST
from lab.vm.rootfs import make_image
from lab.vm.tools import LabError, log, require, run

#: Needed to mount the root file system and for the NIC.
DRIVERS = ("virtio_pci", "virtio_blk", "virtio_net", "ext4")
_FOLDERS = ("bin", "proc", "sys", "dev", "newroot", "payload")


@dataclass(frozen=True, slots=True)
class Bootable:
    """The files of one kernel, in its folder of the cache."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs.gz"

    @property
    def modules(self) -> Path:
        return self.folder / "modules.img"

    @property
    def release(self) -> str:
        return str(json.loads((self.folder / "about.json").read_text())["release"])


def bootable_folder(cache: Path, kernel: Kernel) -> Path:
    init = (GUEST / "init").read_bytes()
    recipe = key("kernel", kernel.suite, *kernel.packages, init, *DRIVERS)
    return cache / f"kernel-{kernel.name}-{recipe}"


def bootable(cache: Path, kernel: Kernel, busybox: Path) -> Bootable:
    """The kernel, downloaded if it is not cached. Call only while holding `lock_cache`."""
    final = bootable_folder(cache, kernel)
    if final.exists():
        return Bootable(final)
    require("apt-get", "dpkg-deb", "depmod", "modprobe", "mkfs.ext4")
    with build_folder(final) as folder:
        suite = archive.Suite(kernel.suite, folder / "apt")
        suite.update(archive.mirror())
        names = suite.names()
        packages = [newest(pattern, names) for pattern in kernel.packages]
        if None in packages:
            raise LabError(f"{kernel.suite} has no package for {kernel.name} (cloud-amd64)")
        debs = suite.download([name for name in packages if name])
        tree, made = folder / "tree", folder / "made"
        made.mkdir()
        for deb in debs:
            run(["dpkg-deb", "--extract", deb, tree])
        release = _make_boot_files(tree, made, busybox)
        about = {"release": release, "suite": kernel.suite, "packages": [d.name for d in debs]}
        (made / "about.json").write_text(json.dumps(about, indent=1) + "\n")
        made.rename(final)
    log(f"kernel {kernel.name} is {release}")
    return Bootable(final)


def _make_boot_files(tree: Path, made: Path, busybox: Path) -> str:
    """Turn the unpacked packages into files for QEMU; returns the kernel's release."""
    # Newer packages have only /usr/lib/modules, older ones only /lib/modules.
    if not (tree / "lib").exists():
        (tree / "lib").symlink_to("usr/lib")
    releases = [path.name for path in (tree / "lib/modules").iterdir()]
    images = [*tree.glob("boot/vmlinuz*"), *tree.glob("lib/modules/*/vmlinuz")]
    if len(releases) != 1 or not images:
        raise LabError(f"the kernel packages have {len(releases)} releases, {len(images)} images")
    release = releases[0]
    run(["depmod", "--basedir", tree, release])
    images[0].rename(made / "vmlinuz")
    (made / "initramfs.gz").write_bytes(_initramfs(tree, release, busybox))
    make_image(tree / "lib/modules", made / "modules.img", spare_mb=16)
    return release


def _initramfs(tree: Path, release: str, busybox: Path) -> bytes:
    cpio = Cpio()
    for name in _FOLDERS:
        cpio.folder(name)
    cpio.file("bin/busybox", busybox.read_bytes(), 0o755)
    cpio.file("init", (GUEST / "init").read_bytes(), 0o755)
    paths: dict[str, None] = {}
    for driver in DRIVERS:
        paths |= dict.fromkeys(insmods(_depends(tree, release, driver)))
    for number, path in enumerate(paths):
        name, content = module(Path(path))
        cpio.file(f"drivers/{number:02}-{name}", content)
    return cpio.packed()


def _depends(tree: Path, release: str, driver: str) -> str:
    try:
        return run(
            ["modprobe", "--dirname", tree, "--set-version", release, "--show-depends", driver]
        )
    except LabError as error:
        # 7.x packages have no modules.builtin, so a missing module counts as built in. If it is
        # not, init reports the disk that it cannot find.
        if "not found in directory" in str(error):
            return ""
        raise


def insmods(shown: str) -> list[str]:
    """The files that modprobe would load, in order; built-in drivers need none.

    >>> insmods("insmod /lib/modules/6.1/virtio.ko \\nbuiltin ext4\\n")
    ['/lib/modules/6.1/virtio.ko']
    """
    lines = (line.split(maxsplit=1) for line in shown.splitlines())
    return [words[1].strip() for words in lines if len(words) == 2 and words[0] == "insmod"]


def module(path: Path) -> tuple[str, bytes]:
    """A module's name and its decompressed bytes, for insmod."""
    content = path.read_bytes()
    if path.suffix == ".xz":
        return path.stem, lzma.decompress(content)
    if path.suffix == ".ko":
        return path.name, content
    raise LabError(f"{path.name}: unknown compression")
