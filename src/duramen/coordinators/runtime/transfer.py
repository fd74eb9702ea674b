"""Transfers another replica's checkpoint rows to a replica whose log starts after its state: batches, page by page.

Each page is a record batch with its CRC and a record per row, numbered from the first row of the checkpoint. The last
page has the position and the number of rows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Final

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import BatchCorrupt, DuramenError
from duramen.base.ids import Position
from duramen.base.ports import Clock
from duramen.codec.batch import BatchInput, check, encode, records
from duramen.coordinators.runtime.applying import Retry
from duramen.coordinators.runtime.checkpoints import CheckpointPage
from duramen.coordinators.runtime.installation import begin_installation, install
from duramen.coordinators.runtime.rows import RowStates
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.methods import Method
from duramen.storage.log.log import Log

__all__ = ["FETCH_ROWS", "FetchRows", "Installer", "RowsPage", "page_of"]


_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class FetchRows(msgspec.Struct, frozen=True, array_like=True):
    """Request the rows of a partition after the key `after`, of the named checkpoint or, at first, of any.

    The checkpoint must be at `start_offset` or later; `number` rows have been received.
    """

    stream: _StreamKey
    partition: _Count
    start_offset: _Count
    checkpoint: str = ""
    after: bytes | None = None
    number: _Count = 0


class RowsPage(msgspec.Struct, frozen=True, array_like=True):
    """A page. `rows` is the number of rows up to its end; after the last page `after` is None."""

    checkpoint: str
    epoch: int
    offset: _Count
    batch: bytes
    rows: _Count
    after: bytes | None


FETCH_ROWS: Final = Method("fetch-rows", FetchRows, RowsPage, idempotent=True)


def page_of(found: CheckpointPage, number: int) -> RowsPage:
    """The encoded page after `number` rows."""
    new = [BatchInput(0, key, value) for key, value in found.rows]
    batch = bytes(encode(new, base_offset=number)) if new else b""
    return RowsPage(found.checkpoint, *found.position, batch, number + len(new), found.after)


def _rows_of(page: RowsPage, number: int) -> list[tuple[bytes, bytes]]:
    """The rows of the page after `number` rows. Raises BatchCorrupt."""
    if not page.batch:
        if page.rows != number:
            raise BatchCorrupt(f"{number} rows came, and there are {page.rows}")
        return []
    head = check(page.batch)
    if head.base_offset != number or number + head.records != page.rows:
        raise BatchCorrupt(f"rows from {head.base_offset} to {page.rows} come behind {number}")
    return [(record.key or b"", record.value or b"") for record in records(page.batch, verify=False)]


class Installer:
    """Asks one node after the other until one has sent all rows, which then become the state.

    `sources` are asked in turn; `done` is called once the rows are installed, `failed` after each failure.
    """

    def __init__(
        self, place: PartitionId, log: Log, states: RowStates, caller: Caller, clock: Clock,
        deadlines: Deadlines, sources: Callable[[], Sequence[int]], done: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.log = log
        self.retry = Retry(clock, deadlines, self.begin)
        self._place = place
        self._states = states
        self._caller = caller
        self._sources = sources
        self._done = done
        self._tell_failed = failed
        self._tries = 0
        self._source = -1
        self._generation = 0
        self.alone = False
        """Whether there is no other node to request rows from."""
        self._over = False

    @property
    def failure(self) -> DuramenError | None:
        """Why no rows come: known after one try without other nodes, else once it persists."""
        return self.retry.last if self.alone else self.retry.error

    def end(self) -> None:
        """The rows are no longer needed."""
        self._over = True
        self.retry.end()

    def begin(self) -> None:
        """Ask the next node for all rows."""
        sources = self._sources()
        self.alone = len(sources) == 1
        self._source = sources[self._tries % len(sources)]
        self._tries += 1
        begin_installation(self._states, self.log, self._begun)

    def _begun(self, generation: int | DuramenError) -> None:
        if isinstance(generation, DuramenError):
            self._failed(generation)
            return
        self._generation = generation
        stream_id, partition = self._place
        self._fetch(FetchRows(stream_id.bytes, partition, self.log.start_offset))

    def _fetch(self, request: FetchRows) -> None:
        if not self._over:
            self._caller.call(self._source, FETCH_ROWS, request, partial(self._take, request))

    def _take(self, request: FetchRows, answer: RowsPage | DuramenError) -> None:
        if self._over:
            return
        try:
            if isinstance(answer, DuramenError):
                raise answer
            rows = _rows_of(answer, request.number)
        except DuramenError as error:
            self._failed(error)
            return
        position = Position(answer.epoch, answer.offset) if answer.after is None else None
        written = partial(self._written, request, answer)
        install(self._states, self.log, self._generation, request.number, rows, position, written)

    def _written(self, request: FetchRows, answer: RowsPage, error: DuramenError | None) -> None:
        if error is not None:
            self._failed(error)
        elif answer.after is not None:
            self._fetch(
                msgspec.structs.replace(request, checkpoint=answer.checkpoint, after=answer.after, number=answer.rows)
            )
        elif not self._over:
            self._over = True
            self._done()

    def _failed(self, error: DuramenError) -> None:
        if not self._over:
            self.retry.failed(error)
            self._tell_failed()
