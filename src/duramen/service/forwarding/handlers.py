"""Serves forwarded requests of other nodes from the partitions led here, in bounded memory, never forwarding again."""

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from duramen.base.errors import BatchTooLarge, DuramenError, NodeBusy, NotLeader, RequestInvalid, StorageFailed
from duramen.base.ports import Buffer
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.cluster.channels import LARGEST_BODY_BYTES, PeerChannel
from duramen.rpc.server import Done, Handler
from duramen.service.appending import append
from duramen.service.forwarded_requests import (
    APPEND,
    CHANGE_GROUP,
    CHANGE_QUEUES,
    DELETE_ALL_RECORDS,
    DELETE_RECORDS,
    READ,
    READ_QUEUES,
    SHOW_GROUP,
    SNAPSHOT,
    AppendRequest,
    AppendResponse,
    AppendResult,
    AskQueues,
    AskSnapshot,
    Bytes,
    Delete,
    DeleteRecordsResponse,
    Manage,
    Managed,
    Read,
    position_of,
)
from duramen.service.forwarding import local as here
from duramen.service.forwarding.local import Fetching, LocalSlice
from duramen.service.forwarding.queues import answer_queues
from duramen.service.forwarding.router import Router
from duramen.service.queues import LocalShards
from duramen.storage.scan import read_slice

__all__ = ["ForwardedRequestHandlers"]

_MOST_WAITING: Final = 50  # reads of all other nodes; beyond that, they are answered at once
_LARGEST_SLICE_BYTES: Final = LARGEST_BODY_BYTES[PeerChannel.DATA] - 1024


class ForwardedRequestHandlers:
    """Answers the requests of other nodes."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._server = router.caller.server
        self._waiting: set[Done[Bytes]] = set()
        self._server.handle(APPEND, self._append)
        self._server.handle(READ, self._read)
        self._server.handle(DELETE_RECORDS, self._delete)
        self._server.handle(DELETE_ALL_RECORDS, self._delete)
        self._queues = LocalShards(router.broker)
        self._server.handle(READ_QUEUES, self._ask_queues)
        self._server.handle(CHANGE_QUEUES, self._ask_queues)

    def serve_groups(self, manage: Handler[Manage, Managed]) -> None:
        """From here on `manage` answers requests about groups."""
        self._server.handle(SHOW_GROUP, manage)
        self._server.handle(CHANGE_GROUP, manage)

    def serve_snapshots(self, answer: Handler[AskSnapshot, Managed]) -> None:
        """From here on `answer` answers requests about snapshots."""
        self._server.handle(SNAPSHOT, answer)

    def handle_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks."""
        size = len(body)
        room = self._router.room
        if not room.take(size):
            answer(self._server.refusal(body, _busy(room.limit_bytes)))
            return

        def told(response: bytes) -> None:
            room.give(size)
            answer(response)

        self._server.serve(body, told)

    def _stream(self, stream_id: bytes) -> Stream:
        stream = self._router.broker.streams.find_id(UUID(bytes=stream_id))
        if stream is None or stream.deleted:
            raise NotLeader("the stream is not known here, or not yet")
        return stream

    def _led(self, stream_id: bytes, index: int) -> Partition:
        stream = self._stream(stream_id)
        if index >= len(stream.partitions):
            raise NotLeader(f"partition {index} of {stream.name} is not known here, or not yet")
        partition = stream.partitions[index]
        partition.check_leads()
        return partition

    def _delete(self, request: Delete, done: Done[DeleteRecordsResponse]) -> None:
        here.delete(self._led(request.stream_id, request.partition), request.before, done)

    def _ask_queues(self, request: AskQueues, done: Done[Managed]) -> None:
        self._led(request.stream_id, request.partition)
        answer_queues(self._queues, self._stream(request.stream_id), request, done)

    # -- appends ------------------------------------------------------------------------------------

    def _append(self, request: AppendRequest, done: Done[AppendResponse]) -> None:
        stream = self._stream(request.stream_id)
        if stream.internal:
            raise RequestInvalid(f"{stream.name} is the broker's own")
        results: dict[int, AppendResult] = {}

        def settled(at: int, result: AppendResult) -> None:
            results[at] = result
            if len(results) == len(request.batches):
                done(AppendResponse.of([results[one] for one in range(len(results))]))

        for at, (index, batch) in enumerate(request.batches):
            try:
                partition = self._led(request.stream_id, index)
            except DuramenError as error:
                settled(at, AppendResult(-1, error))
            else:
                append(partition, batch, partial(settled, at))

    # -- reads --------------------------------------------------------------------------------------

    def _read(self, request: Read, done: Done[Bytes]) -> None:
        partition = self._led(request.stream_id, request.partition)
        wait_ms = request.max_wait_ms if len(self._waiting) < _MOST_WAITING else 0

        def found(outcome: LocalSlice | DuramenError | OSError) -> None:
            self._waiting.discard(done)
            self._found(partition, outcome, done)

        self._waiting.add(done)
        Fetching(
            self._router.broker.fetches, partition, position_of(request.where), request.max_bytes, wait_ms, found
        )  # fmt: skip

    def _found(self, partition: Partition, found: LocalSlice | DuramenError | OSError, done: Done[Bytes]) -> None:
        if not isinstance(found, LocalSlice):
            done(_as_ours(found))
        elif found.content is None:
            done(Bytes(found.offset, found.high_watermark, b""))
        else:
            self._read_slice(partition, found, done)

    def _read_slice(self, partition: Partition, found: LocalSlice, done: Done[Bytes]) -> None:
        size = 0 if found.content is None else len(found.content)
        room = self._router.room
        if size > _LARGEST_SLICE_BYTES:
            node_id = self._router.broker.node_id
            done(BatchTooLarge(f"a batch of {size} bytes does not go between nodes: read it of node {node_id}"))
            return
        if found.content is None or not room.take(size, alone=True):
            done(_busy(room.limit_bytes))
            return

        def read(data: bytes | DuramenError | OSError) -> None:
            room.give(size)
            done(Bytes(found.offset, found.high_watermark, data) if isinstance(data, bytes) else _as_ours(data))

        partition.served(found.content, found.offset)
        read_slice(self._router.broker.store, found.content, read)


def _as_ours(error: DuramenError | OSError) -> DuramenError:
    return error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}")


def _busy(limit_bytes: int) -> NodeBusy:
    return NodeBusy(f"what clients have sent and wait for takes {limit_bytes} bytes already: ask again")
