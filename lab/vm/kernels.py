"""Which kernels there are, how each is booted, and how a hierarchy is asked for.

This is a table of what was tried, not of what could be. Debian's cloud kernels boot fastest.
QEMU 7.2 (bookworm's) needs care with newer ones: 6.12 died within two minutes under parallel
software emulation, and with one thread once more (a garbled EFLAGS, a broken SLUB list), until
CMPXCHG16B was taken away from it. It is the kernel that is told so: without it in the processor
(``cx16=off``) numpy 2.4 refuses to start. 7.x needs the one thread alone. QEMU 7.2 is also the
first that emulates AVX, and numpy's sorting came out wrong by it (an index beyond its own table,
where the same file was decoded well on the host): every machine goes without.
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
    """One of Debian's kernels: where it is found and what it needs to boot."""

    name: str
    suite: str
    #: One pattern a package: an image, or from 7.x on a binary and its modules.
    packages: tuple[str, ...]
    accel: str = "tcg,thread=multi"
    cpu: str = _CPU
    #: What more it is told on its command line.
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

#: What systemd 252 is told on the kernel's command line.
HIERARCHIES = {
    "v1": "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1",
    "hybrid": "systemd.unified_cgroup_hierarchy=0",
    "v2": "systemd.unified_cgroup_hierarchy=1",
}

#: The whole matrix: each kernel on each hierarchy that tells something new.
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
        raise LabError(f"no kernel {name!r} in the lab; there are: {', '.join(KERNELS)}")
    return KERNELS[name]


def check_hierarchy(kernel: Kernel, hierarchy: str) -> None:
    if hierarchy not in HIERARCHIES:
        raise LabError(f"no hierarchy {hierarchy!r}; there are: {', '.join(HIERARCHIES)}")
    if hierarchy != "v2" and not kernel.memory_on_v1:
        raise LabError(
            f"Debian's {kernel.name} has no memory controller for cgroup v1 "
            f"(CONFIG_MEMCG_V1 is not set); ask for v2"
        )


def newest(pattern: str, names: Iterable[str]) -> str | None:
    """The newest package whose whole name fits, numbers compared as numbers.

    >>> newest("linux-image-6.*", ["linux-image-6.9-x", "linux-image-6.10-x", "linux-doc-6.11"])
    'linux-image-6.10-x'
    """
    fitting = [name for name in names if re.fullmatch(pattern, name)]
    return max(fitting, key=lambda name: [int(n) for n in re.findall(r"\d+", name)], default=None)
