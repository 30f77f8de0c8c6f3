"""Sexton's part, in a separate process: ``python -m bench.profile.ours FILE OUT``.

Everything a person waits for: start-up, reading, symbols, heatmap and flame graph of the whole
capture, as files for a browser.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def main(capture: str, out: str) -> None:
    began = time.perf_counter()
    from sexton.profile.captures import open_profile
    from sexton.profile.heatmap import heatmap, heatmap_json
    from sexton.profile.perf.native import engine
    from sexton.profile.select import Selection
    from sexton.reports.svg.flame_picture import boxes_of
    from sexton.reports.svg.flame_svg import Words, flame_svg

    opened = open_profile([Path(capture)])
    span = opened.span_ns or (0, 0)
    drawn_heat = heatmap(opened.heats(), span[0], span[1] + 1)
    Path(out, "heat.json").write_text(json.dumps(heatmap_json(drawn_heat, opened.clock)))
    drawn = time.perf_counter()
    flame = opened.flame(Selection(idle=True))
    Path(out, "flame.svg").write_text(flame_svg(boxes_of(flame), Words("the whole capture")))
    result = {
        "engine": engine(),
        "samples": flame.samples,
        "stacks": int((flame.own > 0).sum()),
        "heatmap_s": drawn - began,
        "all_s": time.perf_counter() - began,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
