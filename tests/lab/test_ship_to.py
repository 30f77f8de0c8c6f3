"""The trial of a destination, itself tried with a directory."""

from __future__ import annotations

from pathlib import Path

from lab import ship_to


def test_a_directory_passes_the_trial_that_object_storage_is_put_to(tmp_path: Path, capsys):
    assert ship_to.main(str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "sent again: 0 files" in shown
    assert "whole" in shown
    assert list(tmp_path.iterdir()) == []
