"""One target under atheris in its own process: ``python -m tests.fuzz.learning TARGET LIMIT``.

LIMIT is libFuzzer's: ``-runs=200`` inputs, or ``-max_total_time=600`` seconds.


A target is a module ``tests/fuzz/TARGET_target.py`` with ``one(data)``, which may raise nothing but
`SextonError`, and optionally ``seeds()``, bytes to start from. atheris watches which branches an
input reaches and keeps what is new. A crash, a hang of 20 s or 1.5 GB of memory end it with an
error, and the input is left in the directory that ``SEXTON_FUZZ_KEEP`` names.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

import atheris

_MOST_LENGTH = 1 << 16


def main(name: str, limit: str) -> None:
    with atheris.instrument_imports(include=["sexton"]):
        target = importlib.import_module(f"tests.fuzz.{name}_target")
    from sexton.errors import SextonError

    def one(data: bytes) -> None:
        try:
            target.one(data)
        except SextonError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than one line: {error!r}") from error

    with tempfile.TemporaryDirectory(prefix="sexton-fuzz-") as corpus:
        for number, seed in enumerate(getattr(target, "seeds", tuple)()):
            Path(corpus, f"seed-{number}").write_bytes(seed[:_MOST_LENGTH])
        keep = os.environ.get("SEXTON_FUZZ_KEEP", tempfile.gettempdir())
        arguments = [
            limit,
            "-timeout=20",
            "-rss_limit_mb=1536",
            f"-max_len={_MOST_LENGTH}",
            f"-artifact_prefix={keep}/{name}-",
            "-print_final_stats=1",
            corpus,
        ]
        atheris.Setup([sys.argv[0], *arguments], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
