"""The shards of the inventory on all nodes: routes commands and reads to their leaders, and retries if that is safe."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from duramen.base.countdown import ErrorCountdown
from duramen.base.deadlines import Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, NotLeader, RequestInvalid
from duramen.base.ports import Clock, StateRows
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.inventory.cluster.reading import RoundOfReads
from duramen.coordinators.inventory.cluster.requests import (
    CHANGE_INVENTORY,
    READ_INVENTORY,
    Changed,
    ChangeInventory,
    ReadInventory,
    RowsRead,
    changed,
    encode_command,
    may_be_repeated,
    read_response,
)
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD, INVENTORY_STREAM, ShardCommand
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.inventory.directory import Directory
from duramen.inventory.directory_history import DirectoryCopy
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.methods import Method
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway, unasked_as

__all__ = ["RoutedShards"]

T = TypeVar("T")

_PACE: Final = RetryPace(10_000, 20, 500)
_MOST_ROUNDS: Final = 200
_PAGE_BYTES: Final = 512 << 10
_NOTHING: Final = (-1, 0)


class RoutedShards(InventoryShards):
    """The shards of all nodes. A query (`read`) sees the rows that were fetched for it."""

    alone = False

    def __init__(
        self, streams: BrokerStreams, runtime: Runtime, clock: Clock, deadlines: Deadlines, caller: Caller,
        leader: Callable[[PartitionId], KnownLeader],
    ) -> None:  # fmt: skip
        super().__init__(streams, runtime, clock, deadlines)
        self.caller = caller
        self._leader = leader
        self._copy = DirectoryCopy()
        self._seen: dict[int, tuple[int, int]] = {}
        self._round: RoundOfReads | None = None

    def when_made(self, act: Callable[[], None]) -> None:
        """Call `act` whenever the stream of the inventory is created."""

        def changed(stream: Stream) -> None:
            if stream.name == INVENTORY_STREAM and not stream.deleted:
                act()

        self._streams.listeners.append(changed)

    # -- leaders ------------------------------------------------------------------------------------

    def leader(self, shard: int) -> KnownLeader:
        """The known leader of a shard."""
        if not self.ready:
            return KnownLeader(None, -1)
        return self._leader(PartitionId(self._streams.get(INVENTORY_STREAM).id, shard))

    @property
    def directory_epoch(self) -> int | None:
        """The epoch in which this node leads the loaded directory; None: it does not lead it."""
        if not self.ready or not self._is_led(DIRECTORY_SHARD):
            return None
        return self._runtime.leader_epoch(INVENTORY_STREAM, DIRECTORY_SHARD)

    def ask_leader(
        self, shard: int, method: Method[Any, T], request: Any, here: Callable[[Done], None], done: Done,
        *, idempotent: bool,
    ) -> None:  # fmt: skip
        """Send a request to the leader of a shard; `here` serves it on this node.

        `done` gets the response, or the error: NotCoordinator if there is no leader for too long.
        """

        def attempt(known: KnownLeader, left_ms: int, answered: Done) -> Underway:
            if known.node_id is None:
                raise NotLeader("this part of the inventory has no leader at present: retry")
            if known.node_id == self.caller.node_id:
                self.check_led(shard)
                here(answered)
                return Underway(None)
            self.caller.call(known.node_id, method, request, answered, left_ms)
            return Underway(known.node_id)

        Retrying(
            attempt, partial(self.leader, shard), _PACE, self._clock, self._deadlines,
            lambda outcome: done(unasked_as(NotCoordinator, outcome)), idempotent=idempotent,
        ).begin()  # fmt: skip

    def check_led(self, shard: int) -> None:
        """Raise NotLeader unless this node leads a shard and has loaded it: then the request had no effect."""
        try:
            self._runtime.check(INVENTORY_STREAM, shard)
        except (NotCoordinator, CoordinatorLoading) as error:
            raise NotLeader(f"part {shard} of the inventory: {error}") from None

    # -- commands -----------------------------------------------------------------------------------

    def submit(self, shard: int, command: ShardCommand, done: Done) -> None:
        """See `InventoryShards`; a command without a response may have taken effect."""

        def here(answered: Done) -> None:
            self._runtime.submit(INVENTORY_STREAM, shard, command, partial(self._answer, shard, answered))

        def told(outcome: Any) -> None:
            if isinstance(outcome, Changed):
                self.saw(shard, outcome.epoch, outcome.offset)
                try:
                    outcome = read_response(command, outcome)
                except DuramenError as error:
                    outcome = error
            done(outcome.response if isinstance(outcome, ShardAnswer) else outcome)

        request = ChangeInventory(shard, encode_command(command))
        self.ask_leader(shard, CHANGE_INVENTORY, request, here, told, idempotent=may_be_repeated(command))

    def _answer(self, shard: int, answered: Done, answer: ShardAnswer | DuramenError) -> None:
        if isinstance(answer, ShardAnswer):
            self.saw(shard, self._runtime.leader_epoch(INVENTORY_STREAM, shard) or 0, answer.end_offset)
        answered(answer)

    def serve_command(self, shard: int, command: ShardCommand, done: Done) -> None:
        """Execute a command of another node. Raises NotLeader."""
        self.check_led(shard)
        epoch = self._runtime.leader_epoch(INVENTORY_STREAM, shard) or 0

        def answered(answer: ShardAnswer | DuramenError) -> None:
            if isinstance(answer, ShardAnswer):
                done(changed(epoch, answer.end_offset, answer.response))
            else:
                done(answer)

        self._runtime.submit(INVENTORY_STREAM, shard, command, answered)

    # -- reads --------------------------------------------------------------------------------------

    def read(self, query: Callable[[], T], done: Callable[[T | DuramenError], None]) -> None:
        """See `InventoryShards`: `query` runs until all rows that it reads are fetched; it must have no effects."""
        _Reading(self, query, done).go_on()

    def evaluate(self, query: Callable[[], T], fetched: RoundOfReads) -> tuple[T | DuramenError, bool]:
        """Run a query on the fetched rows and on the shards that this node leads: see `Runtime.together`."""
        before, self._round = self._round, fetched
        try:
            return self._runtime.together(INVENTORY_STREAM, query)
        finally:
            self._round = before

    def when_quiet(self, act: Callable[[], None]) -> None:
        """Call `act` once no write to the rows of shards on this node is in flight; later ones wait for it."""
        self._runtime.when_quiet(INVENTORY_STREAM, act)

    def as_of(self) -> str | None:
        """See `InventoryShards`."""
        return self.position()

    def directory(self) -> Directory:
        """See `InventoryShards`; for use in a query. Raises CoordinatorLoading outside of one."""
        if not self.ready or self._is_led(DIRECTORY_SHARD):
            return super().directory()
        if self._round is None:
            raise CoordinatorLoading("tenants have to be asked for first")
        self._round.wants_directory = True
        return self._copy.directory or Directory()

    def known_directory(self) -> Directory | None:
        """See `InventoryShards`: the last response, if another node leads the directory."""
        return super().directory() if self._is_led(DIRECTORY_SHARD) else self._copy.directory

    def each_rows(self) -> list[StateRows]:
        """See `InventoryShards`; for use in a query. Raises CoordinatorLoading outside of one."""
        return [self._rows_of(shard) for shard in range(self.count)]

    def _rows_of(self, shard: int) -> StateRows:
        if self._is_led(shard):
            return self._runtime.rows(INVENTORY_STREAM, shard)
        if self._round is None:
            raise CoordinatorLoading("rows of other nodes have to be asked for first")
        return self._round.rows(shard)

    def _is_led(self, shard: int) -> bool:
        """Whether this node leads a shard and has applied all of it that this node has seen."""
        try:
            self.check_led(shard)
        except DuramenError:
            return False
        return self._here(shard) >= self._seen.get(shard, _NOTHING)

    def _here(self, shard: int) -> tuple[int, int]:
        epoch = self._runtime.leader_epoch(INVENTORY_STREAM, shard)
        return -1 if epoch is None else epoch, self._runtime.applied_offset(INVENTORY_STREAM, shard)

    def fetch(self, fetched: RoundOfReads, done: Callable[[DuramenError | None], None]) -> None:
        """Fetch the rows that a query lacks."""
        asked = self._copy.state
        requests = fetched.requests(DIRECTORY_SHARD, asked)
        parts = ErrorCountdown(done, len(requests))

        def answered(request: ReadInventory, answer: RowsRead | DuramenError) -> None:
            try:
                if isinstance(answer, DuramenError):
                    raise answer
                self.saw(request.shard, answer.epoch, answer.offset)
                fetched.take(request, answer)
                if answer.directory is not None:
                    fetched.has_directory = self._copy.take(asked, answer.directory)
            except DuramenError as error:
                parts.count_down(error)
            else:
                parts.count_down()

        for lacking in requests:
            epoch, at_least = self._seen.get(lacking.shard, _NOTHING)
            request = msgspec.structs.replace(lacking, epoch=epoch, at_least=at_least)
            here = partial(self.serve_read, request)
            self.ask_leader(
                request.shard, READ_INVENTORY, request, here, partial(answered, request), idempotent=True
            )  # fmt: skip

    def serve_read(self, request: ReadInventory, done: Done) -> None:
        """Read rows for another node. Raises NotLeader."""
        shard = request.shard
        self.check_led(shard)
        epoch = self._runtime.leader_epoch(INVENTORY_STREAM, shard) or 0
        if epoch < request.epoch:
            raise NotLeader(
                f"a newer leader of part {shard} of the inventory is known elsewhere, or the position is of another"
                " cluster"
            )
        at_least = request.at_least if epoch == request.epoch else 0  # a newer leader has every acknowledged record
        end_offset = self.log(shard).end_offset
        if at_least > end_offset:
            ends = f"the log of shard {shard} ends at {end_offset}"
            done(RequestInvalid(f"{ends}, and the position has {at_least}: take the `position` of a response"))
            return

        def query(state: Any, rows: StateRows) -> RowsRead:
            directory = None
            if request.directory is not None:
                directory = state.history.page(epoch, state.directory, request.directory)
            scans = [_page(rows, *scan) for scan in request.scans]
            applied = self._runtime.applied_offset(INVENTORY_STREAM, shard)
            return RowsRead(epoch, applied, list(rows.get_many(request.keys)), scans, directory)

        self._runtime.read(INVENTORY_STREAM, shard, query, done, at_least=at_least)

    def when_applied(self, shard: int, at_least: int, done: Done) -> None:
        """`done` gets None once a shard that this node leads has applied the log below an offset, or an error."""
        self._runtime.read(INVENTORY_STREAM, shard, lambda *_: None, done, at_least=at_least)

    # -- positions ----------------------------------------------------------------------------------

    def saw(self, shard: int, epoch: int, offset: int) -> None:
        """From now on this node reads no state of the shard older than this position."""
        self._seen[shard] = max(self._seen.get(shard, _NOTHING), (epoch, offset))

    def positions(self) -> Sequence[tuple[int, int]]:
        """The position of each shard that this node has read; within a query, the position of its reads."""
        return [self._position(shard) for shard in range(self.count)]

    def learn(self) -> None:
        """Ask other leaders for the positions of their shards, so that known positions stay recent."""
        for shard in range(self.count):
            if not self._is_led(shard):
                epoch, at_least = self._seen.get(shard, _NOTHING)
                request = ReadInventory(shard, epoch, at_least, [], [])
                here = partial(self.serve_read, request)
                self.ask_leader(shard, READ_INVENTORY, request, here, partial(self._learned, shard), idempotent=True)

    def _learned(self, shard: int, answer: RowsRead | DuramenError) -> None:
        if isinstance(answer, RowsRead):
            self.saw(shard, answer.epoch, answer.offset)

    def _position(self, shard: int) -> tuple[int, int]:
        if self._is_led(shard):
            self.saw(shard, *self._here(shard))
        elif self._round is not None and shard in self._round.places:
            return self._round.places[shard]
        return self._seen.get(shard, _NOTHING)

    def place(self, shard: int) -> tuple[int, int]:
        """See `InventoryShards`."""
        return self._position(shard)

    def position(self) -> str:
        """See `InventoryShards`."""
        return ",".join(f"{epoch}.{offset}" for epoch, offset in self.positions())

    def see(self, places: Sequence[tuple[int, int]], done: Done) -> None:
        """See `InventoryShards`: a client says the positions, so the leaders have to confirm those that are new."""
        if places and not self.ready:
            done(CoordinatorLoading("the inventory is not known on this node yet"))
            return
        count = self.count
        unknown = [(at, place) for at, place in enumerate(places[:count]) if place > self._position(at)]
        parts = ErrorCountdown(done, len(unknown) + 1)

        def confirmed(shard: int, answer: RowsRead | DuramenError) -> None:
            self._learned(shard, answer)
            parts.answer(answer)

        for shard, (epoch, offset) in unknown:
            request = ReadInventory(shard, epoch, offset, [], [])
            here = partial(self.serve_read, request)
            self.ask_leader(shard, READ_INVENTORY, request, here, partial(confirmed, shard), idempotent=True)
        parts.count_down()


class _Reading:
    """One query, repeated until it lacks no rows."""

    def __init__(self, shards: RoutedShards, query: Callable[[], Any], done: Done) -> None:
        self._shards = shards
        self._query = query
        self._done = done
        self._fetched = RoundOfReads()
        self._rounds = 0

    def go_on(self) -> None:
        """Run the query, and fetch the rows that it lacks."""
        found, as_one = self._shards.evaluate(self._query, self._fetched)
        if self._fetched.is_whole and as_one:
            self._done(found)
            return
        if self._fetched.is_whole:
            self._shards.when_quiet(self.go_on)
            return
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            self._done(CoordinatorLoading("the inventory changes too fast to be read: retry"))
            return
        self._shards.fetch(self._fetched, self._got)

    def _got(self, error: DuramenError | None) -> None:
        if error is None:
            self.go_on()
        else:
            self._done(error)


def _page(rows: StateRows, first: bytes, end: bytes, most: int) -> tuple[list[tuple[bytes, bytes]], bool]:
    found, size = list[tuple[bytes, bytes]](), 0
    for row in rows.scan(first, end):
        if len(found) == most or size > _PAGE_BYTES:
            return found, True
        found.append(row)
        size += len(row[0]) + len(row[1])
    return found, False
