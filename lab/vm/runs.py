"""Plays scenes in a machine: boots it, follows its progress, collects the recordings."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.scenes import NAMES, load
from lab.vm import cable, payload
from lab.vm.boot import Bootable, bootable
from lab.vm.cache import cache_folder, lock_cache
from lab.vm.kernels import Kernel, check_hierarchy, kernel_named
from lab.vm.machine import Disks, GuestTimeout, Machine, command_line
from lab.vm.results import Outcome, make_disk, unpack
from lab.vm.rootfs import base_tree, root_image
from lab.vm.tools import LabError, log, require
from sexton.model.text import printable, shorten

BOOT_S = 300
#: A guest without any line for this long, not even a heartbeat, is frozen.
BEAT_S = 300
#: Exit status of lab.play if a scene cannot be played on a machine.
UNFIT = 3
#: After its deadline a guest still packs its results.
_PACKING_S = 180
_OFF_S = 60


@dataclass(frozen=True, slots=True)
class Parts:
    """The cached parts of a machine."""

    kernel: Bootable
    root: Path
    site: Path


@dataclass(frozen=True, slots=True)
class Run:
    """One boot: kernel, hierarchy, scenes, and the directory for results."""

    kernel: Kernel
    hierarchy: str
    job: payload.Job
    out: Path

    @property
    def name(self) -> str:
        return f"{self.kernel.name}-{self.hierarchy}"

    @property
    def console(self) -> Path:
        """A boot for one scene has the scene in its name, because there may be several such
        boots."""
        prefix = f"{self.job.scenes[0]}-" if len(self.job.scenes) == 1 else ""
        return self.out / f"console-{prefix}{self.name}.log"

    def folder(self, scene: str, good: bool) -> Path:
        """The suffix of a failed scene's folder keeps it from being taken for an incident."""
        return self.out / f"{scene}-{self.name}{'' if good else '.failed'}"


def prepare(name: str) -> Parts:
    """Build whatever is missing for a kernel."""
    kernel = kernel_named(name)
    cache = cache_folder()
    with lock_cache(cache):
        root = root_image(cache)
        busybox = base_tree(cache) / "bin/busybox"
        return Parts(bootable(cache, kernel, busybox), root, payload.site_tree(cache))


def plan(kernel: str, hierarchy: str, job: payload.Job, out: Path) -> Run:
    found = kernel_named(kernel)
    check_hierarchy(found, hierarchy)
    for scene in job.scenes:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_]*", scene):
            raise LabError(f"invalid scene name {scene!r}")
    if len(set(job.scenes)) != len(job.scenes):
        raise LabError("a scene is listed twice; its second recording would replace the first")
    return Run(found, hierarchy, job, out)


def play(run: Run) -> list[Outcome]:
    """Play all scenes of the job in one boot."""
    require("qemu-system-x86_64", "setpriv")
    parts = prepare(run.kernel.name)
    run.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".vm-", dir=run.out) as name:
        folder = Path(name)
        disks = _disks(parts, run.job, folder)
        log(f"{run.name}: booting {parts.kernel.release}")
        with ExitStack() as stack:
            more: tuple[str, ...] = ()
            scenes = [load(scene) for scene in run.job.scenes if scene in NAMES]
            if any("cable" in scene.NEEDS for scene in scenes):
                # Under /tmp, because a UNIX socket's path must be short.
                place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "cable"
                stack.enter_context(cable.Cable(place))
                more = cable.options(place)
            words = [run.kernel.arguments, *(getattr(scene, "KERNEL", "") for scene in scenes)]
            kernel = replace(run.kernel, arguments=" ".join(filter(None, words)))
            command = command_line(kernel, run.hierarchy, disks, run.console, more)
            progress = follow(stack.enter_context(Machine(command, folder / "errors")), run)
        return _collect(run, progress, disks.results)


def _disks(parts: Parts, job: payload.Job, folder: Path) -> Disks:
    initramfs = folder / "initramfs"
    packed = payload.payload(parts.site, job)
    initramfs.write_bytes(parts.kernel.initramfs.read_bytes() + packed)
    results = folder / "results.img"
    make_disk(results, len(job.scenes), job.slot_mb)
    return Disks(parts.kernel.image, initramfs, parts.root, parts.kernel.modules, results)


