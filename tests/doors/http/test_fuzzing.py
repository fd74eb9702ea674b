"""Hostile requests to every route: each is answered as the OpenAPI document says, none is an error of the node."""

from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doors.http.conftest import Ask, asking

from duramen.doors.http.application import ROUTES
from duramen.doors.http.serving.openapi import document, plain_path
from duramen.doors.http.serving.routes import HttpRoute
from duramen.node.process import NodeProcess

DEEP: Final = b"[" * 50_000 + b"]" * 50_000
MANY_DIGITS: Final = b"9" * 5000
HALF_A_PAIR: Final = rb"\ud800"
NOT_UTF_8: Final = (
    b"\xff",
    b'{"\xff": 1}',
    b'{"name": "\xff"}',
    b'{"name": "\xed\xa0\x80"}',
    b'{"records": [{"value": "\xc3"}]}',
)
BODIES: Final = (
    b"", b"{", b"null", b"[]", DEEP, MANY_DIGITS,
    b'{"moves": [{"stream": "s", "partition": 0, "before": [], "after": [], "more": %s}]}' % DEEP,
    b'{"name": "%s", "config": {"%s": "%s"}, "subjects": ["%s"]}' % ((HALF_A_PAIR,) * 4),
    b'{"config": {"retention.ms": "%s.5d", "segment.bytes": %s}}' % (MANY_DIGITS, MANY_DIGITS),
    b'{"config": {"retention.ms": "%s.5d"}}' % MANY_DIGITS[:400],
    b'{"config": {"retention.ms": "%s"}}' % HALF_A_PAIR,
    b'{"partitions": [{"stream": "%s", "partition": 0, "replicas": [1]}]}' % HALF_A_PAIR,
    b'{"records": [{"value": "%s", "timestamp": %s}]}' % (HALF_A_PAIR, MANY_DIGITS),
    b'{"to": "@-%s.5d"}' % MANY_DIGITS, b'{"to": "%s", "streams": ["%s"]}' % (HALF_A_PAIR, HALF_A_PAIR),
)  # fmt: skip
NAMES: Final = ("%ff", "%00", "%ed%a0%80", "a%2fb", "-1", "%D9%A1", "9" * 5000)
QUERIES: Final = (
    "%ff=%ff", "offset=%ff", "offset=@%ff", "limit=" + "9" * 5000, "offset=" + "9" * 19, "offset=-9223372036854775807",
    "offset=@9223372036854775807", "offset=@-9223372036854775808", "offset=@0001-01-01T00:00%2B10:00",
    "offset=@9999-12-31T23:59-10:00", f"offset=@-{'9' * 400}.5d", "partition=%D9%A1", "prefix=%00", "after=%ed%a0%80",
)  # fmt: skip

# What the node has, so that not every request ends at a name that nobody knows.
KNOWN: Final = {
    "name": ["s", "__consumer_offsets", "m"],
    "id": ["g", "1", "2"],
    "partition": ["0", "2", "-1"],
    "lease": ["l"],
    "export": ["e"],
    "account": ["default", "a"],
    "tenant": ["t", "u"],
    "namespace": ["n", "o"],
}
CHECKED: Final = (
    "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection",
)  # fmt: skip


