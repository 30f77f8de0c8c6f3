"""Runs FlameScope's own code on perf script text: ``python flamescope_run.py CHECKOUT TEXT``.

Its web server and its file type detection are left out: they need packages that have nothing to do
with reading a profile, so stubs for Flask, magic and cachetools are enough. Timed are its heatmap
and its first flame graph of the whole capture.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from typing import Any


def stub(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def main(checkout: str, text: str) -> None:
    sys.path.insert(0, checkout)
    stub("flask", abort=lambda code: sys.exit(f"FlameScope aborted with {code}"))
    stub("magic", from_file=lambda *_, **__: "text/plain")
    stub("cachetools", cached=lambda **_: lambda function: function, LRUCache=lambda **_: 0)
    config = types.SimpleNamespace(PROFILE_DIR=os.path.dirname(os.path.abspath(text)))
    stub("app", __path__=[os.path.join(checkout, "app")], config=config)
    from app.perf.flame_graph import perf_generate_flame_graph
    from app.perf.heatmap import perf_read_offsets

    began = time.perf_counter()
    offsets = perf_read_offsets(text)
    heat = time.perf_counter()
    print(json.dumps({"heatmap_s": heat - began, "kept": len(offsets.offsets)}), flush=True)
    perf_generate_flame_graph(text)
    print(json.dumps({"flame_s": time.perf_counter() - heat}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