@dataclass(slots=True)
class Progress:
    """Progress that the guest reported."""

    ready: bool = False
    playing: str | None = None
    #: scene → exit status and seconds
    played: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Why the machine stopped early; empty if it finished.
    trouble: str = ""


def follow(machine: Machine, run: Run) -> Progress:
    """Read the guest's lines until the machine is off or a deadline passes."""
    progress = Progress()
    over = False
    wait: float = BOOT_S
    since = time.monotonic()
    while True:
        left = max(0.0, since + wait - time.monotonic())
        try:
            line = machine.line(min(left, BEAT_S))
        except GuestTimeout:
            # After "over" a QEMU that does not power off is harmless.
            silent = f"nothing heard for {min(wait, BEAT_S):.0f} s"
            late = f"not done within {wait:.0f} s"
            progress.trouble = (
                "" if over else f"{_doing(progress)}: {silent if left > BEAT_S else late}"
            )
            return progress
        if line is None:
            progress.trouble = "" if over else _why_off(machine, progress, run.console)
            return progress
        if line == "beat":
            continue
        since = time.monotonic()
        match line.split():
            case ["ready", release, uptime]:
                progress.ready = True
                log(f"{run.name}: up after {uptime} s of its own time ({release})")
                wait = run.job.settle_s + _PACKING_S
            case ["scene", scene]:
                progress.playing = scene
                log(f"{run.name}: playing {scene}")
                wait = run.job.deadline_s + _PACKING_S
            case ["played", scene, code, seconds] if code.isdigit() and seconds.isdigit():
                progress.played[scene] = (int(code), int(seconds))
                progress.playing = None
                log(f"{run.name}: {scene} {verdict(int(code))} after {seconds} s")
                wait = _PACKING_S
            case ["over"]:
                over = True
                wait = _OFF_S
            case ["failed", *why]:
                progress.trouble = " ".join(why)
                return progress
            case _:
                log(f"{run.name}: unexpected line from the guest: {line!a}")


def verdict(code: int) -> str:
    """Meaning of an exit status of lab.play, or of the timeout around it."""
    if code in (124, 137):
        return "did not end in time"
    if code == UNFIT:
        return "cannot be played here"
    return "played" if code == 0 else f"failed with status {code}"


def _doing(progress: Progress) -> str:
    if progress.playing:
        return f"while playing {progress.playing}"
    return "between scenes" if progress.ready else "while booting"


def _why_off(machine: Machine, progress: Progress, console: Path) -> str:
    """The reason: a kernel panic from the console, or QEMU's error output."""
    words = machine.last_error()
    try:
        log = console.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        log = []
    panics = [line.strip() for line in log if "Kernel panic" in line or line.startswith("lab: ")]
    reason = (panics or [words])[0]
    return f"{_doing(progress)}: the machine went off" + (f": {reason}" if reason else "")


def _collect(run: Run, progress: Progress, disk: Path) -> list[Outcome]:
    outcomes = []
    for slot, scene in enumerate(run.job.scenes):
        if scene not in progress.played:
            reason = progress.trouble or "not played: the scene before it had to be killed"
            outcomes.append(Outcome(scene, run.kernel.name, run.hierarchy, reason))
            continue
        code, seconds = progress.played[scene]
        folder = run.folder(scene, good=code == 0)
        words = verdict(code)
        try:
            unpack(disk, slot, run.job.slot_mb, folder)
        except LabError as error:
            words = str(error)
        else:
            if code == 0:  # an earlier failure is no longer of interest
                shutil.rmtree(run.folder(scene, good=False), ignore_errors=True)
            else:
                words = f"{words}: {_last_line(folder / 'play.log')}"
        unfit = code == UNFIT
        if unfit:
            shutil.rmtree(folder, ignore_errors=True)
        outcomes.append(
            Outcome(scene, run.kernel.name, run.hierarchy, words, seconds, folder, unfit)
        )
    return outcomes


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0 if all were played and diagnosed correctly, 1 if one failed or was diagnosed wrong, 3 if
    some cannot be played here."""
    if any(one.wrong for one in outcomes):
        return 1
    if all(one.good for one in outcomes):
        return 0
    return 3 if all(one.good or one.unfit for one in outcomes) else 1


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    return shorten(printable(lines[-1].strip()), 160) if lines else "no output"


def scenes_of(lab: Path) -> Sequence[str]:
    """All scenes, by name."""
    return sorted(path.parent.name for path in (lab / "scenes").glob("*/scene.py"))
