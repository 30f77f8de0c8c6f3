"""``make bench``: measure, print and write `bench/out/table.md` and the README's table.

Every number is a ratio against a peer measured in the same run, with the promise beside it. A
promise that is missed is printed as missed; nothing here asserts, so that a slow machine fails no
test.
"""

from __future__ import annotations

import compileall
import os
import platform
import re
import sys
from pathlib import Path

import sexton
from bench.crowd import crowd
from bench.measure import Measured, census, diagnose_cost, start_up, watchers

OUT = Path(__file__).parent / "out" / "table.md"
README = Path(__file__).parents[1] / "README.md"
_BLOCK = re.compile(r"(<!-- bench table: begin -->\n).*?(<!-- bench table: end -->)", re.DOTALL)


def main() -> int:
    if os.geteuid() != 0:
        print("make bench makes 10,000 cgroups of its own: run it as root", file=sys.stderr)
        return 2
    compileall.compile_dir(Path(sexton.__file__).parent, quiet=2)  # as installed, not as edited
    results: list[Measured] = []

    def take(measured: Measured) -> None:
        results.append(measured)
        print(measured.row(), flush=True)

    print(_HEAD, flush=True)
    take(start_up())
    take(census(10_000))
    with crowd(processes=1_000, cgroups=1_000):
        for measured in diagnose_cost(5):
            take(measured)
        for measured in watchers(5):
            take(measured)
    OUT.parent.mkdir(exist_ok=True)
    rows = "\n".join(each.row() for each in results)
    where = f"{platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = f"Measured by `make bench` on Linux {where}.\n\n{_HEAD}\n{rows}\n"
    OUT.write_text(table)
    README.write_text(_BLOCK.sub(lambda found: f"{found[1]}{table}{found[2]}", README.read_text()))
    missed = [each for each in results if each.missed]
    print(
        f"\nwrote {OUT.relative_to(OUT.parents[2])} and README.md; {len(missed)} promise(s) missed"
    )
    return 0


_HEAD = """\
| what | here | peer | ratio | promised |
|---|---|---|---|---|"""

raise SystemExit(main())
