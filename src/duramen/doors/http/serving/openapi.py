"""The OpenAPI 3.1 document of the routes: parameters, bodies, responses, errors.

https://spec.openapis.org/oas/v3.1.0
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.responses import Response

from duramen import __version__
from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.codec.shown_batches import BATCHES_TYPE
from duramen.doors.http.serving.problems import PROBLEM_JSON
from duramen.doors.http.serving.routes import HttpRoute
from duramen.doors.http.serving.rows import NDJSON
from duramen.doors.problems import Problem, status_of
from duramen.service.authorize import REFUSALS

__all__ = ["document", "errors_of", "plain_path"]

_JSON: Final = "application/json"
_REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{([a-z_]+)(?::any)?\}")
_ALWAYS: Final = (errors.HostRefused, errors.OriginRefused, errors.NodeBusy)
_OF_BODIES: Final = (
    errors.RequestInvalid,
    errors.RequestTimedOut,
    errors.BodyTooLarge,
    errors.BodyTypeUnsupported,
)

Document = dict[str, Any]


def plain_path(route: HttpRoute) -> str:
    """The path in OpenAPI's notation."""
    return _PARAMETER.sub(r"{\1}", route.path)


def errors_of(route: HttpRoute) -> list[type[DuramenError]]:
    """Every domain error of the route, including those that all routes share."""
    types = route.types()
    found: list[type[DuramenError]] = [*route.errors, *_ALWAYS]
    if types["return"] is not Response:
        found.append(errors.NodeStarting)
    found += [REFUSALS[access.resource_type] for need in route.rules.needs for access in (need.access, *need.instead)]
    if route.rules.resolved:
        found.append(errors.NameNotResolved)
    if "query" in types:
        found.append(errors.RequestInvalid)
    if "body" in types:
        found += _OF_BODIES
    return sorted(set(found), key=lambda error: (status_of(error), error.id))


def document(routes: Sequence[HttpRoute]) -> Document:
    """The document as JSON."""
    bodies = {
        type_: None
        for route in routes
        for name, type_ in route.types().items()
        if name != "query" and type_ not in (type(None), Response)
    }
    named, components = msgspec.json.schema_components([Problem, *bodies], ref_template=_REFERENCE)
    schemas = dict(zip([Problem, *bodies], named, strict=True))
    paths: dict[str, Document] = {}
    for route in routes:
        paths.setdefault(plain_path(route), {})[route.method.lower()] = _operation(route, schemas)
    for component in components.values():
        component["description"] = " ".join(component.get("description", "").split())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duramen",
            "version": __version__,
            "description": "Streams, records, consumer groups, configs and nodes of a Duramen node. Errors are problem"
            " documents (RFC 9457), whose `type` is an id that stays.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: HttpRoute, schemas: Mapping[Any, Document]) -> Document:
    types = route.types()
    words = re.findall(r"[a-z]+", route.path.removeprefix("/v1").replace(":any", ""))
    operation: Document = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.summary,
        "tags": [words[0]],
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    if "query" in types:
        parameters += map(_query_parameter, msgspec.structs.fields(types["query"]))
    if parameters:
        operation["parameters"] = parameters
    if "body" in types:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": schemas[types["body"]]}}}
        if route.lines:
            operation["requestBody"]["content"][NDJSON] = {"schema": {"type": "string"}}
        for type_ in route.rows:
            operation["requestBody"]["content"][type_] = {"schema": {"type": "string"}}
        if route.batches:
            operation["requestBody"]["content"][BATCHES_TYPE] = {"schema": {"type": "string"}}
    answers = {str(status): _answer(status, types["return"], schemas, route.formats) for status in route.statuses}
    for status, problems in _by_status(errors_of(route)).items():
        answers.setdefault(str(status), _refusal(problems, schemas[Problem]))
    operation["responses"] = answers
    return operation


def _query_parameter(field: msgspec.structs.FieldInfo) -> Document:
    schema = msgspec.json.schema(field.type)
    description = schema.pop("description")
    parameter: Document = {"name": field.encode_name, "in": "query", "description": description, "schema": schema}
    if field.required:
        parameter["required"] = True
    elif field.default is not msgspec.UNSET:
        schema["default"] = field.default
    return parameter


def _answer(status: int, type_: Any, schemas: Mapping[Any, Document], formats: Iterable[str]) -> Document:
    answer: Document = {"description": HTTPStatus(status).phrase}
    if type_ is Response:
        answer["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif type_ is not type(None):
        answer["content"] = {
            _JSON: {"schema": schemas[type_]},
            **{other: {"schema": {"type": "string"}} for other in formats},
        }
    return answer


def _by_status(found: Iterable[type[DuramenError]]) -> dict[int, list[type[DuramenError]]]:
    by_status: dict[int, list[type[DuramenError]]] = {}
    for error in found:
        by_status.setdefault(status_of(error), []).append(error)
    return by_status


def _refusal(problems: Sequence[type[DuramenError]], problem: Document) -> Document:
    meanings = [f"`{error.id}`: {' '.join((error.__doc__ or '').split())}" for error in problems]
    named = {"properties": {"type": {"enum": [error.id for error in problems]}}}
    return {
        "description": " ".join(meanings),
        "content": {PROBLEM_JSON: {"schema": {"allOf": [problem, named]}}},
    }
