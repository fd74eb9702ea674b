"""Records for people with curl: stored and read as JSON."""

from duramen.base import errors
from duramen.doors.http.producing import largest_body_bytes, produce
from duramen.doors.http.routes import Call, Route
from duramen.doors.http.types import RecordPage, RecordPlaces, RecordsQuery, RecordWishes
from duramen.doors.http.waiting import unless_gone

__all__ = ["ROUTES"]


def _limit(call: Call) -> int:
    return largest_body_bytes(call.broker.streams.get(call.path["name"]))


async def _produce(call: Call, body: RecordWishes) -> RecordPlaces:
    return await produce(call.broker, call.path["name"], body.records)


async def _read(call: Call, query: RecordsQuery) -> RecordPage:
    return await unless_gone(call.request, call.node.reading.read(call.broker, call.path["name"], query))


ROUTES = (
    Route(
        "POST", "/v1/streams/{name}/records", _produce,
        "Store records; answered with their places once they are acknowledged as with acks=all",
        (
            errors.StreamNotFound, errors.BatchInvalid, errors.BatchTooLarge, errors.TimestampInvalid,
            errors.NodeStopping, errors.StorageFull, errors.StorageFailed,
        ),
        body_limit_bytes=_limit,
    ),
    Route(
        "GET", "/v1/streams/{name}/records", _read,
        "Read records of a partition, at once or as soon as there are some",
        (
            errors.StreamNotFound, errors.OffsetOutOfRange, errors.LogDamaged, errors.BatchCorrupt,
            errors.StorageFailed,
        ),
    ),
)  # fmt: skip
