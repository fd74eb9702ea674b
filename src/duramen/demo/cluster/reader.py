"""The reader: an unmodified confluent-kafka consumer of every partition, in a process of its own.

It reads until it is told to stop or its parent has ended, reports its progress from time to time, and its result at the
end.
"""

import multiprocessing
import os
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from duramen.base.errors import DemoFailed
from duramen.demo.flights import flight_fingerprint, number_of
from duramen.demo.member import MemberPartition, consume, detach

__all__ = ["ClusterDemoReader", "read"]

_STOP_S: Final = 10.0
_ANSWER_MS: Final = 3_000
_CONFIG: Final[Mapping[str, str | int | bool]] = {
    "group.id": "flights-reader", "enable.auto.commit": False, "socket.timeout.ms": _ANSWER_MS,
    "reconnect.backoff.max.ms": 500,
}  # fmt: skip

Ends = dict[int, int]
"""For each partition the offset behind the last one that was read."""


def read(servers: str, stream: str, partitions: int, log_path: str, parent: Connection) -> None:
    """Read all partitions from their beginnings. What the client says of itself goes to a file."""
    detach(log_path)
    consumer = Consumer({**_CONFIG, "bootstrap.servers": servers})
    consumer.assign([TopicPartition(stream, number, OFFSET_BEGINNING) for number in range(partitions)])
    parts: dict[int, MemberPartition] = {}
    consume(
        consumer, parent, parts, partial(_take, parts), lambda: {number: part.end for number, part in parts.items()}
    )


def _take(parts: dict[int, MemberPartition], message: Message) -> None:
    partition, offset = message.partition(), message.offset()
    if message.error() is not None or partition is None or offset is None:
        os.write(2, f"{message.error()}\n".encode())
        return
    number = number_of(message.key())
    parts.setdefault(partition, MemberPartition()).add(
        offset, number, flight_fingerprint(number, message.value() or b"")
    )


class ClusterDemoReader:
    """The reader's process; it ends with the `with` block."""

    def __init__(self, servers: str, stream: str, partitions: int, log_path: Path) -> None:
        self._log_path = log_path
        self.ends: Ends = {}
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (servers, stream, partitions, str(log_path), theirs)
        self._process = context.Process(target=read, args=arguments, name="reader", daemon=True)
        self._process.start()
        theirs.close()

    @property
    def read(self) -> int:
        """How many records have been read, each offset counted once, as it has said so far. Raises DemoFailed."""
        try:
            while self._connection.poll():
                self.ends = self._connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        return sum(self.ends.values())

    def finish(self) -> dict[int, MemberPartition]:
        """Tell it to end; returns what it has read, by partition. Raises DemoFailed."""
        try:
            self._connection.send("end")
            # What it said of its progress comes before.
            while not _is_whole(said := self._connection.recv()):
                pass
        except (EOFError, OSError):
            raise self._ended() from None
        parts: dict[int, MemberPartition] = said
        return parts

    def _ended(self) -> DemoFailed:
        return DemoFailed(f"the reader has ended unasked; what it said is in {self._log_path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()  # where it still reads it sees that, and leaves
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _is_whole(said: Mapping[int, object]) -> bool:
    return any(isinstance(one, MemberPartition) for one in said.values())
