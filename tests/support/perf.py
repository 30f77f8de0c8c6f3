"""A perf that answers as a test wants it to."""

from __future__ import annotations

from sexton.host import runner


def fake_perf(folder, monkeypatch, script):
    program = folder / "bin" / "perf"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    path = f"{program.parent}:/usr/bin:/bin"
    monkeypatch.setitem(runner._ENVIRONMENT, "PATH", path)
