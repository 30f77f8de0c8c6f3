"""QEMU: the command line of one machine, and the machine while it runs."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lab.vm.kernels import HIERARCHIES, Kernel
from lab.vm.tools import search_path

CORES = 2
MEMORY_MB = 1536
_RANK = -10
#: No udev, so names stay eth0; a panic ends QEMU instead of hanging until the deadline.
_COMMAND_LINE = "console=ttyS0 rw panic=-1 net.ifnames=0 systemd.getty_auto=no"


@dataclass(frozen=True, slots=True)
class Disks:
    """What the machine is given to read, and where it writes its results."""

    kernel: Path
    initramfs: Path
    root: Path
    modules: Path
    results: Path


def command_line(
    kernel: Kernel, hierarchy: str, disks: Disks, console: Path, more: Sequence[str] = ()
) -> list[str]:
    """The whole command, with `more` devices. It ends with us: QEMU must not outlive a killed
    lab."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-accel", kernel.accel, "-cpu", kernel.cpu),
        *("-smp", str(CORES), "-m", str(MEMORY_MB)),
        *("-kernel", str(disks.kernel), "-initrd", str(disks.initramfs)),
        *("-append", f"{_COMMAND_LINE} {HIERARCHIES[hierarchy]} {kernel.arguments}"),
        # Writes to the root file system go to a file without a name, gone with QEMU.
        *_disk("root", disks.root, "snapshot=on"),
        *_disk("results", disks.results, "cache=unsafe"),
        *_disk("modules", disks.modules, "readonly=on"),
        *("-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile="),
        *more,
        *("-serial", f"file:{_escaped(console)}", "-serial", "stdio"),
    ]


def _disk(name: str, path: Path, option: str) -> tuple[str, ...]:
    drive = f"if=none,id={name},format=raw,file={_escaped(path)},{option}"
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive={name},serial={name}")


def _escaped(path: Path) -> str:
    """A comma in a name would end it; QEMU takes two for one."""
    return str(path).replace(",", ",,")


def _first() -> tuple[str, ...]:
    """Before other work on this machine, where we may: what the host takes away from a core of the
    guest looks to the guest like a core that did nothing."""
    return ("nice", "-n", str(_RANK)) if os.geteuid() == 0 else ()


class GuestTimeout(Exception):
    """The machine did not say its next word in time."""


class Machine:
    """A running QEMU: what the guest says on its second serial port, line by line."""

    def __init__(self, command: list[str], errors: Path) -> None:
        self._command = command
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._ended = False

    def __enter__(self) -> Machine:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*_first(), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PATH": search_path()},
                start_new_session=True,
            )
        with contextlib.suppress(OSError):  # not root, or a kernel without autogroups
            # A session is weighed as a whole: without this the threads' own rank means little.
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(_RANK))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()

    def line(self, seconds: float) -> str | None:
        """The next line, or None when the machine is off; `GuestTimeout` after `seconds`."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest and not self._ended:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise GuestTimeout
                got = os.read(self._process.stdout.fileno(), 65536)
                self._ended = not got
                self._rest += got
        if b"\n" not in self._rest:
            return None
        raw, _, self._rest = self._rest.partition(b"\n")
        return raw.decode(errors="replace").strip()

    def last_words(self) -> str:
        """What QEMU itself complained about, if it did."""
        said = self._errors.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else ""
