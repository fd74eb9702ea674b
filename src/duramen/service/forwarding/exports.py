"""Exports of queue spaces and the inventory: one at each node that leads shards, read through any node."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol
from uuid import UUID

import msgspec

from duramen.base.errors import DuramenError, ExportExpired, NotCoordinator, NotLeader, OutcomeUnknown, StorageFailed
from duramen.base.ids import Position
from duramen.base.ports import Clock, StateRows
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.exports import encode_runs_page, encode_topics_page
from duramen.inventory.exporting import directory_export, next_sequences, topics_page
from duramen.queues.exporting import runs_page
from duramen.rpc.methods import Method
from duramen.rpc.retry import UNASKED
from duramen.rpc.server import Done
from duramen.service.broker import Broker
from duramen.service.exports import open_export, read_export
from duramen.service.forwarded_requests import (
    OPEN_EXPORT,
    READ_EXPORT,
    READ_INVENTORY_EXPORT,
    ExportOpened,
    ExportPage,
    OpenExport,
    ReadExport,
    ReadInventoryExport,
)
from duramen.service.forwarding.client import PartitionRequest
from duramen.service.forwarding.router import Router

__all__ = ["ExportedShard", "InventoryRange", "RoutedExports", "RunsRange"]

_WITHIN_MS: Final = 10_000
_LEAST_MS: Final = 500  # for each leader that is asked after that
_LONGEST_ID: Final = 9
_MOST_EXPORTS: Final = 64  # more than a node keeps

_Outcome = ExportOpened | DuramenError | OSError


OpenLed = Callable[[Stream, Sequence[int], Done[ExportOpened]], None]


class Ask(Protocol):
    """Sends a request; returns a function that cancels it."""

    def __call__(
        self, request: PartitionRequest[ExportOpened], within_ms: int, done: Callable[[_Outcome], None], /
    ) -> Callable[[], None]: ...


class ExportedShard(NamedTuple):
    """The export that has a shard, and how far."""

    export: str
    position: Position


OpenedDone = Callable[[Sequence[ExportedShard | DuramenError] | DuramenError], None]
"""Called with the export of each shard, or with its error."""


class RunsRange(NamedTuple):
    """What is read of a shard: queues by their hashes, as `runs_page` has it."""

    first: bytes
    end: bytes
    after: bytes
    max_bytes: int


class InventoryRange(NamedTuple):
    """What is read of a shard of the inventory: topics, as `topics_page` has it, or all of something."""

    what: Literal["topics", "sequences", "directory"]
    first: int = 0
    end: int = 0
    max_bytes: int = 1
    names: bool = True
    policies: bool = False


class _OpenRequest(NamedTuple):
    """The leader of the first of these shards is to open an export for all of them that it leads."""

    space: Stream
    shards: list[int]
    open: OpenLed

    @property
    def partition(self) -> Partition:
        return self.space.partition(self.shards[0])

    @property
    def method(self) -> Method[OpenExport, ExportOpened]:
        return OPEN_EXPORT

    def begin(self, done: Callable[[_Outcome], None]) -> Callable[[], None] | None:
        if not self.partition.leads:
            return None
        self.open(self.space, self.shards, done)
        return lambda: None

    def message(self, spent_ms: int) -> OpenExport:
        del spent_ms
        return OpenExport(self.space.id.bytes, self.shards)


class _Opening:
    """Exports of all shards of a stream that are being opened."""

    def __init__(
        self, space: Stream, done: OpenedDone, last: Collection[int], partial: bool, ask: Ask, open_led: OpenLed,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._space = space
        self._done = done
        self._last = last
        self._partial = partial
        self._ask = ask
        self._open_led = open_led
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + _WITHIN_MS
        self._found: dict[int, ExportedShard | DuramenError] = {}
        self._single = False  # whether one of several shards could not be exported, so that each is requested alone

    def go_on(self) -> None:
        """Request the missing ones."""
        shards = range(len(self._space.partitions))
        missing = [shard for shard in shards if shard not in self._found]
        if not missing:
            found = [self._found[shard] for shard in shards]
            errors = [one for one in found if isinstance(one, DuramenError)]
            self._done(found if len(errors) < len(found) else errors[0])
            return
        wanted = [shard for shard in missing if shard not in self._last] or missing
        request = _OpenRequest(self._space, wanted[:1] if self._single else wanted, self._open_led)
        left_ms = max(self._end_ms - self._clock.monotonic_ms(), _LEAST_MS)
        self._ask(
            request, left_ms if self._partial else _WITHIN_MS, lambda outcome: self._opened(request.shards, outcome)
        )  # fmt: skip

    def _opened(self, shards: Sequence[int], outcome: _Outcome) -> None:
        if isinstance(outcome, ExportOpened):
            self._found |= {shard: ExportedShard(outcome.export, at) for shard, at in outcome.positions}
            self.go_on()
            return
        error: DuramenError = outcome if isinstance(outcome, DuramenError) else StorageFailed(
            f"an export cannot be made: {outcome}"
        )  # fmt: skip
        if isinstance(outcome, NotLeader):
            error = NotLeader(
                f"shard {shards[0]} of {self._space.name} cannot be exported until a node with its replicas runs:"
                f" {outcome}"
            )
        if not self._partial:
            self._done(error)
            return
        # The request fails for all shards, but only the first one is known to have no leader.
        self._single = len(shards) > 1 and not isinstance(outcome, NotLeader)
        if not self._single:
            self._found[shards[0]] = error
        self.go_on()


class RoutedExports:
    """The exports of all nodes. The name of each begins with the id of the node that has it."""

    def __init__(self, router: Router, ask: Ask) -> None:
        self._router = router
        self._ask = ask
        self._shards: OrderedDict[str, set[tuple[UUID, int]]] = OrderedDict()  # of the exports of this node
        router.caller.server.handle(OPEN_EXPORT, self._open)
        router.caller.server.handle(READ_EXPORT, self._read)
        router.caller.server.handle(READ_INVENTORY_EXPORT, self._read_inventory)

    def open(
        self, space: Stream, done: OpenedDone, last: Collection[int] = (), *, partial: bool = False
    ) -> None:  # fmt: skip
        """`done` gets an export for each shard, with all that was acknowledged before: one leader after the other.

        The exports of the shards `last` are opened after the others. If it is `partial`, a shard that cannot be
        exported has its error instead, unless all have one.
        """
        _Opening(space, done, last, partial, self._ask, self._open_led, self._router.broker.clock).go_on()

    def read(
        self, space: Stream, shard: int, export: str, wanted: RunsRange | InventoryRange,
        done: Callable[[bytes | DuramenError], None],
    ) -> None:  # fmt: skip
        """`done` gets a page of a shard, whichever node has its export. Raises ExportExpired."""
        node, _, name = export.partition(".")
        if not (node.isascii() and node.isdecimal() and len(node) <= _LONGEST_ID):
            raise ExportExpired(f"there is no export {export[:40]}: no node has it")

        def told(outcome: ExportPage | DuramenError) -> None:
            if isinstance(outcome, (*UNASKED, OutcomeUnknown)):
                done(NotCoordinator(f"node {node}, which has the export, does not answer now: {outcome}"))
            else:
                done(outcome if isinstance(outcome, DuramenError) else outcome.content)

        id_, call = space.id.bytes, self._router.caller.call
        if isinstance(wanted, RunsRange):
            call(int(node), READ_EXPORT, ReadExport(id_, shard, name, *wanted), told)
        else:
            call(int(node), READ_INVENTORY_EXPORT, ReadInventoryExport(id_, shard, name, *wanted), told)

    # -- at the node that has an export ----------------------------------------------------------------

    def _open_led(self, space: Stream, shards: Sequence[int], done: Done[ExportOpened]) -> None:
        broker = self._router.broker
        count = len(space.partitions)
        led = [shard for shard in shards if shard < count and space.partition(shard).leads]

        def opened(export: str | DuramenError) -> None:
            if isinstance(export, DuramenError):
                done(export)
                return
            self._has(export, ((space.id, shard) for shard in led))
            positions = [(shard, broker.exports.position(export, space.partition(shard).log)) for shard in led]
            done(ExportOpened(f"{broker.node_id}.{export}", positions))

        open_export(broker, space, opened, led)

    def _open(self, request: OpenExport, done: Done[ExportOpened]) -> None:
        space, first = self._space(request.stream_id), request.shards[0]
        if first >= len(space.partitions):
            raise NotLeader(f"shard {first} of {space.name} is not known here, or not yet")
        space.partition(first).check_leads()
        self._open_led(space, request.shards, done)

    def _has(self, export: str, shards: Iterable[tuple[UUID, int]]) -> None:
        self._shards.setdefault(export, set()).update(shards)
        self._shards.move_to_end(export)
        if len(self._shards) > _MOST_EXPORTS:
            self._shards.popitem(last=False)

    def _read(self, request: ReadExport, done: Done[ExportPage]) -> None:
        wanted = RunsRange(request.first, request.end, request.after, request.max_bytes)
        self._read_shard(request, partial(_runs, wanted=wanted), done)

    def _read_inventory(self, request: ReadInventoryExport, done: Done[ExportPage]) -> None:
        self._read_shard(request, partial(_inventory, wanted=request), done)

    def _read_shard(
        self, request: ReadExport | ReadInventoryExport, job: Callable[[StateRows], bytes], done: Done[ExportPage]
    ) -> None:
        """Read a shard that this node led when it opened the export: other rows may be old. Raises ExportExpired."""
        space, shard, export = self._space(request.stream_id), request.partition, request.export
        if (space.id, shard) not in self._shards.get(export, ()):
            raise ExportExpired(f"the export {export[:40]} does not have shard {shard} of {space.name}, or has expired")

        def read(found: bytes | DuramenError) -> None:
            done(found if isinstance(found, DuramenError) else ExportPage(found))

        read_export(self._broker, space, shard, export, job, read)

    @property
    def _broker(self) -> Broker:
        return self._router.broker

    def _space(self, stream_id: bytes) -> Stream:
        found = self._broker.streams.find_id(UUID(bytes=stream_id))
        if found is None or found.deleted:
            raise NotLeader("the queue space is not known here, or not yet")
        return found


def _runs(rows: StateRows, wanted: RunsRange) -> bytes:
    return encode_runs_page(runs_page(rows, *wanted))


def _inventory(rows: StateRows, wanted: ReadInventoryExport) -> bytes:
    match wanted.what:
        case "topics":
            names, policies = wanted.names, wanted.policies
            page = topics_page(rows, wanted.first, wanted.end, wanted.max_bytes, names=names, policies=policies)
            return encode_topics_page(page)
        case "sequences":
            return msgspec.msgpack.encode(next_sequences(rows))
        case "directory":
            return msgspec.msgpack.encode(directory_export(rows))
