"""Requests in progress when the node stops: each gets a response that says what is known, and the log no traceback."""

import json
from collections.abc import Callable
from http.client import HTTPResponse
from socket import create_connection

import duramen
from duramen.node.process import NodeProcess


def test_requests_that_do_not_end_are_answered_at_the_stop(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    host, _, port = node.http.rpartition(":")
    with duramen.connect(node.http) as client:
        client.inventory.create_tenants(["t"])
        client.inventory.create_namespaces("t", ["n"])
        client.streams.create("s")
    requests = {
        "/v1/tenants/t/namespaces/n/topics": ("application/x-ndjson", b'"a"\n"b"\n'),
        "/v1/tenants/t/namespaces/n/moves": ("application/x-ndjson", b'{"name": "a", "to": {"name": "c"}}\n'),
        "/v1/streams/s/records": ("application/json", b'{"records": ['),
    }
    connections = {}
    for path, (type_, content) in requests.items():
        connections[path] = create_connection((host, int(port)), 60)
        head = f"POST {path} HTTP/1.1\r\nHost: {node.http}\r\nContent-Type: {type_}\r\nContent-Length: 1000\r\n\r\n"
        connections[path].sendall(head.encode() + content)
    with duramen.connect(node.http) as client:
        client.streams.list()  # a later request is answered: those before it are in progress
    assert node.stop() == 0
    for path, connection in connections.items():
        response = HTTPResponse(connection)
        response.begin()
        problem = json.loads(response.read())
        assert (response.status, problem["type"], problem["instance"]) == (503, "outcome-unknown", path)
        connection.close()
    assert "Traceback" not in node.log_path.read_text()
