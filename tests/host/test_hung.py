"""A mount that does not answer ends the command and not the operator's patience."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from sexton.cli.main import main
from sexton.errors import SourceAbsent, StoreError
from sexton.host import hung
from sexton.host.hung import unless_hung
from tests.support.cli import one_line
from tests.support.hung import hung_mount


def test_what_answers_gives_its_result_or_its_error():
    assert unless_hung(lambda: 42, "/x") == 42
    with pytest.raises(SourceAbsent):
        unless_hung(lambda: (_ for _ in ()).throw(SourceAbsent("/x")), "/x")


def test_what_computes_for_long_is_not_hung(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hung, "SILENT_S", 0.2)

    def busy() -> int:
        end_s = time.thread_time() + 0.5
        while time.thread_time() < end_s:
            sum(range(1000))
        return 7

    assert unless_hung(busy, "/x") == 7


def test_what_waits_for_one_answer_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hung, "SILENT_S", 0.1)
    release = threading.Event()
    with pytest.raises(StoreError, match=r"/x: no answer to a read for 100 ms: is its mount hung"):
        unless_hung(release.wait, "/x")
    release.set()


@pytest.mark.root
@pytest.mark.parametrize("verb", ["gate", "audit"])
@pytest.mark.parametrize("inside", ["", "image.tar"])
def test_an_image_on_a_hung_mount_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd, verb: str, inside: str
):
    monkeypatch.setattr(hung, "SILENT_S", 0.2)
    with hung_mount(tmp_path) as place:
        assert main([verb, "--root", os.path.join(place, inside)]) == 2
    assert "is its mount hung?" in one_line(capfd.readouterr().err.encode())
