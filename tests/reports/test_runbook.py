"""Runbooks in HTML: every detector's docstring, marked up and escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from sexton.detect.registry import all_detectors, detector_of
from sexton.reports.runbook import runbook_html

_VOID = {"meta", "link"}


class _Words(HTMLParser):
    """The words of a page; fails where a tag is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ""
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def words(page: str) -> str:
    parser = _Words()
    parser.feed(page)
    assert parser.open == []
    return " ".join(parser.words.split())


@pytest.mark.parametrize("detector", all_detectors(), ids=lambda each: each.id)
def test_every_word_of_the_docstring_is_on_the_page(detector):
    page = words(runbook_html(detector))
    plain = re.sub(r"[`*]", "", " ".join(detector.doc.split()))
    assert plain in page.replace("*", "").replace("`", "")
    assert "``" not in page
    assert "**" not in page


def test_markup_in_a_docstring_is_text():
    known = detector_of("zombie_memcgs")
    page = runbook_html(replace(known, doc="A <script>.\n\n**Why <b>.** ``<i> & *x*`` a*b*c"))
    assert "<script>" not in page
    assert "<strong>Why &lt;b&gt;.</strong> <code>&lt;i&gt; &amp; *x*</code> a*b*c" in page
