"""``python -m tests.docs.profile`` writes the outputs shown in docs/profile.md anew."""

from __future__ import annotations

import gzip
import re
import shlex
import tempfile
from pathlib import Path

from tests.support.cli import sexton
from tests.support.made_capture import made_capture

PAGE = Path(__file__).parents[2] / "docs/profile.md"
WRITE = "tests.docs.profile"
_BLOCK = re.compile(r"<!-- output: (.*?): begin -->\n.*?<!-- output: end -->", re.DOTALL)


def written_anew() -> str:
    """The page with what the commands print now, on a capture whose kernel names lie beside it."""
    with tempfile.TemporaryDirectory() as folder:
        _, kallsyms = made_capture(Path(folder))
        (Path(folder) / "kallsyms-1.gz").write_bytes(gzip.compress(kallsyms.read_bytes()))

        def output(found: re.Match[str]) -> str:
            env = {"TZ": "UTC", "COLUMNS": "88"}
            ended = sexton(*shlex.split(found[1]), cwd=folder, env=env)
            assert ended.returncode in (0, 1), ended.stderr.decode()
            body = f"```text\n$ sexton {found[1]}\n{ended.stdout.decode().rstrip()}\n```"
            return f"<!-- output: {found[1]}: begin -->\n{body}\n<!-- output: end -->"

        return _BLOCK.sub(output, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(written_anew(), encoding="utf-8")
