"""The inventory over HTTP: one and many, page by page, and errors each as what it is."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from select import select
from socket import create_connection
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.clients import until
from tests.doors.http.conftest import Ask

from duramen.node.process import NodeProcess

NDJSON = "application/x-ndjson"
INVENTORY = ("accounts", "tenants", "namespaces", "topics", "policies", "changes")
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def tenant(ask: Ask) -> str:
    name = f"t-{uuid4().hex[:12]}"
    status, answer = ask("POST", "/v1/tenants", {"names": [name], "labels": {"team": "blue"}})
    assert (status, answer["created"], answer["failed"]) == (200, 1, [])
    assert ask("POST", f"/v1/tenants/{name}/namespaces", {"names": ["dev", "prod"]})[1]["created"] == 2
    return name


def test_topics_are_made_found_searched_moved_and_deleted(ask: Ask, tenant: str) -> None:
    prod, dev = (f"/v1/tenants/{tenant}/namespaces/{namespace}" for namespace in ("prod", "dev"))
    names = [f"device-{number:03}/telemetry" for number in range(250)]
    status, answer = ask("POST", f"{prod}/topics", {"names": [*names, names[0], "", "a\nb"]})
    assert (status, answer["created"], answer["existing"]) == (200, 250, 1)
    assert [(one["name"], one["problem"]["type"]) for one in answer["failed"]] == [
        ("", "inventory-name-invalid"), ("a\nb", "inventory-name-invalid"),
    ]  # fmt: skip
    assert answer["position"]
    assert ask("GET", prod)[1]["topics"] == 250
    one = f"{prod}/topics/{quote(names[7], safe='')}"
    topic = ask("GET", one)[1]
    assert (topic["tenant"], topic["namespace"], topic["name"]) == (tenant, "prod", names[7])
    found = ask("POST", f"{prod}/lookup", {"names": [names[7], "nothing"]})[1]["topics"]
    assert [None if one is None else one["id"] for one in found] == [topic["id"], None]

    query = f"tenant={tenant}&namespace=prod&glob={quote('*-1*')}&limit=100"
    page = ask("GET", f"/v1/topics?{query}")[1]
    rest = ask("GET", f"/v1/topics?{query}&after={page['next']}")[1]
    assert [one["name"] for one in page["topics"] + rest["topics"]] == [n for n in names if n.startswith("device-1")]

    status, moved = ask("PATCH", one, {"namespace": "dev", "name": "seven", "keep_alias": True})
    assert (status, moved["id"], moved["namespace"], moved["name"]) == (200, topic["id"], "dev", "seven")
    alias = ask("GET", one)[1]
    assert (alias["alias"], alias["topic"]["name"], alias["id"]) == (True, "seven", topic["id"])
    assert ask("GET", f"/v1/topics/{topic['id']}")[1]["aliases"] == [
        {"tenant": tenant, "namespace": "prod", "name": names[7]}
    ]
    assert ask("DELETE", f"{dev}/topics/seven")[1]["type"] == "topic-has-aliases"
    assert ask("DELETE", one)[0] == 200
    assert ask("DELETE", f"{dev}/topics/seven")[0] == 200
    assert ask("GET", f"/v1/topics/{topic['id']}")[1]["type"] == "topic-not-found"
    wish = {"name": "x", "topic": {"tenant": tenant, "namespace": "prod", "name": names[1]}}
    assert ask("POST", f"{dev}/aliases", wish)[1]["alias"] is True
    status, namespace = ask("PATCH", dev, {"name": "test", "labels": {"a": "b"}})
    assert (status, namespace["name"], namespace["labels"]) == (200, "test", {"a": "b"})
    assert ask("DELETE", f"/v1/tenants/{tenant}")[0] == 200
    assert ask("GET", prod)[1]["type"] == "tenant-not-found"


def test_wrong_queries_are_named(ask: Ask, tenant: str) -> None:
    for path in ("/v1/tenants", f"/v1/tenants/{tenant}/namespaces", "/v1/topics"):
        status, answer = ask("GET", f"{path}?after=GARBAGE")
        assert (status, answer["type"]) == (400, "page-token-invalid")
    for name in ("prefix", "glob", "pattern"):
        status, answer = ask("GET", f"/v1/topics?{name}=")
        assert (status, name in answer["detail"]) == (400, True)
    assert ask("GET", "/v1/topics?glob=a%5Bb")[1]["type"] == "glob-invalid"
    first = ask("GET", f"/v1/tenants/{tenant}/namespaces?limit=1")[1]
    second = ask("GET", f"/v1/tenants/{tenant}/namespaces?limit=1&after={first['next']}")[1]
    assert [one["name"] for one in first["namespaces"] + second["namespaces"]] == ["dev", "prod"]
    assert second["next"] is None
    assert ask("GET", f"/v1/tenants?after={first['next']}")[1]["type"] == "page-token-invalid"


def test_an_empty_filter_is_refused_by_name(ask: Ask) -> None:
    found = 0
    for path, methods in ask("GET", "/v1/openapi.json")[1]["paths"].items():
        if "get" not in methods or not path.startswith(tuple(f"/v1/{part}" for part in INVENTORY)):
            continue
        for parameter in methods["get"].get("parameters", []):
            name = parameter["name"]
            if parameter["in"] == "query" and name not in ("after", "position", "prefix"):
                found += 1
                for part in ("account", "tenant", "namespace", "name", "id"):
                    path = path.replace(f"{{{part}}}", "x")  # noqa: PLW2901
                status, answer = ask("GET", f"{path}?{name}=")
                assert (status, answer["type"]) == (400, "request-invalid"), (path, name)
                assert f"the query parameter {name}= does not fit" in answer["detail"]
    assert found > 20


def test_topics_are_moved_in_one_request_and_those_that_fail_are_named(ask: Ask, tenant: str) -> None:
    prod, dev = (f"/v1/tenants/{tenant}/namespaces/{namespace}" for namespace in ("prod", "dev"))
    ask("POST", f"{prod}/topics", {"names": ["a", "b", "c"]})
    ids = [one["id"] for one in ask("POST", f"{prod}/lookup", {"names": ["a", "b"]})[1]["topics"]]
    moves = [
        {"name": "a", "to": {"name": "1"}}, {"name": "b", "to": {"namespace": "dev", "keep_alias": True}},
        {"name": "c", "to": {"namespace": "nowhere"}}, {"name": "nothing", "to": {"name": "x"}},
    ]  # fmt: skip
    status, answer = ask("POST", f"{prod}/moves", {"moves": moves})
    assert (status, answer["moved"]) == (200, 2)
    assert {one["name"]: one["problem"]["type"] for one in answer["failed"]} == {
        "c": "namespace-not-found", "nothing": "topic-not-found",
    }  # fmt: skip
    assert answer["position"]
    found = ask("POST", f"{prod}/lookup", {"names": ["1", "b", "a"]})[1]["topics"]
    assert [one and (one["id"], one["alias"]) for one in found] == [(ids[0], False), (ids[1], True), None]
    assert ask("GET", f"{dev}/topics/b")[1]["id"] == ids[1]


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=50_000)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def post_rows(node: NodeProcess, path: str, content: bytes | Iterable[bytes], type_: str) -> tuple[int, Any]:
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("POST", path, content, {"Content-Type": type_})
    response = connection.getresponse()
    answer = response.status, json.load(response)
    connection.close()
    return answer


def test_a_bulk_request_comes_as_lines_of_any_number(ask: Ask, tenant: str, node: NodeProcess) -> None:
    path = f"/v1/tenants/{tenant}/namespaces/dev"
    lines = (b"".join(b'"topic-%d"\n' % (at + number) for number in range(10_000)) for at in range(0, 200_000, 10_000))
    status, answer = post_rows(node, f"{path}/topics", lines, NDJSON)
    assert (status, answer["created"], answer["failures"]) == (200, 200_000, 0)
    assert ask("GET", path)[1]["topics"] == 200_000


def test_rows_that_fail_are_named_and_the_others_are_created(tenant: str, node: NodeProcess) -> None:
    path = f"/v1/tenants/{tenant}/namespaces/dev/topics"
    lines = b'"a"\nnope\n{"name": "b", "id": 1}\n{"nam": "c"}\n"\\t"\n"a"\n\n"d"'
    for made in ((3, 1), (0, 4)):
        status, answer = post_rows(node, path, lines, NDJSON)
        assert (status, answer["created"], answer["existing"], answer["failures"]) == (200, *made, 3)
        assert [(one["name"], one["row"], one["problem"]["type"]) for one in answer["failed"]] == [
            ("", 2, "input-invalid"), ("", 4, "input-invalid"), ("\t", 5, "inventory-name-invalid"),
        ]  # fmt: skip
    status, answer = post_rows(node, path, b"x\n" * 20_000, NDJSON)
    assert (status, answer["failures"], len(answer["failed"])) == (200, 20_000, 10_000)
    new = f"{tenant}-n"
    assert post_rows(node, "/v1/tenants", f'"{new}"\n7\n'.encode(), NDJSON)[1]["created"] == 1
    assert post_rows(node, f"/v1/tenants/{new}/namespaces", b'"a"\n"b"', NDJSON)[1]["created"] == 2


def test_every_failure_has_its_row(ask: Ask, tenant: str, node: NodeProcess) -> None:
    dev = f"/v1/tenants/{tenant}/namespaces/dev"
    ask("PATCH", f"/v1/policies/{tenant}/dev", {"policies": {"quota.topics": 1}})
    names = ["", "a", "\t", "b", "a", "\t", "b"]
    rows = [(1, "inventory-name-invalid"), (3, "inventory-name-invalid"), (4, "topic-quota-exceeded")]
    rows += [(6, "inventory-name-invalid"), (7, "topic-quota-exceeded")]
    lines = "\n\n".join(map(json.dumps, names)).encode()  # each second line is blank
    for step, (status, answer) in (
        (1, ask("POST", f"{dev}/topics", {"names": names})),
        (2, post_rows(node, f"{dev}/topics", lines, NDJSON)),
        (1, post_rows(node, f"{dev}/topics", arrow(pa.table({"name": names})), ARROW)),
    ):
        assert (status, answer["created"] + answer["existing"], answer["failures"]) == (200, 2, 5)
        assert [(one["row"], one["problem"]["type"]) for one in answer["failed"]] == [
            ((row - 1) * step + 1, why) for row, why in rows
        ]
    for path in ("/v1/tenants", f"/v1/tenants/{tenant}/namespaces"):
        failed = post_rows(node, path, b'7\n"a.b"\n"c.d"\n"a.b"\n', NDJSON)[1]["failed"]
        assert [(one["name"], one["row"]) for one in failed] == [("", 1), ("a.b", 2), ("c.d", 3), ("a.b", 4)]


def test_moves_of_lines_that_fail_are_named_and_the_others_go_on(ask: Ask, tenant: str, node: NodeProcess) -> None:
    prod = f"/v1/tenants/{tenant}/namespaces/prod"
    ask("POST", f"{prod}/topics", {"names": [f"t{number}" for number in range(2500)]})
    moves = [{"name": f"t{number}", "to": {"name": f"u{number}"}} for number in range(2500)]
    lines: list[object] = [*moves[:1000], {"name": "t1000"}, 7, {"name": "t0", "to": {}}, *moves[1000:]]
    content = b"nope\n\n" + "\n".join(map(json.dumps, lines)).encode() + b"\n{"
    status, answer = post_rows(node, f"{prod}/moves", content, NDJSON)
    assert (status, answer["moved"], answer["failures"]) == (200, 2500, 5)
    assert [(one["row"], one["name"], one["problem"]["type"]) for one in answer["failed"]] == [
        (1, "", "input-invalid"), (1003, "", "input-invalid"), (1004, "", "input-invalid"),
        (1005, "t0", "topic-not-found"), (2506, "", "input-invalid"),
    ]  # fmt: skip
    assert "line 1003 is no move: Object missing required field `to`" in answer["failed"][1]["problem"]["detail"]
    # The same name twice: one after the other.
    twice = [{"name": "u0", "to": {"name": name}} for name in ("v", "w")]
    failed = ask("POST", f"{prod}/moves", {"moves": twice})[1]["failed"]
    assert [(one["row"], one["problem"]["type"]) for one in failed] == [(2, "topic-not-found")]
    assert ask("POST", f"{prod}/lookup", {"names": ["v", "u7", "t7"]})[1]["topics"][2] is None


def test_a_bulk_request_comes_as_arrow(ask: Ask, tenant: str, node: NodeProcess) -> None:
    path = f"/v1/tenants/{tenant}/namespaces/dev"
    names = pa.array([None if at == 70_000 else f"topic-{at}" for at in range(150_000)])
    content = arrow(pa.table({"id": range(len(names)), "name": names}))
    status, answer = post_rows(node, f"{path}/topics", content, ARROW)
    assert (status, answer["created"], [one["row"] for one in answer["failed"]]) == (200, 149_999, [70_001])
    status, answer = post_rows(node, f"{path}/topics", content[:-1000], ARROW)
    assert (status, answer["type"], "within a message" in answer["detail"]) == (400, "request-invalid", True)
    assert ask("GET", path)[1]["topics"] == 149_999
    assert post_rows(node, f"{path}/topics", b"", "text/csv")[1]["type"] == "body-type-unsupported"
    large = {"names": ["x" * 90] * 99_999}
    answer = ask("POST", f"{path}/topics", large)[1]
    assert (answer["type"], "NDJSON" in answer["remedy"]) == ("body-too-large", True)


def test_each_error_says_what_it_is(ask: Ask, tenant: str) -> None:
    dev = f"/v1/tenants/{tenant}/namespaces/dev"
    ask("POST", f"{dev}/topics", {"names": ["a", "b"]})
    same = {"tenant": tenant, "namespace": "dev", "name": "a"}
    for method, path, body, status, problem in (
        ("GET", "/v1/tenants/none", None, 404, "tenant-not-found"),
        ("GET", f"/v1/tenants/{tenant}/namespaces/none", None, 404, "namespace-not-found"),
        ("GET", f"{dev}/topics/none", None, 404, "topic-not-found"),
        ("PATCH", f"{dev}/topics/none", {"name": "c"}, 404, "topic-not-found"),
        ("DELETE", f"{dev}/topics/none", None, 404, "topic-not-found"),
        ("GET", "/v1/topics/7", None, 404, "topic-not-found"),
        ("GET", f"/v1/topics/{uuid4()}", None, 404, "topic-not-found"),
        ("PATCH", f"{dev}/topics/a", {"name": "b"}, 409, "topic-exists"),
        ("PATCH", f"{dev}/topics/a", {"name": "x" * 122}, 400, "inventory-name-invalid"),
        ("PATCH", f"{dev}/topics/a", {"namespace": "none"}, 404, "namespace-not-found"),
        ("POST", f"{dev}/aliases", {"name": "a", "topic": same}, 409, "topic-alias-cycle"),
        ("POST", f"{dev}/aliases", {"name": "b", "topic": same}, 409, "topic-exists"),
        ("PATCH", dev, {"name": "prod"}, 409, "namespace-exists"),
        ("PATCH", dev, {"name": "a.b"}, 400, "inventory-name-invalid"),
        ("PATCH", f"/v1/tenants/{tenant}", {"name": ""}, 400, "inventory-name-invalid"),
        ("PATCH", f"/v1/tenants/{tenant}", {"labels": {"": "x"}}, 400, "inventory-name-invalid"),
        ("PATCH", dev, {"labels": {"a=b": "x"}}, 400, "inventory-name-invalid"),
        ("GET", "/v1/topics?pattern=(", None, 400, "pattern-invalid"),
        ("GET", "/v1/topics?namespace=dev", None, 400, "request-invalid"),
        ("GET", "/v1/topics?after=abc", None, 400, "page-token-invalid"),
        ("GET", "/v1/tenants?account=none", None, 200, None),
        ("PATCH", "/v1/policies?account=a%2Fb", {"policies": {"quota.topics": 1}}, 400, "inventory-name-invalid"),
        ("PATCH", f"/v1/policies/{tenant}", {"policies": {"quota.bytes": "1.5"}}, 400, "policy-invalid"),
        ("PATCH", f"/v1/policies/{tenant}", {"policies": {"quota.bytes": "1.5KiB"}}, 200, None),
    ):
        answered, answer = ask(method, path, body)
        assert (answered, answer.get("type")) == (status, problem), (method, path)
    ask("POST", f"{dev}/aliases", {"name": "c", "topic": same})
    assert ask("PATCH", f"{dev}/topics/c", {"name": "d"})[1]["type"] == "topic-is-alias"
    made = ask("POST", "/v1/tenants?account=a%2Fb", {"names": ["never"]})[1]
    assert (made["created"], made["failed"][0]["problem"]["type"]) == (0, "inventory-name-invalid")


def test_tenants_and_namespaces_are_listed_page_by_page(ask: Ask, tenant: str) -> None:
    page = ask("GET", f"/v1/tenants/{tenant}/namespaces?limit=1")[1]
    rest = ask("GET", f"/v1/tenants/{tenant}/namespaces?limit=1&after={page['next']}")[1]
    assert [one["name"] for one in page["namespaces"] + rest["namespaces"]] == ["dev", "prod"]
    assert rest["next"] is None
    listed = ask("GET", f"/v1/tenants?prefix={tenant}")[1]["tenants"]
    assert [(one["name"], one["labels"]) for one in listed] == [(tenant, {"team": "blue"})]


def test_parts_are_searched_and_counted(ask: Ask, tenant: str) -> None:
    account = f"a-{tenant}"
    ask(
        "POST",
        f"/v1/tenants?account={account}",
        {"names": [f"{tenant}-{name}" for name in "cab"], "labels": {"x": "1"}},
    )
    ask("PATCH", f"/v1/tenants/{tenant}-b?account={account}", {"labels": {"x": "2"}})
    for name in ("a", "b"):
        path = f"/v1/tenants/{tenant}-{name}/namespaces"
        assert ask("POST", f"{path}?account={account}", {"names": ["dev", "prod", f"only-{name}"]})[1]["created"] == 3
        assert ask("POST", f"{path}/dev/topics?account={account}", {"names": ["t1", "t2"]})[1]["created"] == 2
        ask("PATCH", f"{path}/prod?account={account}", {"labels": {"of": name}})

    def found(path: str, key: str) -> list[str]:
        """All pages of one entry each."""
        names, after = list[str](), ""
        while True:
            page = ask("GET", f"{path}&account={account}&limit=1&after={after}")[1]
            names += [one["name"].replace(f"{tenant}-", "") for one in page[key]]
            after = page["next"]
            if after is None:
                return names

    assert found("/v1/tenants?glob=*-[ab]", "tenants") == ["a", "b"]
    assert found("/v1/tenants?label=x=1", "tenants") == ["a", "c"]
    assert found(f"/v1/tenants?pattern={tenant}-.&label=x", "tenants") == ["a", "b", "c"]
    assert found(f"/v1/tenants/{tenant}-b/namespaces?pattern=only.*|dev", "namespaces") == ["dev", "only-b"]
    assert found("/v1/namespaces?prefix=only", "namespaces") == ["only-a", "only-b"]
    assert found("/v1/namespaces?label=of=b", "namespaces") == ["prod"]
    assert found("/v1/namespaces?glob=nothing*", "namespaces") == []
    shown = ask("GET", f"/v1/tenants/{tenant}-a?account={account}")[1]
    assert (shown["namespaces"], shown["topics"]) == (3, 2)
    shown = ask("GET", f"/v1/accounts/{account}")[1]
    assert [shown[what] for what in ("name", "tenants", "namespaces", "topics")] == [account, 3, 6, 4]
    listed = ask("GET", f"/v1/accounts?glob={account[:-1]}*")[1]["accounts"]
    assert [(one["name"], one["tenants"], one["namespaces"]) for one in listed] == [(account, 3, 6)]
    for path, problem in (
        ("/v1/accounts/none", "account-not-found"), ("/v1/accounts?glob=[", "glob-invalid"),
        ("/v1/namespaces?pattern=(", "pattern-invalid"), ("/v1/tenants?after=x", "page-token-invalid"),
        ("/v1/topics?policy=quota.topics", "request-invalid"), ("/v1/topics?kind=x", "request-invalid"),
    ):  # fmt: skip
        assert (path, ask("GET", path)[1]["type"]) == (path, problem)


def test_topics_are_filtered(ask: Ask, tenant: str) -> None:
    dev, prod = (f"/v1/tenants/{tenant}/namespaces/{namespace}" for namespace in ("dev", "prod"))
    ask("POST", f"{dev}/topics", {"names": ["a", "b"]})
    ask("PATCH", f"/v1/policies/{tenant}/prod", {"policies": {"durability": "os"}})
    ask("POST", f"{prod}/topics", {"names": ["c"]})
    ask("POST", f"{prod}/aliases", {"name": "d", "topic": {"tenant": tenant, "namespace": "dev", "name": "a"}})
    ask("PATCH", f"/v1/policies/{tenant}/dev/b", {"policies": {"retention.ms": 1000}})
    ask("PATCH", prod, {"labels": {"stage": "last"}})
    for query, names in (
        ("kind=topic", "abc"), ("kind=alias", "d"), ("durability=os", "c"), ("durability=sync&kind=topic", "ab"),
        ("policy=retention.ms", "b"), ("label=team=blue", "abcd"), ("label=stage", "cd"), ("label=stage=first", ""),
    ):  # fmt: skip
        page = ask("GET", f"/v1/topics?tenant={tenant}&{query}")[1]
        assert (query, "".join(one["name"] for one in page["topics"])) == (query, names)
    token = ask("GET", f"/v1/topics?tenant={tenant}&kind=topic&limit=1")[1]["next"]
    assert ask("GET", f"/v1/topics?tenant={tenant}&kind=alias&after={token}")[1]["type"] == "page-token-invalid"


def test_every_read_takes_a_position_and_refuses_what_is_none(ask: Ask, tenant: str) -> None:
    topic = ask("GET", f"/v1/tenants/{tenant}")[1]["position"]
    parts = tuple(f"/v1/{part}" for part in INVENTORY)
    paths = ask("GET", "/v1/openapi.json")[1]["paths"].items()
    reads = [path for path, methods in paths if "get" in methods and path.startswith(parts)]
    assert len(reads) > 8
    names = {"account": "default", "tenant": tenant, "namespace": "dev", "name": "a", "id": str(uuid4())}
    for path in reads:
        for part, name in names.items():
            path = path.replace(f"{{{part}}}", name)  # noqa: PLW2901
        assert (path, ask("GET", f"{path}?position=zzz")[1].get("type")) == (path, "request-invalid")
        assert ask("GET", f"{path}?position={topic}")[1].get("type") != "request-invalid"


def test_bulk_requests_in_progress_are_bounded_and_end_with_their_clients(tenant: str, node: NodeProcess) -> None:
    path = f"/v1/tenants/{tenant}/namespaces/dev/topics"
    head = f"POST {path} HTTP/1.1\r\nHost: {node.http}\r\nContent-Type: {NDJSON}\r\nContent-Length: 1000\r\n\r\n"
    host, _, port = node.http.rpartition(":")
    with ExitStack() as stack:
        unfinished = [stack.enter_context(create_connection((host, int(port)))) for _ in range(17)]
        for connection in unfinished:
            connection.sendall(head.encode() + b'"a"\n')
        (refused,), _, _ = select(unfinished, [], [], 20)
        response = HTTPResponse(refused)
        response.begin()
        assert (response.status, json.load(response)["type"]) == (503, "node-busy")
    until(lambda: post_rows(node, path, b'"b"', NDJSON)[0] == 200)
