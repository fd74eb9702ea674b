"""Exports of queue spaces on a cluster: one at each node that leads shards, read through any node."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from duramen.base.errors import DuramenError, ExportExpired, NotCoordinator, NotLeader, OutcomeUnknown, StorageFailed
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.exports import encode_runs_page
from duramen.queues.exporting import runs_page
from duramen.rpc.methods import Method
from duramen.rpc.retry import UNASKED
from duramen.rpc.server import Done
from duramen.service.broker import Broker
from duramen.service.exports import open_export, read_export
from duramen.service.forwarded_requests import (
    OPEN_EXPORT,
    READ_EXPORT,
    ExportOpened,
    ExportPage,
    OpenExport,
    ReadExport,
)
from duramen.service.forwarding.client import Errand
from duramen.service.forwarding.router import Router

__all__ = ["ExportedShard", "RoutedExports", "RunsRange"]

_WITHIN_MS: Final = 10_000
_LONGEST_ID: Final = 9

_Outcome = ExportOpened | DuramenError | OSError


class Ask(Protocol):
    """Has an errand done; returns what cancels it."""

    def __call__(
        self, errand: Errand[ExportOpened], within_ms: int, done: Callable[[_Outcome], None], /
    ) -> Callable[[], None]: ...


class ExportedShard(NamedTuple):
    """The export that has a shard, and how far."""

    export: str
    position: Position


class RunsRange(NamedTuple):
    """What is read of a shard: queues by their hashes, as `runs_page` has it."""

    first: bytes
    end: bytes
    after: bytes
    max_bytes: int


class _Errand(NamedTuple):
    """The leader of the first of these shards is to open an export for all of them that it leads."""

    space: Stream
    shards: list[int]
    open: Callable[[Stream, Sequence[int], Done[ExportOpened]], None]

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

    def request(self, spent_ms: int) -> OpenExport:
        del spent_ms
        return OpenExport(self.space.id.bytes, self.shards)


class RoutedExports:
    """The exports of all nodes. The name of each begins with the id of the node that has it."""

    def __init__(self, ways: Router, ask: Ask) -> None:
        self._ways = ways
        self._ask = ask
        ways.caller.server.handle(OPEN_EXPORT, self._open)
        ways.caller.server.handle(READ_EXPORT, self._read)

    def open(self, space: Stream, done: Callable[[Sequence[ExportedShard] | DuramenError], None]) -> None:
        """`done` gets an export for each shard, with all that was acknowledged before: one leader after the other."""
        found: dict[int, ExportedShard] = {}

        def ask() -> None:
            missing = [shard for shard in range(space.shards) if shard not in found]
            if missing:
                self._ask(_Errand(space, missing, self._open_led), _WITHIN_MS, told)
            else:
                done([found[shard] for shard in range(space.shards)])

        def told(outcome: _Outcome) -> None:
            if isinstance(outcome, OSError):
                done(StorageFailed(f"an export cannot be made: {outcome}"))
            elif isinstance(outcome, DuramenError):
                done(outcome)
            else:
                found.update((shard, ExportedShard(outcome.export, at)) for shard, at in outcome.positions)
                ask()

        ask()

    def read(
        self, space: Stream, shard: int, export: str, wanted: RunsRange, done: Callable[[bytes | DuramenError], None]
    ) -> None:
        """`done` gets a page of a shard, whichever node has its export. Raises ExportExpired."""
        node, _, name = export.partition(".")
        if not (node.isascii() and node.isdecimal() and len(node) <= _LONGEST_ID):
            raise ExportExpired(f"there is no export {export[:40]}: no node has it")

        def told(outcome: ExportPage | DuramenError) -> None:
            if isinstance(outcome, (*UNASKED, OutcomeUnknown)):
                done(NotCoordinator(f"node {node}, which has the export, does not answer now: {outcome}"))
            else:
                done(outcome if isinstance(outcome, DuramenError) else outcome.content)

        request = ReadExport(space.id.bytes, shard, name, *wanted)
        self._ways.caller.call(int(node), READ_EXPORT, request, told)

    # -- at the node that has an export ----------------------------------------------------------------

    def _open_led(self, space: Stream, shards: Sequence[int], done: Done[ExportOpened]) -> None:
        broker = self._ways.broker
        led = [shard for shard in shards if shard < space.shards and space.partition(shard).leads]

        def opened(export: str | DuramenError) -> None:
            if isinstance(export, DuramenError):
                done(export)
                return
            positions = [(shard, broker.exports.position(export, space.partition(shard).log)) for shard in led]
            done(ExportOpened(f"{broker.node_id}.{export}", positions))

        open_export(broker, space, opened, led)

    def _open(self, request: OpenExport, done: Done[ExportOpened]) -> None:
        space, first = self._space(request.stream_id), request.shards[0]
        if first >= space.shards:
            raise NotLeader(f"shard {first} of {space.name} is not known here, or not yet")
        space.partition(first).check_leads()
        self._open_led(space, request.shards, done)

    def _read(self, request: ReadExport, done: Done[ExportPage]) -> None:
        space = self._space(request.stream_id)
        wanted = RunsRange(request.first, request.end, request.after, request.max_bytes)
        if request.partition >= space.shards:
            raise ExportExpired(f"there is no shard {request.partition} in {space.name}")
        read_export(self._broker, space, request.partition, request.export, partial(_page, wanted=wanted), done)

    @property
    def _broker(self) -> Broker:
        return self._ways.broker

    def _space(self, stream_id: bytes) -> Stream:
        found = self._broker.streams.find_id(UUID(bytes=stream_id))
        if found is None or found.deleted:
            raise NotLeader("the queue space is not known here, or not yet")
        return found


def _page(rows: StateRows, wanted: RunsRange) -> ExportPage:
    return ExportPage(encode_runs_page(runs_page(rows, *wanted)))
