"""Queue spaces and the inventory as tables: `option("queues", …)` and `option("inventory", …)`.

The driver opens an export at a node over HTTP, and each task reads pages of a range of one shard. An export has
the rows of one point in time, so repeated tasks read the same rows.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from duramen.base.errors import NotLeader, OptionInvalid, StateDamaged
from duramen.client.http import HttpNode, path_of
from duramen.codec.exports import read_runs_page, read_topics_page
from duramen.spark.batches.inventory_topics import Namespaces, topics_of
from duramen.spark.batches.queue_runs import entries_of
from duramen.spark.columns import arrow_schema
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.parquet_files import Filing
from duramen.spark.read.reader import columns_of
from duramen.spark.read.snapshot_node import request_with_retries, server_of

__all__ = ["ExportPartition", "export_reader_of", "reads_export", "refuse_export"]

_log = logging.getLogger("duramen.spark")

_TABLES: Final = ("queues", "inventory")
_REFUSED: Final = (
    "path", "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp",
    "endingOffsetsByTimestamp", "snapshot", "tier", "tableStorage", "maxRecordsPerPartition", "kafka.isolation.level",
)  # fmt: skip
_PAGE_BYTES: Final = 4 << 20
_SEQUENCES: Final = 2_000_000  # per Spark partition, at most
_HASH_BITS: Final = 32
_PAGE: Final = "application/vnd.msgpack"
_INVENTORY: Final = "/v1/inventory/exports"
_TOPICS: Final = "topics"


class ExportPartition(InputPartition):
    """The range of one task: a part of a shard of an export.

    `ids` is the prefix of its topics' ids, `directory` the path of the export with tenants and namespaces.
    """

    def __init__(
        self, path: str, shard: int, first: str, end: str, now_ms: int, ids: str = "", directory: str = ""
    ) -> None:  # fmt: skip
        super().__init__((path, shard, first, end))
        self.path = path
        self.shard = shard
        self.first = first
        self.end = end
        self.now_ms = now_ms
        self.ids = ids
        self.directory = directory


def reads_export(options: Options) -> bool:
    """Whether the read is of queues or the inventory."""
    return any(options.given(name) for name in _TABLES)


def refuse_export(options: Options) -> None:
    """Raise OptionInvalid if a streaming query is to read queues or the inventory."""
    if options.given("queues"):
        raise OptionInvalid(
            "queues is for batches: a streaming query reads the operations of a space, with subscribe and its name"
        )
    if options.given("inventory"):
        raise OptionInvalid("inventory is for batches")


def export_reader_of(options: Options) -> DataSourceReader:
    """The reader of queues or the inventory. Raises OptionInvalid, SettingInvalid."""
    return QueuesReader(options) if options.given("queues") else InventoryReader(options)


class _Node(NamedTuple):
    """A node's HTTP address, and the timeout of retries."""

    server: str
    timeout_s: float

    def open(self, path: str, *, fail: bool) -> Mapping[str, Any]:
        """Open an export of all shards, or, unless it is to `fail`, of those that can be exported."""
        wanted = path if fail else f"{path}?partial=true"
        try:
            found: Mapping[str, Any] = request_with_retries(*self, partial(HttpNode.post, path=wanted, document={}))
        except (NotLeader, StateDamaged) as error:
            more = "; with failOnDataLoss=false the query reads the other shards" if fail else ""
            raise type(error)(f"{error}{more}") from None
        for one in found.get("missing_shards", ()):
            _log.warning(
                "the rows of shard %d are missing; the query continues because of failOnDataLoss=false: %s",
                one["shard"], one["reason"],
            )  # fmt: skip
        return found

    def get(self, path: str) -> Any:
        return request_with_retries(*self, partial(HttpNode.get, path=path))

    def page(self, path: str, query: Mapping[str, object]) -> bytes:
        ask = partial(HttpNode.content, path=f"{path}?{urlencode(query)}", accept=_PAGE)
        return request_with_retries(*self, ask)


