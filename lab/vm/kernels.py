"""The kernels, how each boots, and how to select a cgroup hierarchy.

Only tested combinations are listed. Debian's cloud kernels boot fastest. QEMU 7.2 (bookworm's) has
trouble with newer kernels: 6.12 died within two minutes under parallel software emulation, and once
more with one thread (corrupted EFLAGS, a broken SLUB list), until CMPXCHG16B was disabled. It is
disabled in the kernel, because without it in the processor (``cx16=off``) numpy 2.4 refuses to
start. 7.x needs only the single thread. QEMU 7.2 is also the first that emulates AVX, and numpy's
sorting gave wrong results with it (an index out of range, where the host decoded the same file
correctly): every machine runs without AVX.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lab.vm.tools import LabError

_CPU = ",".join(
    ["max", *(f"{name}=off" for name in ("avx", "avx2", "fma", "f16c", "vaes", "vpclmulqdq"))]
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One of Debian's kernels: its suite, packages and boot options."""

    name: str
    suite: str
    #: One pattern per package: an image, or since 7.x a binary and its modules.
    packages: tuple[str, ...]
    accel: str = "tcg,thread=multi"
    cpu: str = _CPU
    #: More kernel command-line arguments.
    arguments: str = ""
    #: Debian built it with a memory controller for cgroup v1 (CONFIG_MEMCG_V1 is off since 6.12).
    memory_on_v1: bool = True


def _cloud(kind: str, version: str) -> str:
    return rf"linux-{kind}-{re.escape(version)}\.[0-9a-z.+-]*cloud-amd64"


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("5.10", "bullseye", (_cloud("image", "5.10"),)),
        Kernel("6.1", "bookworm", (_cloud("image", "6.1"),)),
        Kernel(
            "6.12",
            "trixie",
            (_cloud("image", "6.12"),),
            accel="tcg,thread=single",
            arguments="clearcpuid=cx16",
            memory_on_v1=False,
        ),
        Kernel(
            "7.x",
            "sid",
            (_cloud("binary", "7"), _cloud("modules", "7")),
            accel="tcg,thread=single",
            memory_on_v1=False,
        ),
    )
}

#: Kernel command-line arguments for systemd 252.
HIERARCHIES = {
    "v1": "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1",
    "hybrid": "systemd.unified_cgroup_hierarchy=0",
    "v2": "systemd.unified_cgroup_hierarchy=1",
}

#: The whole matrix: each kernel on each hierarchy that adds information.
MATRIX = (
    ("5.10", "v1"),
    ("5.10", "hybrid"),
    ("5.10", "v2"),
    ("6.1", "v1"),
    ("6.1", "hybrid"),
    ("6.1", "v2"),
    ("6.12", "v2"),
    ("7.x", "v2"),
)


def kernel_named(name: str) -> Kernel:
    if name not in KERNELS:
        raise LabError(f"unknown kernel {name!r}; known: {', '.join(KERNELS)}")
    return KERNELS[name]


def check_hierarchy(kernel: Kernel, hierarchy: str) -> None:
    if hierarchy not in HIERARCHIES:
        raise LabError(f"unknown hierarchy {hierarchy!r}; known: {', '.join(HIERARCHIES)}")
    if hierarchy != "v2" and not kernel.memory_on_v1:
        raise LabError(
            f"Debian's {kernel.name} has no memory controller for cgroup v1 "
            f"(CONFIG_MEMCG_V1 is not set); use v2"
        )


def newest(pattern: str, names: Iterable[str]) -> str | None:
    """The newest package whose whole name matches, numbers compared as numbers.

    >>> newest("linux-image-6.*", ["linux-image-6.9-x", "linux-image-6.10-x", "linux-doc-6.11"])
    'linux-image-6.10-x'
    """
    fitting = [name for name in names if re.fullmatch(pattern, name)]
    return max(fitting, key=lambda name: [int(n) for n in re.findall(r"\d+", name)], default=None)
