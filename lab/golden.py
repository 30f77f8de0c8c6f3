"""Golden files: the reviewed output of `diagnose` and `why` for each incident.

::

    python -m lab.golden            prints differences; exit 1 if there are any
    python -m lab.golden --update   rewrites the files, for review
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.incident import INCIDENTS, Incident, golden_outputs, incidents


def changes(incident: Incident) -> Iterator[str]:
    """A diff from the reviewed output to the current one."""
    now = golden_outputs(incident)
    for name, text in now.items():
        golden = incident.path / name
        before = golden.read_text("utf-8") if golden.exists() else ""
        yield from difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"{incident.name}/{name}", "now", lineterm=""
        )


def update(incident: Incident) -> list[str]:
    """Write the current output; returns the names of changed files."""
    changed = []
    for name, text in golden_outputs(incident).items():
        golden = incident.path / name
        if not golden.exists() or golden.read_text("utf-8") != text:
            golden.write_text(text, "utf-8")
            changed.append(name)
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.golden")
    parser.add_argument("--update", action="store_true", help="rewrite the files, for review")
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
    words = "rewritten" if args.update else "differ (make golden-update rewrites them)"
    print(f"{len(chosen)} incidents, {differ} {words}", file=sys.stderr)
    return 1 if differ and not args.update else 0


if __name__ == "__main__":
    sys.exit(main())
