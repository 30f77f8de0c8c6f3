"""The page on profiles shows real output, and names every subcommand."""

from __future__ import annotations

import re

from sexton.cli.commands.profile import WHATS
from tests.docs.profile import PAGE, WRITE, written_anew

#: How sure something is: its last digit is the arithmetic's own, and its width with it.
_SURE = re.compile(r" *\b\d(?:\.\d+)?e-\d+\b")


def test_the_outputs_on_the_page_are_what_the_commands_print():
    shown, now = (_SURE.sub("q", text) for text in (PAGE.read_text("utf-8"), written_anew()))
    assert shown == now, f"run: python -m {WRITE}"


def test_every_subcommand_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert [
        what for what in WHATS if f"profile {what}" not in page and what not in ("spikes",)
    ] == []
