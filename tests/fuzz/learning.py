"""One target under atheris in its own process: ``python -m tests.fuzz.learning TARGET INPUTS
SECONDS CORPUS``. It ends when both INPUTS and SECONDS are reached.

A target is a module ``tests/fuzz/TARGET_target.py`` with ``one(data)``, which may raise nothing but
`SextonError`, and optionally ``seeds()``, bytes to start from. atheris watches which branches an
input reaches and keeps what is new in CORPUS. A crash, a hang of a minute or 1.5 GB of memory end
it with an error; the input is left beside CORPUS.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import atheris

from tests.fuzz.corpus import kept

_MOST_LENGTH = 1 << 16
_HANG_S, _MOST_MB = 60, 1536


def main(name: str, inputs: str, seconds: str, corpus: str) -> None:
    with atheris.instrument_imports(include=["sexton"]):
        target = importlib.import_module(f"tests.fuzz.{name}_target")
    from sexton.errors import SextonError

    least, until_s = int(inputs), float(seconds)
    began = time.monotonic()
    tried = 0

    def one(data: bytes) -> None:
        nonlocal tried
        if tried >= least and time.monotonic() - began >= until_s:
            print(f"\nsexton-fuzz: {tried} inputs in {time.monotonic() - began:.1f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
            os._exit(0)  # libFuzzer has no other end than a number of inputs, or of seconds
        tried += 1
        try:
            target.one(data)
        except SextonError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than one line: {error!r}") from error

    place = Path(corpus)
    place.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate([*getattr(target, "seeds", tuple)(), *kept(name)]):
        (place / f"seed-{number}").write_bytes(seed[:_MOST_LENGTH])
    arguments = [
        f"-timeout={_HANG_S}",
        f"-rss_limit_mb={_MOST_MB}",
        f"-max_len={_MOST_LENGTH}",
        f"-artifact_prefix={place.parent}/{name}-",
        corpus,
    ]
    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
