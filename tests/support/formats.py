"""The recordings that every later version must be able to read, one for each format.

Each was made once, by the first version that wrote that format: ``python -m tests.support.formats
DIR`` (it refuses a directory that is there). None is made anew: a recording of the next format goes
into a directory beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sexton.detect.registry import run_all
from sexton.model.row import Row, fields_of
from sexton.model.window import Batch, Window
from sexton.store.pins import Pin, add_pin
from sexton.store.recording import Recording
from sexton.store.schema import tables
from tests.support.recordings import BOOT, write_open, write_sealed
from tests.support.windows import load_window

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLACES = {number: FIXTURES / "recordings" / f"format-{number}" for number in (1, 2)}
#: A core that is held in the kernel, which a detector must still find.
STORY = FIXTURES / "detectors" / "saturated_core" / "present.json"
TOLD = ("core_times", "thread")


def odd_rows() -> dict[type[Row], list[Batch[Any]]]:
    """One of each way a value is stored."""
    made: dict[str, Sequence[tuple[Any, ...]]] = {
        "mark": [("job 17 died",), ("\udcff\\xff\0",), ("",)],
        "nic_counter": [("eth0", "rx_missed", 2**64 - 1), ("eth0", "tx_timeouts", 0)],
        "interrupt": [("LOC", "Local timer", (0, 1), (2**40, 0)), ("9", "", (), ())],
        "kernel_event": [("reset", "nic", "a\nb", 5, None, {"nic": "eth0", "queue": 3})],
        "stack_count": [(7, 0, 1, 1, "a) R", ("do_idle", "\udcfe"), 2**62)],
        "controller": [("memory", 4, 2000, True), ("cpu", 0, 1, False)],
        "alarm": [("mark", "", "", -0.5, 3600.0)],
        "cgroup_census": [("v1", None, None, "here", None, 3, None, "walk", "refused")],
    }
    kinds = tables()
    return {
        kinds[name]: [
            Batch(2.25, 1_700_000_002.25, tuple(kinds[name](*values) for values in rows)),
            Batch(3.25, 1_700_000_003.25, ()),
        ]
        for name, rows in made.items()
    }


def window_of(recording: Recording) -> Window:
    """What detectors see of it."""
    kinds = [tables()[name] for name in TOLD]
    return Window(
        {
            kind: [b for segment in recording.segments for b in segment.batches(kind)]
            for kind in kinds
        }
    )


def described(recording: Recording) -> str:
    """Every reading and every finding, as text."""
    lines = []
    for segment in recording.segments:
        lines.append(f"{segment.name} {segment.boot_id} {segment.start} {segment.end}")
        lines += [f"{state.id} {state.path} {state.state}" for state in segment.states]
        for name in sorted({*TOLD, *(kind for kind in segment.manifest["tables"])} & {*tables()}):
            for batch in segment.batches(tables()[name]):
                lines.append(f"{name} {batch.mono_s!r} {batch.wall_s!r}")
                lines += [f"  {_given(row)}" for row in batch.rows]
    found = [finding for finding in run_all(window_of(recording)) if finding.id == "saturated_core"]
    lines += [f"{finding.id} {finding.verdict}" for finding in found]
    return "".join(f"{line}\n" for line in lines)


def _given(row: Row) -> str:
    """Without what is `None`: so are fields that did not exist when it was recorded."""
    values = ((name, getattr(row, name)) for name in fields_of(type(row)))
    return ascii({name: value for name, value in values if value is not None})


def make(directory: Path) -> None:
    """Write it: one sealed segment, one that was left open, a pin."""
    story, _ = load_window(STORY)
    kinds = [tables()[name] for name in TOLD]
    parts = {kind: list(story.batches(kind) or ()) for kind in kinds}
    write_sealed(directory, [odd_rows(), {kind: parts[kind][:4] for kind in kinds}], 1)
    write_open(directory, [{kind: parts[kind][4:] for kind in kinds}], 2)
    add_pin(directory, Pin("mark-2", "mark", "", "job 17 died", BOOT, 0.0, 9.0, 1_700_000_002.25))
    (directory / "expected.txt").write_text(described(Recording(directory)))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir()
    make(place)
