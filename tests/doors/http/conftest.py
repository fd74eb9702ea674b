"""Requests to the HTTP door of the shared node."""

import json
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest

from duramen.node.process import NodeProcess

__all__ = ["Ask", "asking"]

Ask = Callable[..., tuple[int, Any]]


def asking(address: str) -> Ask:
    """Sends a request to a node; gives the status and the JSON of the answer."""

    def send(method: str, path: str, body: object = None, raw: bytes | None = None) -> tuple[int, Any]:
        connection = HTTPConnection(address, timeout=60)
        content = raw if raw is not None else None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answered = answer.read()
        connection.close()
        if answer.status >= 400:
            assert answer.headers["Content-Type"] == "application/problem+json"
        return answer.status, json.loads(answered) if answered else None

    return send


@pytest.fixture
def ask(node: NodeProcess) -> Ask:
    return asking(node.http)
