"""``python -m lab.synthetic DIR``."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from lab.synthetic.generate import Generated, write
from lab.synthetic.plan import CAUSES, TWINS, Plan

_DEFAULT = Plan()


def _minutes(text: str) -> float:
    return float(text) * 60


def _span(text: str) -> tuple[float, float]:
    """Parse ``AT:LENGTH`` in minutes into seconds."""
    at, _, length = text.partition(":")
    return float(at) * 60, float(length) * 60


def _jump(text: str) -> tuple[float, float]:
    """Parse ``AT:HOURS``, with AT in minutes, into seconds and hours."""
    at, _, hours = text.partition(":")
    return float(at) * 60, float(hours)


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab.synthetic", description="Write a synthetic recording."
    )
    parser.add_argument("directory", type=Path)
    for name in ("cores", "seed", "processes", "cgroups", "nics", "queues", "units"):
        parser.add_argument(f"--{name}", type=int, default=getattr(_DEFAULT, name))
    parser.add_argument("--hours", type=float, default=_DEFAULT.hours)
    parser.add_argument("--start", type=_moment, default=_DEFAULT.start, metavar="ISO-TIME")
    parser.add_argument(
        "--plant", default="", metavar="NAMES", help=f"any of {', '.join((*CAUSES, *TWINS))}"
    )
    parser.add_argument("--walks", type=int, help="how often the planted cause occurs")
    parser.add_argument("--walk-s", type=float, default=_DEFAULT.walk_s, metavar="S")
    parser.add_argument(
        "--gap-at", type=_span, action="append", default=[], metavar="MINUTE:MINUTES"
    )
    parser.add_argument("--reboot-at", type=_minutes, metavar="MINUTE")
    parser.add_argument(
        "--jump-at", type=_jump, action="append", default=[], metavar="MINUTE:HOURS"
    )
    parser.add_argument(
        "--stack-hertz", type=int, default=0, metavar="HZ", help="add stacks; the recorder uses 97"
    )
    parser.add_argument("--stack-nodes", type=int, default=_DEFAULT.stack_nodes, metavar="N")
    parser.add_argument(
        "--uncompacted",
        action="store_true",
        help="keep two-minute segments instead of compacting each hour",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def _text(summary: Generated) -> str:
    whole = sum(summary.bytes.values())
    lines = [f"{summary.directory}: {summary.segments} segments, {whole:,} bytes"]
    for name, size in sorted(summary.bytes.items(), key=lambda key: -key[1]):
        lines.append(f"  {name:<16} {summary.rows[name]:>12,} rows {size:>12,} bytes")
    for planted in summary.planted:
        about = " ".join(f"{kind}={name}" for kind, name in planted.entities.items())
        lines.append(
            f"  planted {planted.cause} {about} at {planted.start[1]:.3f}..{planted.end[1]:.3f}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    options = vars(_parser().parse_args(argv))
    directory, as_json = options.pop("directory"), options.pop("json")
    compacted = not options.pop("uncompacted")
    options["plant"] = tuple(name for name in options["plant"].split(",") if name)
    options["gaps"], options["jumps"] = tuple(options.pop("gap_at")), tuple(options.pop("jump_at"))
    try:
        summary = write(directory, Plan(**options), compacted)
    except (ValueError, FileExistsError) as error:
        print(f"lab.synthetic: {error}", file=sys.stderr)
        return 2
    print(summary.json() if as_json else _text(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
