"""Every collected node against its golden expectation, and damaged ones against a clear answer."""

from __future__ import annotations

import contextlib
import difflib
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sexton.cli.main import main
from tests.nodes.expectation import (
    ARCHIVES,
    NODES,
    as_text,
    diagnosed,
    expectation_of,
    expected,
    name_of,
)
from tests.support.cli import sexton
from tests.support.examples import examples

WORDS = {0: "HEALTHY", 1: "SICK"}
#: The one to break: small, and sick, so that a verdict from half of it would show.
BROKEN = NODES / "6.1-v2-crash.tar.gz"

every_archive = pytest.mark.parametrize("archive", ARCHIVES, ids=name_of)


@every_archive
def test_a_node_gets_the_diagnosis_that_was_reviewed(archive: Path):
    wanted = expectation_of(archive).read_text("utf-8")
    given_now = as_text(expected(diagnosed(archive)))
    changes = difflib.unified_diff(
        wanted.splitlines(), given_now.splitlines(), "reviewed", "now", lineterm=""
    )
    text = "\n".join(changes)
    assert not text, f"{archive.name}: if this is better, python -m tests.nodes\n{text}"


def test_every_kernel_was_visited_idle_and_in_a_crash_loop():
    names = {name_of(archive) for archive in ARCHIVES}
    nodes = {name.rpartition("-")[0] for name in names}
    assert names == {f"{node}-{what}" for node in nodes for what in ("idle", "crash")}
    assert {node.rpartition("-")[2] for node in nodes} == {"v1", "hybrid", "v2"}
    assert {node.partition("-")[0] for node in nodes} >= {"5.10", "6.1", "6.12", "7.2"}


@every_archive
def test_the_page_beside_it_tells_of_an_archive_and_it_is_small(archive: Path):
    page = (NODES / "README.md").read_text("utf-8")
    assert f"| `{name_of(archive)}` |" in page
    assert archive.stat().st_size <= 300 << 10
    assert json.loads(expectation_of(archive).read_text("utf-8"))["kernel"] in page


@every_archive
def test_idle_is_healthy_and_a_crash_loop_is_called_by_its_name(archive: Path):
    """What was going on is known: this much no rewriting of expectations may change."""
    expectation = json.loads(expectation_of(archive).read_text("utf-8"))
    findings = expectation["findings"]
    assert expectation["broken"] == []
    if name_of(archive).endswith("-idle"):
        assert expectation["exit"] == 0
        assert expectation["chains"] == []
        return
    assert expectation["exit"] == 1
    assert findings["crash_looping_unit"]["verdict"] == "present"
    assert findings["crash_looping_unit"]["unit"] == ["demo-crash.service"]
    zombies = findings["zombie_memcgs"]
    if name_of(archive).startswith("7.2-"):  # there a dead one is re-parented and released
        assert zombies["verdict"] == "absent"
        assert expectation["chains"] == []
    else:
        assert zombies["verdict"] == "present"
        assert "/system.slice/demo-crash.service" in zombies["cgroup"]
        (chain,) = expectation["chains"]
        assert [link.partition(":")[0] for link in chain["links"]] == ["crash_loop_leaves_zombies"]


@every_archive
def test_the_command_reads_a_piped_archive_and_its_verdict_comes_first(archive: Path):
    expectation = json.loads(expectation_of(archive).read_text("utf-8"))
    ended = _piped(archive)
    assert (ended.returncode, ended.stderr) == (expectation["exit"], "")
    head = ended.stdout.partition("\n\n")[0]
    assert head.startswith(f"{WORDS[expectation['exit']]}  node-a ")
    assert f"Linux {expectation['kernel']}" in head
    assert f"cgroup {expectation['hierarchy']}" in head
    assert max(map(len, ended.stdout.splitlines())) <= 300, "a command, the one thing not wrapped"


def test_the_command_tells_machines_the_same():
    ended = _piped(BROKEN, "--json")
    answer = json.loads(ended.stdout)
    wanted = json.loads(expectation_of(BROKEN).read_text("utf-8"))
    assert ended.returncode == answer["exit"] == wanted["exit"]
    assert {finding["id"]: finding["verdict"] for finding in answer["findings"]} == {
        name: finding["verdict"] for name, finding in wanted["findings"].items()
    }


def test_zombies_counts_an_archive_however_it_is_named():
    typed = sexton("zombies", BROKEN, "--json")
    assert json.loads(typed.stdout)["dying"] > 0
    assert sexton("zombies", "--from", BROKEN, "--json").stdout == typed.stdout
    assert sexton("zombies", "-", "--json", input=BROKEN.read_bytes()).stdout == typed.stdout


def _piped(archive: Path, *options: str) -> subprocess.CompletedProcess[str]:
    with archive.open("rb") as stream:
        return subprocess.run(
            [sys.executable, "-m", "sexton", "diagnose", "-", *options],
            stdin=stream,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class _Piped(io.TextIOWrapper):
    """Standard input as a pipe gives it."""

    def isatty(self) -> bool:
        return False


def _answer(content: bytes, *options: str) -> tuple[int, str, str]:
    out, complaint = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "stdin", _Piped(io.BytesIO(content))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(complaint),
    ):
        status = main(["diagnose", "-", *options])
    return status, out.getvalue(), complaint.getvalue()


def _is_clear(content: bytes) -> int:
    """One line and exit 2, or a verdict for which no source fell over the damage."""
    status, out, complaint = _answer(content, "--json")
    if status == 2:
        assert out == ""
        assert len(complaint.splitlines()) == 1, complaint
        assert complaint.startswith("sexton: ")
        return status
    assert complaint == ""
    answer = json.loads(out)
    assert status == answer["exit"]
    assert status in (0, 1, 3)
    fallen = [source for source in answer["sources"] if source["state"] in ("failed", "timeout")]
    assert fallen == [], "damage must be told as malformed, with its line"
    return status


@settings(max_examples=examples(25), deadline=None)
@given(cut=st.floats(0, 0.999), packed=st.booleans())
@example(cut=0.0, packed=False)
@example(cut=0.999, packed=True)
def test_an_archive_cut_short_is_one_clear_line(cut: float, packed: bool):
    whole = BROKEN.read_bytes()
    if packed:
        content = whole[: int(len(whole) * cut)]  # the last bytes are gzip's own and padding
    else:
        plain = gzip.decompress(whole)
        # What follows the last bundle's end and the manifest is padding.
        last = max(plain.rindex(b" end\n"), plain.rindex(b"sexton.collect/1"))
        content = plain[: int(last * cut)]
    assert _is_clear(content) == 2


@settings(max_examples=examples(40), deadline=None)
@given(
    places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1),
    packed=st.booleans(),
)
def test_flipped_bytes_give_a_clear_line_or_a_verdict(
    places: list[tuple[float, int]], packed: bool
):
    whole = BROKEN.read_bytes()
    content = bytearray(whole if packed else gzip.decompress(whole))
    for place, flip in places:
        content[int(place * len(content))] ^= flip
    _is_clear(bytes(content))