def titled(route: HttpRoute) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node whose streams come and go."""
    directory: Path = tmp_path_factory.mktemp("fuzzed") / "data"
    with NodeProcess(directory, {"group.initial.rebalance.delay.ms": 0}) as node:
        yield node
    assert "Traceback" not in node.log_path.read_text()


@pytest.fixture
def send(fuzzed: NodeProcess) -> Ask:
    """Asks that node, which has the stream `s` with some records, the queue space `m` and an inventory."""
    ask = asking(fuzzed.http)
    ask("POST", "/v1/streams", {"name": "s", "partitions": 3})
    ask("POST", "/v1/spaces", {"name": "m", "shards": 2})
    ask("POST", "/v1/spaces/m/entries", {"entries": [{"queue": "q", "value": "v"}] * 3})
    ask("POST", "/v1/tenants", {"names": ["t", "u"]})
    ask("POST", "/v1/tenants/t/namespaces", {"names": ["n", "o"]})
    ask("POST", "/v1/tenants/t/namespaces/n/topics", {"names": ["s", "m"]})
    ask("POST", "/v1/streams/s/records", {"records": [{"value": "v", "key": "k"}] * 3})
    return ask


@pytest.fixture(scope="module")
def operations() -> Mapping[str, Any]:
    """What schemathesis makes of the document: a whole second and more, so it is imported here."""
    import schemathesis
    from schemathesis.core.result import Ok

    found = schemathesis.openapi.from_dict(document(ROUTES)).get_all_operations()
    return {one.ok().label: one.ok() for one in found if isinstance(one, Ok)}


def path_with(route: HttpRoute, name: str = "") -> str:
    path = plain_path(route)
    if "/spaces/" in path:
        path = path.replace("{name}", name or "m")
    for parameter, known in KNOWN.items():
        path = path.replace(f"{{{parameter}}}", name or known[0])
    return path


@pytest.mark.parametrize("route", [route for route in ROUTES if "body" in route.types()], ids=titled)
def test_bodies(route: HttpRoute, send: Ask) -> None:
    for body in NOT_UTF_8:
        status, problem = send(route.method, path_with(route), raw=body)
        assert (status, problem["type"]) == (400, "request-invalid")
        bad = next(place for place in range(len(body)) if not body[: place + 1].isascii())
        assert f"it is not UTF-8: byte 0x{body[bad]:02x} at position {bad}" in problem["detail"]
    for body in BODIES:
        assert send(route.method, path_with(route), raw=body)[0] < 500, body[:80]


@pytest.mark.parametrize("route", ROUTES, ids=titled)
def test_paths_and_queries(route: HttpRoute, fuzzed: NodeProcess, send: Ask) -> None:
    asked = [f"{path_with(route)}?{query}" for query in QUERIES]
    if "{" in route.path:
        asked += [path_with(route, name) for name in NAMES]
    for path in asked:
        connection = HTTPConnection(fuzzed.http, timeout=60)
        connection.request(route.method, path, b"{}", {"Content-Type": "application/json"})
        assert connection.getresponse().status < 500, path[:80]
        connection.close()
    assert send("GET", "/v1/node")[0] == 200


def known_names(case: Any, draw: Any) -> None:
    """Put names that the node knows into half the places where there are names; no request waits long."""

    def named(value: Any) -> None:
        for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
            named(inner)
        if isinstance(value, dict):
            for field in ("stream", "name"):
                if isinstance(value.get(field), str) and draw(st.booleans()):
                    value[field] = "s"

    for parameter in case.path_parameters or {}:
        if draw(st.booleans()):
            case.path_parameters[parameter] = draw(st.sampled_from(KNOWN[parameter]))
    for asked in (case.query, case.body):
        for wait in ("max_wait_ms", "newer_wait_ms", "wait_ms"):
            if isinstance(asked, dict) and isinstance(asked.get(wait), int):
                asked[wait] = min(20, asked[wait])
    named(case.body)


def test_a_group_may_have_any_name(send: Ask) -> None:
    for name in ("a%0Ab", "a%2Fb%0A", "%0D%0A", "%00"):
        assert send("GET", f"/v1/groups/{name}")[1]["type"] == "group-not-found"
        assert send("POST", f"/v1/groups/{name}/offsets", {"to": "end"})[1]["type"] == "group-not-found"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("route", ROUTES, ids=titled)
def test_every_operation_keeps_to_its_description(
    route: HttpRoute, mode: str, fuzzed: NodeProcess, send: Ask, operations: Mapping[str, Any]
) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import CHECKS

    operation = operations[f"{route.method} {plain_path(route)}"]
    if mode == "negative" and not route.types().keys() & {"query", "body"}:
        return  # nothing of it can be wrong but a name
    checks = CHECKS.get_by_names(CHECKED)

    @settings(suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=GenerationMode(mode)), st.data())
    def one(case: Any, data: st.DataObject) -> None:
        known_names(case, data.draw)
        answer = case.call_and_validate(base_url=f"http://{fuzzed.http}", checks=checks, timeout=60)
        assert answer.status_code != 500

    one()
    assert send("GET", "/v1/node")[0] == 200
