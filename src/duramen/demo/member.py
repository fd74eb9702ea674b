"""One member of the consumer group: an unmodified confluent-kafka consumer in a process of its own.

It reads until it is told to stop or its parent has ended, reports its progress from time to time, and its result at the
end.
"""

import os
import signal
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Message

from duramen.demo.digest import fingerprint
from duramen.demo.flights import MESSAGE_ID_PREFIX

__all__ = ["MemberPartition", "MemberProgress", "consume", "detach", "read"]

_AT_ONCE: Final = 1000
_WAIT_S: Final = 0.1
_SAY_S: Final = 0.1
_NO_HEADER: Final = b""


class MemberProgress(NamedTuple):
    """How far a member is: the partitions that are its own now, and for each it has read the offset behind the last."""

    assigned: list[int]
    ends: dict[int, int]


@dataclass(slots=True)
class MemberPartition:
    """What was read of one partition, in the order of reading: offsets, numbers of flights, and fingerprints."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    fingerprints: bytearray = field(default_factory=bytearray)
    end: int = 0  # the offset behind the last one

    def add(self, offset: int, number: int, fingerprint_: bytes) -> None:
        """Add a record that was read."""
        self.end = max(self.end, offset + 1)
        self.offsets.append(offset)
        self.numbers.append(number)
        self.fingerprints += fingerprint_


def read(config: Mapping[str, str], stream: str, log_path: str, parent: Connection) -> None:
    """Read as a member of a group. `config` is the consumer's; what it says of itself goes to a file."""
    detach(log_path)
    consumer = Consumer(dict(config))
    consumer.subscribe([stream])
    parts: dict[int, MemberPartition] = {}
    consume(consumer, parent, parts, partial(_take, parts), lambda: _progress(consumer, parts))


def detach(log_path: str) -> None:
    """Leave Ctrl-C, which reaches every process of the terminal, to the parent; append stderr to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)


def consume(
    consumer: Consumer, parent: Connection, parts: Mapping[int, MemberPartition], take: Callable[[Message], None],
    progress: Callable[[], object],
) -> None:  # fmt: skip
    """Consume until the parent sends something or ends. The parent gets `progress` from time to time, then `parts`."""
    said_s = 0.0
    try:
        while not parent.poll():
            for message in consumer.consume(_AT_ONCE, _WAIT_S):
                take(message)
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                parent.send(progress())
        parent.recv()
        consumer.close()
        parent.send(parts)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        consumer.close()


def _progress(consumer: Consumer, parts: Mapping[int, MemberPartition]) -> MemberProgress:
    assigned = [place.partition for place in consumer.assignment()]
    return MemberProgress(assigned, {partition: part.end for partition, part in parts.items()})


def _take(parts: dict[int, MemberPartition], message: Message) -> None:
    partition, offset = message.partition(), message.offset()
    if message.error() is not None or partition is None or offset is None:
        os.write(2, f"{message.error()}\n".encode())
        return
    headers = dict(message.headers() or [])
    message_id = _bytes(headers.get("Nats-Msg-Id"))
    its = fingerprint(message_id, _bytes(headers.get("Nats-Subject")), message.value() or b"")
    parts.setdefault(partition, MemberPartition()).add(offset, _number(message_id), its)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or _NO_HEADER


def _number(message_id: bytes) -> int:
    """The number of the flight; -1 for what is none of ours."""
    digits = message_id.removeprefix(MESSAGE_ID_PREFIX.encode())
    return int(digits) if digits.isdigit() else -1
