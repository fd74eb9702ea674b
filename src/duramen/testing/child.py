"""The process of a test's broker: a node that starts quickly, takes commands, and ends with its parent.

Commands and responses are lines of JSON on standard input and output. The first line has the settings; neither the
environment nor a file is read. The end of standard input ends the process.
"""

import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DuramenError
from duramen.base.settings import Settings
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.node.node import NodeAssembly
from duramen.node.run import run

__all__ = ["main"]


class _Orders(asyncio.Protocol):
    """The commands on standard input, after the first line."""

    def __init__(self, take: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._take = take
        self._ended = ended
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def connection_lost(self, _: Exception | None) -> None:
        self._ended()


class _Control:
    """Executes the commands of the test."""

    def __init__(self, answers: IO[str]) -> None:
        self.faults = RequestFaults()
        self._answers = answers
        self._node: NodeAssembly | None = None
        self._ready = False

    async def begin(self, node: NodeAssembly, stop: Callable[[], None]) -> None:
        self._node = node
        await asyncio.get_running_loop().connect_read_pipe(lambda: _Orders(self._take, stop), sys.stdin)

    def say(self, _: str) -> None:
        """A line of the banner: the node is ready."""
        if not self._ready and self._node is not None:
            self._ready = True
            self.answer({"addresses": self._node.addresses})

    def answer(self, document: Mapping[str, object]) -> None:
        """Respond to a command."""
        self._answers.write(json.dumps(document) + "\n")
        self._answers.flush()

    def _take(self, order: Mapping[str, Any]) -> None:
        answer: dict[str, object] = {}
        match order["do"]:
            case "delay":
                self.faults.delay(ApiKey(order["api"]), order["ms"])
            case "error":
                self.faults.error(ApiKey(order["api"]), ErrorCode(order["code"]), order["times"])
            case "clear":
                self.faults.clear()
            case "drop":
                answer["dropped"] = self._node.drop_connections() if self._node is not None else 0
        self.answer(answer)


def main() -> None:
    """Run the node with the settings on standard input until standard input ends."""
    gc.disable()  # the node turns it on again once it is ready
    given = json.loads(sys.stdin.buffer.readline())
    control = _Control(os.fdopen(os.dup(sys.stdout.fileno()), "w"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # all other output belongs to the log
    try:
        settings = Settings(BROKER, options=given["node"], file=given["settings"], file_name="settings")
        code = run(settings, control.say, control)
    except DuramenError as error:
        control.answer({"error": error.id, "message": str(error)})
        code = 1
    sys.exit(code)
