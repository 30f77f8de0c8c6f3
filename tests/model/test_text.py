"""Hostile text never reaches a surface."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.text import printable, shorten


@given(st.binary(max_size=60))
def test_whatever_the_kernel_says_comes_out_printable_and_encodable(raw):
    shown = printable(raw.decode("utf-8", "surrogateescape"))
    assert shown.isprintable()
    shown.encode("utf-8")


def test_bidi_overrides_and_line_separators_are_escaped():
    assert printable("a\u202eb\u2028c") == "a\\u202eb\\u2028c"


def test_letters_of_any_script_stay():
    assert printable("ジョブ-größe") == "ジョブ-größe"


def test_a_finding_escapes_everything_on_the_way_in():
    evil = "\x1b[2J\n<script>\udcff"
    finding = Finding(
        "x",
        Verdict.PRESENT,
        Severity.INFO,
        evil,
        entities={"cgroup": (evil,)},
        evidence=(Evidence(evil, evil, evil, evil, evil, wrong_if=evil),),
    )
    text = finding.summary + finding.entities["cgroup"][0] + repr(finding.evidence)
    assert "\x1b" not in text
    assert "\n" not in text
    json.dumps(finding.summary).encode("utf-8")


@given(st.text(max_size=50), st.integers(1, 40))
def test_shorten_never_exceeds_its_width(text, width):
    assert len(shorten(text, width)) <= width
