"""TOML that somebody else may have written.

`tomllib` takes quadratic time for a name of many parts (``a.a.a…``): 100 kB took minutes. No table
here is nested deeper than a few levels, so longer names are refused before it sees them.

>>> parse_toml('[rules."a.b"]\\nlimit = 2')
{'rules': {'a.b': {'limit': 2}}}
>>> parse_toml("a" + " . a" * 200 + " = 1")
Traceback (most recent call last):
    ...
ValueError: a name of more than 50 parts
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_PARTS = 50
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
#: In a text value, too: none has so many words between dots.
_LONG_NAME = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MOST_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """The document; `ValueError` or `RecursionError` if it is none that can be read."""
    if _LONG_NAME.search(text) is not None:
        raise ValueError(f"a name of more than {_MOST_PARTS} parts")
    return tomllib.loads(text)
