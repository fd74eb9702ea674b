"""Duramen as a measured system: a node in a process of its own, with streams of each durability."""

import http.client
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from duramen.base.errors import RequestInvalid, ServerUnreachable
from duramen.bench.contenders import Contender, Door
from duramen.node.process import NodeProcess

__all__ = ["Ours"]

_MEMORY_BYTES: Final = 64 * 1024 * 1024
_TIMEOUT_S: Final = 60.0


class Ours:
    """A node in `directory`, with its defaults but for groups, which begin at once as those of the peers do."""

    def __init__(self, directory: Path, *, nats: bool, program: Sequence[str] = ("-m", "duramen")) -> None:
        """`program` is what Python runs, with the options of `duramen`."""
        settings = {"group.initial.rebalance.delay.ms": 0} | ({"nats.server": "embedded"} if nats else {})
        self.process = NodeProcess(directory / "data", settings, program)

    def __enter__(self) -> Self:
        """Start it. Raises ServerUnreachable."""
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.stop()
        except subprocess.TimeoutExpired:
            # On a machine that is busy enough a node may be late; what it holds is thrown away anyhow.
            self.process.kill()

    def stream(
        self, name: str, durability: str, door: Door, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Contender:
        """A new stream; through the NATS door it is bound to a subject of its own."""
        subject = f"bench.{name}"
        config = {"durability": durability, "memory.max.bytes": _MEMORY_BYTES, **(config or {})}
        body = {
            "name": name,
            "partitions": partitions,
            "subjects": [subject] if door == "nats" else [],
            "config": config,
        }
        self._post("/v1/streams", body)
        kafka = self.process.kafka
        if door == "nats":
            return Contender("duramen", durability, door, self.process.nats, subject, name, kafka)
        return Contender("duramen", durability, door, kafka, name, name, kafka)

    def _post(self, path: str, document: Mapping[str, object]) -> None:
        connection = http.client.HTTPConnection(self.process.http, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", path, json.dumps(document), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnreachable(f"the node at {self.process.http} does not answer: {error}") from None
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise RequestInvalid(f"creating {document['name']}: {content.decode(errors='replace')}")
