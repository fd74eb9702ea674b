"""Pages of snapshots in formats other than one JSON document: NDJSON, Arrow, and record batches."""

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from duramen.base.errors import AnswerTypeUnavailable, BatchCorrupt
from duramen.base.native import is_installed
from duramen.codec.batch import batches, records
from duramen.codec.shown_batches import BATCHES_TYPE, NEXT_OFFSET_HEADER, encode_page
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.snapshots.forwarding import has, read
from duramen.doors.http.snapshots.reads import (
    ShownBatches,
    check_still,
    count_served,
    next_of,
    open_window,
    run_job,
    shown_batches,
)
from duramen.doors.http.snapshots.records import RecordsOfPage, record_page, records_of
from duramen.doors.http.snapshots.vectors import LocatedQuery, check_query

__all__ = ["MEDIA_TYPES", "PageFormat", "answer_in", "page_of"]

_COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")


class PageFormat(Enum):
    """A response format of a page, by its media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    ARROW = "application/vnd.apache.arrow.stream"
    BATCHES = BATCHES_TYPE

    @classmethod
    def of(cls, accept: str) -> "PageFormat":
        """The first supported media type of an Accept header; JSON without the header."""
        for entry in accept.split(","):
            for one in cls:
                if entry.partition(";")[0].strip().lower() == one.value:
                    return one
        return cls.JSON


MEDIA_TYPES: Final = tuple(one.value for one in PageFormat if one is not PageFormat.JSON)


async def answer_in(wanted: PageFormat, call: Call, located_query: LocatedQuery) -> Response:
    """A page in this format. Raises AnswerTypeUnavailable, and the errors of a page of JSON."""
    broker, stream, query = call.broker, call.topic, located_query.query
    if wanted is PageFormat.ARROW:
        await run_job(broker.store, _require_arrow)
    if wanted is PageFormat.NDJSON:
        page = await page_of(call, located_query)
        content, next_offset = msgspec.json.Encoder().encode_lines(page.records), page.next_offset
    else:
        found = await _batches(call, located_query)
        next_offset = found.next_offset
        write = _as_arrow if wanted is PageFormat.ARROW else _as_batches
        content = await run_job(broker.store, partial(write, found, stream.decoded_limit_bytes))
    following = next_of(query, next_offset)
    headers = {} if following is None else {NEXT_OFFSET_HEADER: str(following)}
    return Response(content, 200, headers, wanted.value)


async def page_of(call: Call, located_query: LocatedQuery) -> RecordsOfPage:
    """The records of a page, read here or from the partition's leader. Raises SnapshotTooOld …"""
    broker, stream, query = call.broker, call.topic, located_query.query
    if not has(broker, stream, query):
        return await records_of(broker, stream, await read(call, located_query), query)
    check_query(stream.partition(query.partition), located_query)
    window = await open_window(broker, stream, query)
    page = await record_page(broker, stream, window, query)
    check_still(window.view, query)
    count_served(window.view.partition, len(page.records), page.size)
    return page


async def _batches(call: Call, located_query: LocatedQuery) -> ShownBatches:
    broker, stream, query = call.broker, call.topic, located_query.query
    if not has(broker, stream, query):
        return await read(call, located_query)
    check_query(stream.partition(query.partition), located_query)
    window = await open_window(broker, stream, query)
    found = await shown_batches(broker.store, window, query.max_bytes)
    check_still(window.view, query)
    count_served(window.view.partition, int.from_bytes(found.bits, "little").bit_count(), len(found.batches))
    return found


def _as_batches(found: ShownBatches, _: int) -> bytes:
    return encode_page(found.first, found.next_offset, found.base, found.bits, [found.batches])


def _require_arrow() -> bool:
    """Import pyarrow in a job, since the first import takes long. Raises AnswerTypeUnavailable."""
    try:
        import pyarrow as pa
    except ImportError:
        raise AnswerTypeUnavailable(
            f"the node needs pyarrow for Arrow responses: pip install pyarrow, or request {PageFormat.NDJSON.value}"
        ) from None
    return pa is not None


def _as_arrow(found: ShownBatches, limit_bytes: int) -> bytes:
    """An Arrow IPC stream with one record batch per about 2 MiB."""
    import pyarrow as pa
    import pyarrow.compute as pc

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = (pa.binary(), pa.binary(), pa.int64(), pa.timestamp("us", "UTC"), pa.list_(pa.field("element", header)))
    schema = pa.schema([pa.field(name, type_) for name, type_ in zip(_COLUMNS, types, strict=True)])
    bits = pa.Array.from_buffers(pa.bool_(), 8 * len(found.bits), [None, pa.py_buffer(bytes(found.bits))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for rows in _decoded(found, schema, limit_bytes):
            shown = rows.filter(bits.take(pc.subtract(rows.column("offset"), found.base)))
            if shown.num_rows:
                stream.write_batch(pa.RecordBatch.from_arrays([shown.column(name) for name in _COLUMNS], schema=schema))
    return sink.getvalue().to_pybytes()


def _decoded(found: ShownBatches, schema: Any, limit_bytes: int) -> Iterator[Any]:
    """The records whose offsets have a bit, as Arrow; by the native package if it is installed."""
    import pyarrow as pa

    low, end = found.first, min(found.next_offset, found.base + 8 * len(found.bits))
    if not is_installed():
        yield pa.RecordBatch.from_pylist(list(_rows(found.batches, low, end, limit_bytes)), schema)
        return
    import duramen_native

    position = 0
    while position < len(found.batches):
        try:
            position, rows = duramen_native.decode(found.batches, position, low, end, list(_COLUMNS))
        except ValueError as error:
            raise BatchCorrupt(str(error)) from None
        if len(rows):
            yield pa.record_batch(rows)


def _rows(data: bytes, low: int, end: int, limit_bytes: int) -> Iterable[dict[str, Any]]:
    view = memoryview(data)
    for at, head in batches(view):
        for record in records(view[at : at + head.size], limit_bytes=limit_bytes):
            if low <= record.offset < end:
                headers = [{"key": name.decode(errors="replace"), "value": value} for name, value in record.headers]
                yield {
                    "key": record.key,
                    "value": record.value,
                    "offset": record.offset,
                    "timestamp": 1000 * record.timestamp,
                    "headers": headers or None,
                }
