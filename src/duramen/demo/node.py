"""The demo's node: a real one in a process of its own, killed and restarted, and its stream over HTTP."""

import http.client
import json
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from duramen.base.errors import DemoFailed, ServerUnreachable
from duramen.node.process import NodeProcess

__all__ = ["PARTITIONS", "STREAM", "SUBJECTS", "DemoNode"]

STREAM: Final = "flights"
SUBJECTS: Final = "flights.>"
PARTITIONS: Final = 4

_TIMEOUT_S: Final = 10.0
_DELAY_MS: Final = 500  # the consumers start together: nobody else is waited for


class DemoNode:
    """A node with an embedded nats-server in `data_dir`, on free ports that it keeps over restarts."""

    def __init__(self, data_dir: Path) -> None:
        self.process = NodeProcess(data_dir, {"nats.server": "embedded", "group.initial.rebalance.delay.ms": _DELAY_MS})
        self.killed_s = 0.0

    def start(self) -> float:
        """Start it; returns the seconds until every door took requests. Raises DemoFailed."""
        began_s = time.perf_counter()
        try:
            self.process.start()
        except ServerUnreachable:
            raise DemoFailed(f"the node does not start; what it said is in {self.process.log_path}") from None
        return time.perf_counter() - began_s

    def kill(self) -> None:
        """Kill it with -9."""
        self.killed_s = time.perf_counter()
        self.process.kill()

    def create_stream(self) -> None:
        """Create the stream. Raises DemoFailed."""
        self._ask("POST", "/v1/streams", {"name": STREAM, "subjects": [SUBJECTS], "partitions": PARTITIONS})

    def describe_partitions(self) -> list[dict[str, int]]:
        """The partitions of the stream, as the node describes them. Raises DemoFailed."""
        partitions: list[dict[str, int]] = self._ask("GET", f"/v1/streams/{STREAM}")["partitions"]
        return partitions

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        connection = http.client.HTTPConnection(self.process.http, timeout=_TIMEOUT_S)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DemoFailed(f"the node does not answer at {self.process.http}: {error}") from None
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise DemoFailed(f"the node refused {method} {path}: {content.get('detail', answer.reason)}")
        return content

    def stop(self) -> None:
        """Stop it, however it is."""
        try:
            self.process.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
