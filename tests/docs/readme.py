"""``python -m tests.docs.readme`` writes the verdict shown in the README anew."""

from __future__ import annotations

import re
from pathlib import Path

from sexton.explain.diagnosis import diagnose
from sexton.host.archive import read_archive
from sexton.host.host import Host
from sexton.record.sampler import Sampler
from sexton.reports.text.verdict import verdict_text

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ARCHIVE = ROOT / "tests/fixtures/nodes/5.10-v1-crash.tar.gz"
OUTPUT = "tests.docs.readme"
_BLOCK = re.compile(
    r"(<!-- output: begin -->\n```text\n)(.*?)(```\n<!-- output: end -->)", re.DOTALL
)


def real_output() -> str:
    """The verdict on a real node that crash-loops, collected from a VM with Linux 5.10."""
    with ARCHIVE.open("rb") as stream:
        snapshots = read_archive(stream)
    with Sampler(Host(snapshots[0].files, live=False)) as sampler:
        window = sampler.replay((snapshot.files, snapshot.moment) for snapshot in snapshots)
    return verdict_text(diagnose(window), 88)


def in_readme() -> str:
    """What the README shows."""
    found = _BLOCK.search(README.read_text())
    assert found is not None, "the README has lost its marks"
    return found[2]


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(_BLOCK.sub(lambda found: found[1] + real_output() + found[3], text))
