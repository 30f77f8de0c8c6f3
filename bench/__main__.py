"""``make bench``: measure, print and write `bench/out/table.md`, docs/bench.md and README's rows.

Every number is a ratio against a peer measured in the same run, with its promise. A missed promise
is printed as missed; nothing here asserts, so that a slow machine fails no test. ``python -m bench
recorder`` measures only the recorder; so do ``exporter``, ``profile``, ``web`` and ``house``. A
partial run is written to its own file, because docs/bench.md shows only complete runs.
"""

from __future__ import annotations

import argparse
import compileall
import os
import platform
import re
import signal
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import FrameType

import sexton
from bench.crowd import crowd
from bench.measure import census, diagnose_cost, start_up, watchers
from bench.recorder.plan import add_options, plan
from bench.recorder.report import measure
from bench.table import HEAD, Measured

OUT = Path(__file__).parent / "out"
ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "bench.md"
_ROWS = re.compile(r"(?<=<!-- bench rows: begin -->\n).*?(?=<!-- bench rows: end -->)", re.DOTALL)
_BLOCK = re.compile(r"(<!-- bench table: begin -->\n).*?(<!-- bench table: end -->)", re.DOTALL)
WHAT = ("house", "recorder", "exporter", "profile", "web")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="*", metavar="WHAT", help=f"any of {', '.join(WHAT)} (default: all)"
    )
    parser.add_argument("--samples", type=int, default=800_000, help="in the profile's capture")
    add_options(parser)
    options = parser.parse_args(arguments)
    wanted = options.what or list(WHAT)
    if set(wanted) - set(WHAT):
        parser.error(f"WHAT must be one of {', '.join(WHAT)}")
    planned = plan(options)
    if os.geteuid() != 0:
        print("make bench creates 10,000 cgroups: run it as root", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)
    compileall.compile_dir(Path(sexton.__file__).parent, quiet=2)  # as installed, not as edited
    results: list[Measured] = []
    notes: list[str] = []

    def take(measured: Measured) -> None:
        results.append(measured)
        print(measured.row(), flush=True)

    print(HEAD, flush=True)
    if "house" in wanted:
        _house(take)
    if "recorder" in wanted:
        notes += measure(planned, take).notes
    if "exporter" in wanted:
        with crowd(processes=1_000, cgroups=1_000):
            from bench import exporter  # late, as below

            exporter.measure(planned.sexton, take)
    if "profile" in wanted:
        # Imported late: the crowd's thousand processes are copies of this one, and perf records
        # every library that each of them maps.
        from bench.profile.report import measure as measure_profile

        notes += measure_profile(options.samples, take)
    if "web" in wanted:
        from bench.web.report import measure as measure_web

        measure_web(planned, take)
    for text in notes:
        print(f"\n{text}", flush=True)
    _write(results, notes, None if set(wanted) == set(WHAT) else wanted[0])
    missed, unmeasured = (
        sum(result.missed for result in results),
        sum(result.unmeasured for result in results),
    )
    print(f"{missed} promise(s) missed, {unmeasured} not measured")
    return 0


def _house(take: Callable[[Measured], None]) -> None:
    take(start_up())
    take(census(10_000))
    with crowd(processes=1_000, cgroups=1_000):
        for measured in diagnose_cost(5):
            take(measured)
        for measured in watchers(5):
            take(measured)


def _write(results: list[Measured], notes: list[str], part: str | None) -> None:
    where = f"{platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    rows = "\n".join([HEAD, *(result.row() for result in results)])
    head = f"Measured by `make bench` on {date.today()} on Linux {where}."
    text = "\n\n".join([head, rows, *notes]) + "\n"
    OUT.mkdir(exist_ok=True)
    if part is not None:
        (OUT / f"{part}.md").write_text(text)
        print(f"\nwrote bench/out/{part}.md")
        return
    (OUT / "table.md").write_text(text)
    PAGE.write_text(_BLOCK.sub(lambda found: f"{found[1]}{text}{found[2]}", PAGE.read_text()))
    when = f"Measured on {date.today()} on {os.cpu_count()} cores."
    README.write_text(with_new_rows(README.read_text(), rows, when))
    print("\nwrote bench/out/table.md, docs/bench.md and the rows in README.md")


def with_new_rows(readme: str, table: str, when: str) -> str:
    """README.md with each of its rows replaced by the first row of the table with the same label.

    >>> shown = "<!-- bench rows: begin -->\\n| walk (2 s) | 9 s |\\n\\nOld.\\n"
    >>> shown += "<!-- bench rows: end -->"
    >>> with_new_rows(shown, "| count | 1 s |\\n| walk (3 s) | 7 s |", "New.").splitlines()[1:4]
    ['| walk (3 s) | 7 s |', '', 'New.']
    """
    new: dict[str, str] = {}
    for row in table.splitlines():
        new.setdefault(_label(row), row)

    def renewed(found: re.Match[str]) -> str:
        rows = [row for row in found[0].splitlines() if row.startswith("|")]
        return "\n".join([*(new.get(_label(row), row) for row in rows), "", when, ""])

    return _ROWS.sub(renewed, readme)


def _label(row: str) -> str:
    """The first cell, without numbers in parentheses."""
    return row.split("|")[1].partition(" (")[0].strip()


def _leave(number: int, _: FrameType | None) -> None:
    """Exit through all cleanups, so that no process of the crowd is left."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main())
