"""Check that the log is as it was written.

Finds entries that were changed, removed (also at the end), inserted or moved. What a crash
cut off is no damage, and is counted. Prints the hash of the last entry: keep it elsewhere and
compare with --known later, since whoever may write the file can rewrite all of it.
Exit: 0 intact, 1 damaged, 2 failed.
"""

from __future__ import annotations

import argparse

from sexton.cli.fix import add_state, state_of
from sexton.cli.options import add_json
from sexton.cli.output import print_result
from sexton.errors import CommandError

_SHORTEST = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--known", metavar="HASH", help="hash of an entry that must be in it, or its first digits"
    )
    add_json(parser)
    add_state(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cure.journal import check_log
    from sexton.model.text import count

    known = _known(args.known)
    state = state_of(args)
    state.runs()  # raises if it may not be read
    found = check_log(state, known)
    lines = [f"line {line}: {what}" if line else what for line, what in found.damage]
    entries = count(found.entries, "entry", "entries")
    torn = f", {count(found.torn, 'line')} cut off by a crash" if found.torn else ""
    if found.damage:
        lines.insert(0, f"DAMAGED  {entries} whole{torn}")
    elif not found.entries:
        lines = [f"nothing has been logged (no audit log in {state.directory})"]
    else:
        lines = [f"INTACT  {entries}{torn}", f"last entry: {found.head}"]
    facts = {
        "schema": "sexton.audit_log_check/1",
        "intact": not found.damage,
        "entries": found.entries,
        "cut_off": found.torn,
        "last": found.head if found.entries else None,
        "damage": [{"line": line or None, "what": what} for line, what in found.damage],
    }
    print_result(args, facts, "\n".join(lines) + "\n")
    return 1 if found.damage else 0


def _known(given: str | None) -> str:
    if given is None:
        return ""
    known = given.strip().lower()
    if not _SHORTEST <= len(known) <= 64 or set(known) - set("0123456789abcdef"):
        raise CommandError(f"--known: {given!r} is not a hash, or less than {_SHORTEST} digits")
    return known
