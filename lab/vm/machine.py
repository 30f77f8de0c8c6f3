"""QEMU: its command line, and the running machine."""

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
_NICE = -10
#: Without udev NICs are named eth0; a panic ends QEMU instead of hanging until the deadline.
_COMMAND_LINE = "console=ttyS0 rw panic=-1 net.ifnames=0 systemd.getty_auto=no"


@dataclass(frozen=True, slots=True)
class Disks:
    """The files that the machine boots from, and the disk it writes results to."""

    kernel: Path
    initramfs: Path
    root: Path
    modules: Path
    results: Path


def command_line(
    kernel: Kernel, hierarchy: str, disks: Disks, console: Path, more: Sequence[str] = ()
) -> list[str]:
    """The whole command, with `more` devices. The kernel kills QEMU if the lab dies."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-accel", kernel.accel, "-cpu", kernel.cpu),
        *("-smp", str(CORES), "-m", str(MEMORY_MB)),
        *("-kernel", str(disks.kernel), "-initrd", str(disks.initramfs)),
        *("-append", f"{_COMMAND_LINE} {HIERARCHIES[hierarchy]} {kernel.arguments}"),
        # Writes to the root file system go to an unlinked file that disappears with QEMU.
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
    """A comma would end the value; QEMU reads two as one."""
    return str(path).replace(",", ",,")


def _nice_prefix() -> tuple[str, ...]:
    """As root, run before other work: CPU time that the host takes from a guest's core looks like
    idle time to the guest."""
    return ("nice", "-n", str(_NICE)) if os.geteuid() == 0 else ()


class GuestTimeout(Exception):
    """The guest did not write a line in time."""


class Machine:
    """A running QEMU and the guest's lines on its second serial port."""

    def __init__(self, command: list[str], errors: Path) -> None:
        self._command = command
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._ended = False

    def __enter__(self) -> Machine:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*_nice_prefix(), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PATH": search_path()},
                start_new_session=True,
            )
        with contextlib.suppress(OSError):  # not root, or a kernel without autogroups
            # Sessions compete as a whole (autogroup): without this a nice value has little effect.
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(_NICE))
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
        """The next line, or `None` if the machine is off; raises `GuestTimeout` after `seconds`."""
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

    def last_error(self) -> str:
        """QEMU's last error line, if any."""
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
