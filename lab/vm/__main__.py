"""``python -m lab.vm``: build the lab's machines, and play scenes on real kernels."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path

from lab.vm import runs, verdicts
from lab.vm.boot import bootable_folder
from lab.vm.cache import cache_folder, lock_cache
from lab.vm.kernels import HIERARCHIES, KERNELS, MATRIX, kernel_named
from lab.vm.payload import Job
from lab.vm.results import Outcome, mistakes, table
from lab.vm.rootfs import PROJECT
from lab.vm.tools import LabError, log


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    # Clean up on SIGTERM as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.verb == "build":
            return build(args.kernels or list(KERNELS), args.refresh)
        if args.verb == "run":
            return play([(args.kernel, args.hierarchy)], args)
        return play([pair(word) for word in args.on] if args.on else list(MATRIX), args)
    except LabError as error:
        sys.stderr.write(f"lab: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("lab: interrupted; the machine is off and its disks are deleted\n")
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m lab.vm", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build", help="build the root file system and kernels, once")
    build.add_argument("kernels", nargs="*", metavar="KERNEL", help=", ".join(KERNELS))
    build.add_argument("--refresh", action="store_true", help="fetch the newest kernels again")
    run = verbs.add_parser("run", help="play scenes on one kernel")
    run.add_argument("kernel", metavar="KERNEL", help=", ".join(KERNELS))
    run.add_argument("hierarchy", metavar="HIERARCHY", help=", ".join(HIERARCHIES))
    matrix = verbs.add_parser("matrix", help="play scenes on every kernel and hierarchy")
    matrix.add_argument(
        "--on", nargs="+", metavar="KERNEL-HIERARCHY", help="only these, e.g. 6.1-v2 5.10-v1"
    )
    for verb in (run, matrix):
        verb.add_argument("scenes", nargs="+", metavar="SCENE", help="scene ids, or: all")
        verb.add_argument("--out", type=Path, required=True, help="directory for recordings")
        verb.add_argument("--boot-each", action="store_true", help="reboot for every scene")
        verb.add_argument(
            "--deadline",
            type=int,
            default=1800,
            metavar="S",
            help="seconds per scene (default: 1800)",
        )
        verb.add_argument(
            "--live", action="store_true", help="also diagnose in the guest, at the end of a scene"
        )
    return top


def pair(word: str) -> tuple[str, str]:
    """
    >>> pair("6.1-v2")
    ('6.1', 'v2')
    """
    kernel, _, hierarchy = word.rpartition("-")
    return kernel, hierarchy


def build(names: list[str], refresh: bool) -> int:
    kernels = [kernel_named(name) for name in names]
    cache = cache_folder()
    if refresh:
        with lock_cache(cache):
            for kernel in kernels:
                shutil.rmtree(bootable_folder(cache, kernel), ignore_errors=True)
    for kernel in kernels:
        parts = runs.prepare(kernel.name)
        log(f"{kernel.name}: {parts.kernel.release} is ready")
    return 0


def play(pairs: list[tuple[str, str]], args: argparse.Namespace) -> int:
    scenes: list[str] = args.scenes
    if scenes == ["all"]:
        scenes = list(runs.scenes_of(PROJECT / "lab"))
    boots = [(scene,) for scene in scenes] if args.boot_each else [tuple(scenes)]
    jobs = [Job(boot, args.deadline, live=args.live) for boot in boots]
    planned = [
        runs.plan(kernel, hierarchy, job, args.out.resolve())
        for kernel, hierarchy in pairs
        for job in jobs
    ]
    outcomes: list[Outcome] = []
    for run in planned:
        outcomes += [verdicts.with_verdict(one) for one in runs.play(run)]
    print(table(outcomes))
    for line in mistakes(outcomes):
        print(line)
    return runs.exit_status(outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
