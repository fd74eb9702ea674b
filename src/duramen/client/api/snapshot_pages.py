"""Pages of snapshots for both clients: batches, and bits for the visible records."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple
from urllib.parse import urlencode

from duramen.base.errors import BatchCorrupt, ServerUnreachable
from duramen.client.api.http import Program, Question
from duramen.client.api.records import Batch, Record
from duramen.client.api.values import value_of
from duramen.client.cluster import TopicPartition
from duramen.client.http import path_of
from duramen.codec.shown_batches import BATCHES_TYPE, ShownPage, decode_page, shown_fields

__all__ = ["Part", "SnapshotPage", "read_page"]

_PAGE_BYTES: Final = 4 << 20


class Part(NamedTuple):
    """A read of one partition: the snapshot, or with `since` the changes."""

    partition: int
    at: int
    since: int | None


class SnapshotPage(Batch):
    """Records of a snapshot from one response, decoded on first use; there may be none."""

    def __init__(self, at: TopicPartition, page: ShownPage) -> None:
        super().__init__(at, (), page.first, page.next_offset, page.next_offset)
        self.is_empty = not len(page.batches)
        """Whether there are none."""
        self._page: ShownPage | None = page
        self._found: Sequence[Record] = ()

    @property
    def records(self) -> Sequence[Record]:
        """The records. Raises BatchCorrupt if they were damaged in transit."""
        if self._page is not None:
            found = shown_fields(self._page)
            headers: Iterable[tuple[tuple[str, bytes | None], ...]] = repeat(())
            if any(found.headers):
                headers = [
                    tuple((name.decode(errors="replace"), value) for name, value in pairs) for pairs in found.headers
                ]
            fields = found.offsets, found.timestamps_ms, found.keys, found.values, headers
            self._found = list(map(Record, repeat(self.topic), repeat(self.partition), *fields))
            self._page = None
        return self._found


def read_page(stream: str, part: Part, offset: int, lease: str | None) -> Program[SnapshotPage]:
    """The page that starts at the offset. Raises ServerUnreachable if the response is not from a node."""
    asked: dict[str, int | str] = {"partition": part.partition, "offset": offset, "max_bytes": _PAGE_BYTES}
    if lease is None:
        asked["at"] = part.at
    else:
        asked["lease"] = lease
    if part.since is not None:
        asked["since"] = part.since
    path = path_of("streams", stream) + f"/snapshot/records?{urlencode(asked)}"
    content = value_of((yield Question("GET", path, accept=BATCHES_TYPE)), bytes)
    try:
        page = decode_page(content)
    except BatchCorrupt as error:
        raise ServerUnreachable(f"what answers is no node of Duramen: {error}") from None
    return SnapshotPage(TopicPartition(stream, part.partition), page)
