"""Durations of the recorder's benchmark, and which sexton it measures."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from bench.programs import SEXTON
from sexton.record.stacks import Rotation
from sexton.store.writer import SEGMENT_S

#: A run that ends before its second segment begins: sealing costs as often as it really does.
_SEGMENT_S = int(SEGMENT_S) - 10
PARTS = ("watch", "slowdown", "flood", "replay")


@dataclass(frozen=True)
class Plan:
    """Durations in seconds. `stacks_s` covers two perf files, each written and decoded."""

    sexton: str
    parts: tuple[str, ...]
    warm_up_s: int
    peer_s: int
    ours_s: int
    stacks_s: int
    rounds: int
    settle_s: float
    slice_s: float
    flood_s: float
    cores: int
    hours: float

    def wants(self, part: str) -> bool:
        return part in self.parts


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the recorder's benchmark")
    group.add_argument("--sexton", default=SEXTON, help="the sexton to measure")
    group.add_argument(
        "--parts", default=",".join(PARTS), help=f"which of {','.join(PARTS)} (default: all)"
    )
    group.add_argument("--warm-up", type=int, default=4, help="seconds before measuring starts")
    group.add_argument("--peer-seconds", type=int, default=10, help="measured seconds per peer")
    group.add_argument(
        "--our-seconds",
        type=int,
        default=_SEGMENT_S,
        help="measured seconds per Sexton configuration: a segment and its sealing (%(default)s)",
    )
    group.add_argument(
        "--stacks-seconds",
        type=int,
        default=2 * Rotation.for_cores(os.cpu_count() or 1).segment_s,
        help="measured seconds with stacks: two perf files (default here: %(default)s)",
    )
    group.add_argument("--rounds", type=int, default=2, help="repetitions of slowdown and flood")
    group.add_argument("--settle", type=float, default=3, help="seconds until probes are attached")
    group.add_argument(
        "--slice", type=float, default=1.5, help="seconds of fixed work per repetition"
    )
    group.add_argument(
        "--flood-seconds", type=float, default=2, help="seconds of flood per repetition"
    )
    group.add_argument("--cores", type=int, default=96, help="in the synthetic recording")
    group.add_argument("--hours", type=float, default=12, help="in the synthetic recording")


def plan(options: argparse.Namespace) -> Plan:
    parts = tuple(part for part in options.parts.split(",") if part)
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise SystemExit(f"unknown part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    return Plan(
        sexton=options.sexton,
        parts=parts,
        warm_up_s=options.warm_up,
        peer_s=options.peer_seconds,
        ours_s=options.our_seconds,
        stacks_s=options.stacks_seconds,
        rounds=options.rounds,
        settle_s=options.settle,
        slice_s=options.slice,
        flood_s=options.flood_seconds,
        cores=options.cores,
        hours=options.hours,
    )
