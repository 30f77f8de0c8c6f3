"""The expected output of every surface beside each incident.

::

    python -m lab.golden            says what differs; exit 1 where something does
    python -m lab.golden --update   writes it anew, for review
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.incident import INCIDENTS, Incident, incidents, surfaces


def changes(incident: Incident) -> Iterator[str]:
    """As a diff: from what was reviewed to what is said now."""
    now = surfaces(incident)
    for name, text in now.items():
        golden = incident.path / name
        before = golden.read_text("utf-8") if golden.exists() else ""
        yield from difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"{incident.name}/{name}", "now", lineterm=""
        )


def update(incident: Incident) -> list[str]:
    """Write what is said now; the names of the files that changed."""
    changed = []
    for name, text in surfaces(incident).items():
        golden = incident.path / name
        if not golden.exists() or golden.read_text("utf-8") != text:
            golden.write_text(text, "utf-8")
            changed.append(name)
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.golden")
    parser.add_argument("--update", action="store_true", help="write them anew, for review")
    parser.add_argument("--root", type=Path, default=INCIDENTS)
    parser.add_argument("names", nargs="*", help="only these incidents")
    args = parser.parse_args(arguments)
    chosen = [
        incident
        for incident in incidents(args.root)
        if not args.names or incident.name in args.names
    ]
    differ = 0
    for incident in chosen:
        if args.update:
            changed = update(incident)
            differ += bool(changed)
            for name in changed:
                print(f"wrote {incident.name}/{name}")
            continue
        differences = [*changes(incident)]
        differ += bool(differences)
        for line in differences:
            print(line)
    words = "written anew" if args.update else "differ (make golden-update writes them anew)"
    print(f"{len(chosen)} incidents, {differ} {words}", file=sys.stderr)
    return 1 if differ and not args.update else 0


if __name__ == "__main__":
    sys.exit(main())
