"""The response with records that a connection is sending: read from the log piece by piece as the socket accepts it.

After a bounded amount other connections get their turn; a piece from the disk is awaited.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.doors.kafka.connection.cold_reads import ColdReads
from duramen.doors.kafka.request.exchange import StreamedAnswer
from duramen.service.broker import Broker
from duramen.storage.segment.reader import Blocked, Slice

__all__ = ["Records", "Streaming", "write_together"]

_log = logging.getLogger("duramen.kafka")

_TURN_BYTES: Final = 512 * 1024  # of one answer, before it is the turn of other connections
_JOINED_BYTES: Final = 16 * 1024  # until then one buffer costs less than many


class Records(Protocol):
    """The source of records for responses."""

    broker: Broker
    cold_reads: ColdReads

    @property
    def pieces_are_copied(self) -> bool:
        """Whether a piece given to a socket must not keep more memory than its own bytes."""

    def piece_bytes(self, *, cold: bool) -> int:
        """The bytes of a response that a connection may read from a log at once."""


class Streaming:
    """One answer at a time, of one connection."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.answer: StreamedAnswer | None = None  # of which not everything is sent
        self._slice: Slice | None = None
        self.waits = False

    def begin(self, answer: StreamedAnswer) -> None:
        """Take up an answer; those before it have been sent."""
        self.answer = answer

    def drop(self) -> None:
        """Release the log: the connection is closed."""
        self.answer = self._slice = None

    def send(self, transport: asyncio.Transport, takes_more: Callable[[], bool], go_on: Callable[[], None]) -> bool:
        """Send as much of the response as the socket accepts; returns whether that was all.

        `takes_more` tells whether the socket accepts more now; `go_on` is called once the awaited data is there.
        """
        sent = 0
        while self.answer is not None and takes_more():
            if sent >= _TURN_BYTES:
                # A client that reads as fast as its response is sent must not delay the others for all of it.
                self.waits = True
                self._records.broker.store.soon(partial(self._over, transport, go_on, None))
                return False
            try:
                buffers, blocked = self._gather(self.answer.parts)
            except DuramenError as error:
                # The answer's size has been sent: all that is left is to end it. The next fetch gets the error.
                _log.info("a fetch of %s ends: %s", transport.get_extra_info("peername"), error)
                transport.abort()
                return False
            if buffers:
                sent += write_together(transport, buffers)
            if blocked is not None:
                self.waits = True
                self._records.cold_reads.read(blocked, partial(self._over, transport, go_on))
                return False
        return self.answer is None

    def _gather(self, parts: Iterator[Buffer | Slice]) -> tuple[list[Buffer], Blocked | None]:
        """The bytes for one call to the socket: about one piece, with the bytes between the records of partitions.

        Each call costs both sides more than the bytes of a small part. Raises LogDamaged.
        """
        buffers: list[Buffer] = []
        size = 0
        while True:
            slice_ = self._slice
            if slice_ is not None and len(slice_):
                piece_bytes = self._records.piece_bytes(cold=slice_.cold)
                if 2 * size >= piece_bytes:
                    return buffers, None
                piece = slice_.piece(piece_bytes, alone=slice_.cold and self._records.cold_reads.alone)
                if isinstance(piece, Blocked):
                    return buffers, piece
                if self._records.pieces_are_copied:
                    piece = [b"".join(piece)]
                buffers += piece
                size += sum(map(len, piece))
                continue
            part = next(parts, None)
            if part is None:
                self.answer = self._slice = None
                return buffers, None
            if isinstance(part, Slice):
                self._slice = part
            else:
                buffers.append(part)
                size += len(part)

    def _over(self, transport: asyncio.Transport, go_on: Callable[[], None], error: BaseException | None) -> None:
        self.waits = False
        if error is not None and self.answer is not None:
            _log.error("reading for %s failed: %s", transport.get_extra_info("peername"), error)
            transport.abort()
        else:
            go_on()


def write_together(transport: asyncio.Transport, buffers: list[Buffer]) -> int:
    """Hand the buffers to the socket with one call; returns how many bytes they have."""
    size = sum(map(len, buffers))
    if len(buffers) == 1:
        transport.write(buffers[0])
    elif size <= _JOINED_BYTES:
        transport.write(b"".join(buffers))
    else:
        transport.writelines(buffers)
    return size
