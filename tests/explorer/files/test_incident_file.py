"""Where `sexton diagnose --html` writes to: whole, or one line and nothing."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.support.cli import sexton

WHOLE = Path(__file__).parents[2] / "incidents" / "whole_chain-6.1-v2" / "recording"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone/page.html", "No such directory"),
        (".", "Is a directory"),
        ("", "--html needs a file name"),
        ("-", "--html needs a file name"),
    ],
)
def test_where_it_cannot_go_is_one_line_before_anything_is_watched(
    tmp_path: Path, name: str, said: str
):
    out = str(tmp_path / name) if name not in ("", "-") else name
    ran = sexton("diagnose", "--html", out, text=True)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert said in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.whole
def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path: Path):
    """The old page stays unchanged; the verdict was printed already."""
    out = tmp_path / "page.html"
    out.write_text("the old one")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    asked = ("diagnose", "--from", str(WHOLE), "--html", str(out))
    ran = sexton(*asked, text=True, preexec_fn=small)
    assert ran.returncode == 2
    assert ran.stdout.startswith("SICK")
    assert ran.stderr.count("\n") == 1
    assert out.read_text() == "the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_place_that_refuses_is_one_line():
    ran = sexton("diagnose", "--from", str(WHOLE), "--html", "/proc/page.html", text=True)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("sexton: /proc/page.html: ")
