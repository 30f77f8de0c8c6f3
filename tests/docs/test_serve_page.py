"""The page on the server names what there is."""

from __future__ import annotations

from pathlib import Path

from sexton.explorer.server.openapi import description
from sexton.web.guard import POLICY
from tests.support.cli import sexton

PAGE = (Path(__file__).parents[2] / "docs/serve.md").read_text(encoding="utf-8")


def test_every_address_with_its_parameters_is_on_the_page():
    for path, value in description()["paths"].items():
        asked = [parameter["name"] for parameter in value["get"].get("parameters", ())]
        query = "&".join(f"{name}=" for name in asked if f"{{{name}}}" not in path)
        assert f"| `{path}{'?' if query else ''}{query}` |" in PAGE


def test_every_option_and_every_error_is_on_the_page():
    shown = sexton("serve", "--help").stdout.decode()
    options = {word.strip("[],") for word in shown.split() if word.strip("[],").startswith("--")}
    assert {"--host", "--port", "--token-file", "--open", "--openapi"} <= options
    assert [option for option in options - {"--help"} if option not in PAGE] == []
    statuses = {
        status for path in description()["paths"].values() for status in path["get"]["responses"]
    }
    assert [status for status in statuses - {"200", "304"} if status not in PAGE] == []


def test_the_policy_on_the_page_is_the_one_that_is_sent():
    assert POLICY in PAGE
