"""The OpenAPI document: it has every route, what it refers to is there, and the door keeps to it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.doors.http.conftest import Ask

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.doors.http.application import ROUTES
from duramen.doors.http.serving.openapi import document, errors_of, plain_path

IDS = {kind.id for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DuramenError)}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The document as it goes over the wire."""
    described: dict[str, Any] = json.loads(json.dumps(document(ROUTES)))
    return described


def operations(described: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def within(value: object, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if key in value and not isinstance(value[key], dict):
            yield value[key]
        for inner in value.values():
            yield from within(inner, key)
    if isinstance(value, list):
        for inner in value:
            yield from within(inner, key)


def test_is_what_the_node_answers(described: dict[str, Any], ask: Ask) -> None:
    assert ask("GET", "/v1/openapi.json") == (200, described)


def test_has_every_route_and_no_other(described: dict[str, Any]) -> None:
    found = [(method.upper(), path) for method, path, _ in operations(described)]
    assert sorted(found) == sorted((route.method, plain_path(route)) for route in ROUTES)
    assert len(found) == len(set(found))


def test_what_it_refers_to_is_there(described: dict[str, Any]) -> None:
    references = set(within(described, "$ref"))
    assert references
    for reference in references:
        at: Any = described
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
    assert {reference.rpartition("/")[2] for reference in references} == described["components"]["schemas"].keys()


def test_its_objects_have_the_fields_that_the_specification_asks_for(described: dict[str, Any]) -> None:
    assert described["openapi"].startswith("3.1.")
    assert {"title", "version"} <= described["info"].keys()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in described["components"]["schemas"])
    ids = []
    for method, path, operation in operations(described):
        assert method in ("get", "post", "patch", "delete")
        assert path.startswith("/")
        ids.append(operation["operationId"])
        parameters = operation.get("parameters", [])
        names = [(parameter["in"], parameter["name"]) for parameter in parameters]
        assert len(names) == len(set(names))
        in_path = {name for where, name in names if where == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", path))
        assert all(parameter["required"] for parameter in parameters if parameter["in"] == "path")
        assert all("schema" in parameter for parameter in parameters)
        assert any(status.startswith("2") for status in operation["responses"])
        assert ("requestBody" in operation) <= (method != "get")
        for status, answer in operation["responses"].items():
            assert re.fullmatch(r"[1-5]\d\d", status)
            assert answer["description"]
            assert all("schema" in content for content in answer.get("content", {}).values())
    assert len(ids) == len(set(ids))


def test_schemas_are_of_types_that_json_has(described: dict[str, Any]) -> None:
    kinds = {kind for kind in within(described, "type") if isinstance(kind, str)}
    assert kinds <= {"string", "integer", "number", "boolean", "array", "object", "null"}
    for schema in described["components"]["schemas"].values():
        assert schema["description"]
        assert set(schema.get("required", ())) <= schema["properties"].keys()


def test_every_error_is_one_that_exists(described: dict[str, Any]) -> None:
    named = {id_ for choices in within(described, "enum") for id_ in choices}
    assert {error.id for route in ROUTES for error in errors_of(route)} <= named
    for _, _, operation in operations(described):
        for answer in operation["responses"].values():
            refusal = answer.get("content", {}).get("application/problem+json")
            if refusal is not None:
                _, narrowed = refusal["schema"]["allOf"]
                assert set(narrowed["properties"]["type"]["enum"]) <= IDS


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_summaries_are_of_one_form(route: Any) -> None:
    assert route.summary[0].isupper() or route.summary[0].isdigit()
    assert not route.summary.endswith(".")


def test_a_problem_is_as_it_is_described(described: dict[str, Any], ask: Ask) -> None:
    problem = ask("GET", "/v1/streams/nope/records")[1]
    schema = described["components"]["schemas"]["Problem"]
    assert problem.keys() == {*schema["required"], "remedy"}
    assert problem["instance"] == "/v1/streams/nope/records"
    answer = described["paths"]["/v1/streams/{name}/records"]["get"]["responses"]["404"]
    _, named = answer["content"]["application/problem+json"]["schema"]["allOf"]
    assert problem["type"] in named["properties"]["type"]["enum"]
