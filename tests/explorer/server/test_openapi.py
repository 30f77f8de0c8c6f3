"""The description for machines is true: junk and odd questions by schemathesis, and every route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from schemathesis.generation import GenerationMode
from starlette.routing import Route

from sexton.explorer.server.api import ENDPOINTS, Site
from sexton.explorer.server.app import Explorer
from sexton.explorer.server.openapi import SCHEMAS, description
from sexton.web.guard import METHODS, Door
from tests.explorer.server.asking import Running, stand_in
from tests.explorer.server.stand_in import StandIn

#: `from` before `to` is a rule that a schema cannot tell, and not everything is there.
_MAY_ANSWER = ["2xx", 404, 409, 422]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with stand_in() as running:
        yield running


CONFIG = {"checks": {"positive_data_acceptance": {"expected-statuses": _MAY_ANSWER}}}
schema = schemathesis.openapi.from_dict(description(), config=schemathesis.Config.from_dict(CONFIG))


OPERATIONS = [operation.ok() for operation in schema.get_all_operations()]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_every_answer_is_as_described(
    operation: Any, mode: GenerationMode, server: Running
) -> None:
    @given(case=operation.as_strategy(mode))
    @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=server.line.rstrip("/"))

    if mode is GenerationMode.NEGATIVE and not operation.definition.raw.get("parameters"):
        return  # there is nothing to get wrong
    ask()


def routes() -> list[Route]:
    view: Any = StandIn()
    found = Explorer(Site(view, "0"), Door()).routes
    assert all(isinstance(route, Route) for route in found), (
        "nothing is mounted, nothing is a socket"
    )
    return [route for route in found if isinstance(route, Route)]


def test_every_route_only_reads() -> None:
    assert len(routes()) == len(ENDPOINTS) + 3
    assert {method for route in routes() for method in route.methods or ()} == set(METHODS)
    assert set(METHODS) == {"GET", "HEAD"}


def test_every_route_but_the_pages_files_is_described() -> None:
    paths = {route.path for route in routes()} - {"/{path:path}"}
    assert paths == set(description()["paths"])
    operations = [item for path in description()["paths"].values() for item in path]
    assert set(operations) == {"get"}


def test_schemas_are_schemas_and_every_one_is_used() -> None:
    text = json.dumps(description())
    for name, value in SCHEMAS.items():
        Draft202012Validator.check_schema(value)
        assert f"#/components/schemas/{name}" in text


def test_operations_have_names_of_their_own() -> None:
    ids = [path["get"]["operationId"] for path in description()["paths"].values()]
    assert len(ids) == len(set(ids))