class _ExportReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        given = [name for name in _TABLES if options.given(name)]
        refused = [name for name in (*given[1:], *_REFUSED) if options.given(name)]
        if refused:
            raise OptionInvalid(f"{refused[0]} does not go with {given[0]}")
        self._node = _Node(server_of(options), (options.number("kafka.request.timeout.ms") or 0) / 1000)
        HttpNode(self._node.server)
        self._columns = columns_of(options)
        self._filing = Filing(options)
        self._fail = options.flag("failOnDataLoss")
        self._at_least = options.number("minPartitions") or 1
        for name in options.ignored:
            _log.warning("%s is for streaming queries: a batch ignores it", name)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range; Spark creates one without any if there is nothing to read."""
        found = self._rows(partition) if isinstance(partition, ExportPartition) else iter(())
        return self._filing.rows(found)

    def _rows(self, part: ExportPartition) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class QueuesReader(_ExportReader):
    """Reads the entries that all queues of a space have when the query is planned."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid, SettingInvalid."""
        super().__init__(options)
        self._space = options.text("queues").strip()
        if not self._space:
            raise OptionInvalid("queues names no queue space")

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        """A shard, or a range of hashes of one, for each task. Raises QueueSpaceNotFound, ServerUnreachable …"""
        path = path_of("spaces", self._space) + "/exports"
        found = self._node.open(path, fail=self._fail)
        ranges, parts = _hash_ranges(-(-self._at_least // len(found["shards"]))), list[InputPartition]()
        for shard in found["shards"]:
            pages = f"{path}/{quote(shard['export'], safe='')}/runs"
            parts += [ExportPartition(pages, shard["shard"], *one, found["taken_at_ms"]) for one in ranges]
        return parts

    def _rows(self, part: ExportPartition) -> Iterator[pa.RecordBatch]:
        after: bytes | None = b""
        with without_traceback():
            while after is not None:
                asked = {"shard": part.shard, "first": part.first, "end": part.end, "after": after.hex()}
                page = read_runs_page(self._node.page(part.path, {**asked, "max_bytes": _PAGE_BYTES}))
                after = page.after
                if page.runs:
                    yield entries_of(page, part.now_ms, self._columns)


def _hash_ranges(count: int) -> list[tuple[str, str]]:
    """All hashes in `count` ranges; the last one ends with the last hash."""
    edges = [f"{(number << _HASH_BITS) // count:08x}" for number in range(count)]
    return [*zip(edges, [*edges[1:], ""], strict=True)]


class InventoryReader(_ExportReader):
    """Reads the topics, namespaces or tenants that the inventory has when the query is planned."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid, SettingInvalid."""
        super().__init__(options)
        self._table = options.text("inventory").strip().lower()

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        """A range of sequences of a shard for each task. Raises ServerUnreachable …"""
        found = self._node.open(_INVENTORY, fail=self._fail)
        path, now_ms = _path(found["export"]), found["taken_at_ms"]
        if self._table != _TOPICS:
            return [ExportPartition(path, 0, "", "", now_ms, directory=path)] if found["shards"] else []
        parts = list[InputPartition]()
        for one in found["shards"]:
            least, own = -(-self._at_least // len(found["shards"])), _path(one["export"])
            for first, end in ((0, one["sequences"]), one.get("os_sequences", (0, 0))):
                count = max(least if first < end else 0, -(-(end - first) // _SEQUENCES))
                edges = [first + (end - first) * number // max(count, 1) for number in range(count)] + [end]
                for begin, behind in pairwise(edges):
                    parts.append(ExportPartition(own, one["shard"], str(begin), str(behind), now_ms, one["ids"], path))
        return parts

    def _rows(self, part: ExportPartition) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            if self._table == _TOPICS:
                yield from self._topics(part)
            else:
                yield self._directory(part)

    def _topics(self, part: ExportPartition) -> Iterator[pa.RecordBatch]:
        namespaces = _namespaces(self._node, part.directory)
        first: int | None = int(part.first)
        wanted = {
            "names": "true" if "name" in self._columns else "false",
            "policies": "true" if "policies" in self._columns else "false",
        }  # fmt: skip
        while first is not None:
            asked = {"shard": part.shard, "first": first, "end": part.end, "max_bytes": _PAGE_BYTES, **wanted}
            page = read_topics_page(self._node.page(f"{part.path}/topics", asked))
            first = None if page.after is None else page.after + 1
            if page.lasts:
                yield topics_of(page, part.ids, namespaces, self._columns)

    def _directory(self, part: ExportPartition) -> pa.RecordBatch:
        found = self._node.get(f"{part.directory}/directory")
        tenants = {one["id"]: one for one in found["tenants"]}
        rows = [
            {
                "id": str(one["id"]), "name": one["name"], "created_at": one["created_at_ms"] * 1000,
                "labels": [*one["labels"].items()], "policies": [*one["policies"].items()],
                "account": one["account"] if "account" in one
                else tenants[one["tenant"]]["account"], "tenant": tenants.get(one.get("tenant"), one)["name"],
            }
            for one in found[self._table]
        ]  # fmt: skip
        return pa.RecordBatch.from_pylist(rows, arrow_schema(self._columns))


def _path(export: str) -> str:
    return f"{_INVENTORY}/{quote(export, safe='')}"


@lru_cache(4)
def _namespaces(node: _Node, path: str) -> Namespaces:
    """The namespaces of an export, cached for all tasks of a process."""
    found = node.get(f"{path}/directory")
    tenants = {one["id"]: one for one in found["tenants"]}
    return Namespaces.of(
        [
            (
                one["id"],
                one["name"],
                tenants[one["tenant"]]["name"],
                tenants[one["tenant"]]["account"],
                one["policies"],
            )
            for one in found["namespaces"]
        ]
    )
