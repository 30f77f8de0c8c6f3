"""A page in one file: its style, scripts and numbers are in it, and it may fetch nothing.

The policy in its head names the two scripts and styles by their hash: whatever a hostile name got
past the escaping would still not run, and nothing can be sent anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sexton.reports.svg.flame_colours import colour_rules
from sexton.reports.svg.flame_svg import escaped, part

_STYLES = ("report.css", "flame.css")
_SCRIPTS = ("flame.js", "build.js", "heat.js", "report.js")


class Parts(NamedTuple):
    """What a page is made of; the body is HTML that is escaped already."""

    body: str
    style: str
    script: str


def shell(title: str, body: str, data: Mapping[str, Any]) -> str:
    """A profile's page; `body` is HTML that is escaped already, `data` what the scripts draw."""
    style = "\n".join([*(part(name) for name in _STYLES), colour_rules()])
    script = "\n".join(part(name) for name in _SCRIPTS)
    return page(title, Parts(body, style, script), data)


def page(title: str, parts: Parts, data: Mapping[str, Any], name: str = "data") -> str:
    """The whole page; its script finds `data` in the element called `name`."""
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(parts.script)}'; "
        f"style-src 'sha256-{_hash(parts.style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escaped(title)}</title>",
            f"<style>{parts.style}</style></head>",
            f"<body>{parts.body}",
            f'<script type="application/json" id="{name}">{embedded(data)}</script>',
            f"<script>{parts.script}</script></body></html>",
            "",
        )
    )


def embedded(data: Mapping[str, Any]) -> str:
    r"""JSON that cannot end the element it stands in.

    >>> embedded({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
