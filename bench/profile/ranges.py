"""Response times on a long recording: ``python -m bench.profile.ranges DIRECTORY OUT``.

Opens it once: the subsecond heatmap of all of it, and flame graphs of five seconds at times not
drawn before.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from pathlib import Path

_RANGES = 8
_RANGE_NS = 5_000_000_000


def main(directory: str, out: str) -> None:
    from sexton.profile.captures import open_profile
    from sexton.profile.heatmap import heatmap, heatmap_json
    from sexton.profile.select import Selection

    opened = open_profile([Path(directory)])
    start, end = opened.span_ns or (0, 0)
    began = time.perf_counter()
    drawn = heatmap(opened.heats(), start, end + 1, "subsecond")
    Path(out, "subsecond.json").write_text(json.dumps(heatmap_json(drawn, opened.clock)))
    subsecond_s = time.perf_counter() - began
    chance = random.Random(4)
    ranges = []
    for _ in range(_RANGES):
        at = chance.randrange(start, end - _RANGE_NS)
        began = time.perf_counter()
        flame = opened.flame(Selection(start_ns=at, end_ns=at + _RANGE_NS, idle=True))
        ranges.append((time.perf_counter() - began, flame.samples))
    result = {
        "subsecond_s": subsecond_s,
        "samples": opened.samples,
        "ranges_s": [value for value, _ in ranges],
        "range_samples": ranges[0][1],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
