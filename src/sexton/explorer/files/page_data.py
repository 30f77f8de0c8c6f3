"""The numbers of a page: flame graphs as lists over one table of names, heat as 16-bit cells."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sexton.profile.heatmap import Heatmap
from sexton.reports.svg.flame_picture import SIGNIFICANT, Box
from sexton.reports.svg.heat_svg import palette
from sexton.reports.text.profile_head import Capture

_NONE = 65535


class Numbers:
    """What a page draws, gathered: `add_flame` and `add_heat`, then `data`."""

    def __init__(self, capture: Capture, file: str = "FILE") -> None:
        self._frames: dict[tuple[str, str], int] = {}
        self._modules: dict[str, int] = {}
        self._shades: list[str] = []
        self._of_frame: list[int] = []
        start = capture.times.start_ns
        wall = capture.times.wall_s(start) if capture.end_ns is not None else None
        self.data: dict[str, Any] = {
            "wall": wall,
            "offset": 0 if wall is None else _offset(wall),
            "file": file,
            "significant": SIGNIFICANT,
            "palettes": {"light": palette("light"), "dark": palette("dark")},
            "heats": [],
            "spikes": [],
            "pictures": [],
            "stacks": None,
            "first": 0,
        }

    def frame(self, box: Box, shade: str) -> int:
        """A name's place in the table."""
        key = box.name, box.module
        if key not in self._frames:
            self._frames[key] = len(self._frames)
            self._of_frame.append(self._modules.setdefault(box.module, len(self._modules)))
            self._shades.append(shade)
        return self._frames[key]

    def add_flame(self, boxes: Sequence[Box], label: str, note: str, sides: Sequence[str]) -> int:
        """One picture; `sides` names what a difference compares. Returns its number."""
        shown: dict[str, Any] = {
            "label": label,
            "note": note,
            "depth": [box.depth for box in boxes],
            "frame": [self.frame(box, box.plain) for box in boxes],
            "counts": [list(side) for side in zip(*(box.counts for box in boxes), strict=True)],
            "own": [box.own for box in boxes],
        }
        if sides:
            shown["sides"] = list(sides)
            shown["shade"] = [box.shade for box in boxes]
            shown["q"] = [None if box.q != box.q else float(f"{box.q:.2g}") for box in boxes]
        self.data["pictures"].append(shown)
        return len(self.data["pictures"]) - 1

    def add_heat(self, drawn: Heatmap, capture: Capture, hertz: int | None) -> None:
        """One heatmap; its element is ``heat-KIND``."""
        scale = 1 if drawn.column_seconds == 1 else 10
        while drawn.most * scale >= _NONE and scale > 1:
            scale //= 10
        cells = np.minimum(np.round(drawn.values * scale), _NONE - 1)
        cells[drawn.values < 0] = _NONE
        self.data["heats"].append(
            {
                "kind": drawn.kind,
                "rows": list(drawn.rows),
                "columns": drawn.values.shape[1],
                "column": drawn.column_seconds,
                "first": capture.times.since(drawn.start_s * 10**9),
                "most": drawn.most,
                "full": None if drawn.kind == "subsecond" else hertz,
                "scale": scale,
                "cells": base64.b64encode(cells.astype("<u2").tobytes()).decode(),
            }
        )

    def finished(self) -> dict[str, Any]:
        """With the table of names."""
        return {
            **self.data,
            "names": [name for name, _ in self._frames],
            "module": self._of_frame,
            "modules": list(self._modules),
            "shade": self._shades,
        }


def _offset(wall_s: float) -> int:
    """Of this machine's zone: the page shows the times the terminal shows."""
    try:
        return time.localtime(wall_s).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0
