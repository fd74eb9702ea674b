"""Queue requests over HTTP and their results, for both clients. Pure."""

import itertools
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from duramen.base.errors import BatchCorrupt, DuramenError, RequestInvalid, ServerUnreachable
from duramen.client.api.arguments import INT64_MAX, refused, seconds, several, text, whole
from duramen.client.api.http import Program, Question
from duramen.client.api.queues.many_queues import LONGEST_WAIT_MS, rotated, shares, split_queues, turns
from duramen.client.api.queues.values import (
    Edit,
    LeasedEntry,
    MissingShard,
    NewEntry,
    NewValue,
    QueueEntry,
    QueueNames,
    QueuePage,
    QueueStats,
    SpaceUsage,
)
from duramen.client.api.records import Encodable, NewRecord, Record, Writable, encodable
from duramen.client.api.values import value_of
from duramen.client.http import RequestBody, path_of, problem_of
from duramen.codec.batch import BatchInput, encode
from duramen.codec.jsonbytes import bytes_of, json_of
from duramen.codec.queue_entries import (
    KEY_HEADER,
    LONGEST_DELAY_MS,
    LONGEST_LEASE_MS,
    NEXT_HEADER,
    encode_entries,
    entry_fields,
)
from duramen.codec.shown_batches import BATCHES_TYPE

__all__ = [
    "delayed_by",
    "delete",
    "each",
    "edit",
    "empty",
    "enqueue",
    "enqueue_inputs",
    "has_times",
    "inputs_of",
    "lease",
    "leased_for",
    "list_queues",
    "names_page",
    "pairs_of",
    "replace",
    "request",
    "retrieve",
    "retrieve_several",
    "settle",
    "stats",
    "usage",
]

_MOST_ENTRIES: Final = 10_000
_MOST_NAMES: Final = 1000
_FIRST: Final = "0.0"
_LONGEST_WAIT_MS: Final = int(threading.TIMEOUT_MAX) * 1000


def _path(space: str, what: str = "") -> str:
    if not text("space", space):
        raise refused("space", space, "the name of a queue space")
    return path_of("spaces", space) + what


def _entry_body(entry: Encodable) -> dict[str, object]:
    body: dict[str, object] = {"value": json_of(entry.value)}
    if entry.key is not None:
        body["key"] = json_of(entry.key)
    if entry.headers:
        body["headers"] = [(json_of(name), json_of(value)) for name, value in entry.headers]
    if entry.timestamp_ms is not None:
        body["timestamp"] = entry.timestamp_ms
    return body


def _entry_bodies(values: Sequence[NewValue]) -> list[dict[str, object]]:
    bodies = list(map(_entry_body, encodable(list(map(_record, values)), None)))
    for value, entry in zip(values, bodies, strict=True):
        if isinstance(value, NewEntry):
            entry.update(_times(value.delay_s, value.ttl_s))
    return bodies


def _record(value: NewValue) -> Writable:
    if isinstance(value, NewEntry):
        return NewRecord(value.value, value.key, value.headers, timestamp_ms=value.timestamp_ms)
    return value


def _times(delay_s: float | None, ttl_s: float | None) -> dict[str, object]:
    """The delay and the time to live in a request, if given."""
    given = ("delay", delay_s), ("ttl", ttl_s)
    return {
        f"{name}_ms": _milliseconds(f"{name}_s", time_s, most=LONGEST_DELAY_MS)
        for name, time_s in given
        if time_s is not None
    }


def has_times(pairs: Iterable[object]) -> bool:
    """Whether an entry has a delay or a time to live of its own, which record batches do not have."""
    return any(isinstance(pair, tuple) and NewEntry in map(type, pair) for pair in pairs)


def _check_tuple(what: str, one: object, most: int, expected: str) -> None:
    if not isinstance(one, tuple) or not 2 <= len(one) <= most:
        raise refused(what, one, expected)


def pairs_of(entries: Iterable[tuple[str, NewValue]]) -> list[tuple[str, NewValue]]:
    """The entries of many queues. Raises RequestInvalid."""
    return list(several("entries", "(queue, value)", entries))


def enqueue(
    space: str, entries: Iterable[tuple[str, NewValue]], delay_s: float, ttl_s: float, request_id: str
) -> Program[list[str]]:
    """Add entries to queues; returns their positions."""
    pairs = pairs_of(entries)
    if delay_s or ttl_s or request_id:
        return (yield from _put_said(space, pairs, delay_s, ttl_s, request_id))
    if not pairs:
        return []
    batch = encode_entries(pairs, _now_ms())
    if batch is None and has_times(pairs):
        return (yield from _put_said(space, pairs, delay_s, ttl_s, request_id))
    return (yield from _put(space, bytes(encode(inputs_of(pairs))) if batch is None else batch))


def _put_said(
    space: str, pairs: list[tuple[str, NewValue]], delay_s: float, ttl_s: float, request_id: str
) -> Program[list[str]]:
    """Add entries to queues with options that record batches do not have."""
    for pair in pairs:
        _check_tuple("an entry", pair, 2, "(queue, value)")
    bodies = _entry_bodies([value for _, value in pairs])
    times = _times(delay_s, ttl_s)
    for (queue, _), entry in zip(pairs, bodies, strict=True):
        entry["queue"] = text("queue", queue)
        entry.update({name: ms for name, ms in times.items() if ms and name not in entry})
    if not bodies:
        return []
    answer = yield Question("POST", _path(space, "/entries"), {"entries": bodies, **request(request_id)})
    return _positions(answer)


def enqueue_inputs(space: str, new: Sequence[BatchInput]) -> Program[list[str]]:
    """Add entries to the queues that the keys of these records name."""
    return (yield from _put(space, bytes(encode(new))))


def _put(space: str, batch: bytes) -> Program[list[str]]:
    return _positions((yield Question("POST", _path(space, "/entries"), RequestBody(batch, BATCHES_TYPE))))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def inputs_of(entries: Iterable[tuple[str, NewValue]]) -> list[BatchInput]:
    """Entries as records to send. Raises RequestInvalid."""
    pairs = list(entries)
    for pair in pairs:
        _check_tuple("an entry", pair, 2, "(queue, value)")
    return list(_inputs(pairs))


def _inputs(pairs: Sequence[tuple[Any, NewValue]]) -> Iterator[BatchInput]:
    now_ms, names = _now_ms(), dict[str, bytes]()
    for (queue, _), entry in zip(pairs, encodable([_record(value) for _, value in pairs], None), strict=True):
        name = names.get(queue) if isinstance(queue, str) else None
        if name is None:
            name = names[queue] = text("queue", queue).encode()
        headers = entry.headers if entry.key is None else ((KEY_HEADER, entry.key), *entry.headers)
        yield BatchInput(now_ms if entry.timestamp_ms is None else entry.timestamp_ms, name, entry.value, headers)


def _milliseconds(what: str, given: float, least: int = 0, most: int = _LONGEST_WAIT_MS) -> int:
    """Seconds in milliseconds, for HTTP. Raises RequestInvalid outside of the bounds."""
    return int(seconds(what, given, least / 1000, most / 1000) * 1000)


def leased_for(lease_s: float) -> dict[str, object]:
    """The lease time in a request."""
    return {"lease_ms": _milliseconds("lease_s", lease_s, 1, LONGEST_LEASE_MS)}


def delayed_by(delay_s: float) -> dict[str, object]:
    """The delay in a request."""
    return {"delay_ms": _milliseconds("delay_s", delay_s, most=LONGEST_DELAY_MS)}


def request(request_id: str) -> dict[str, object]:
    """The request id in a request, if any."""
    return {"request": request_id} if text("request_id", request_id) else {}


def _positions(answer: object) -> list[str]:
    return value_of(value_of(answer, dict[str, Any]).get("positions"), list[str])


def each(queue: str, values: Iterable[NewValue]) -> list[tuple[str, NewValue]]:
    """Values for one queue."""
    return [(queue, value) for value in _several(values)]


def _several(values: Iterable[NewValue]) -> list[NewValue]:
    if isinstance(values, bytes | str | NewRecord | NewEntry | Record):
        raise RequestInvalid(f"values are given in a list: write [{type(values).__name__}(…)] for a single one")
    if isinstance(values, Mapping | bytearray | memoryview) or not isinstance(values, Iterable):
        raise refused("values", values, "a list of bytes, str, NewEntry, NewRecord or Record")
    return list(values)


def retrieve(space: str, queue: str, start: str, limit: int, wait_s: float, *, delayed: bool) -> Program[QueuePage]:
    """Entries of a queue; waits while there is none."""
    left_ms = _milliseconds("wait_s", wait_s)
    asked: dict[str, object] = {
        "queue": text("queue", queue), "from": text("start", start),
        "limit": whole("limit", limit, 1, _MOST_ENTRIES), "delayed": str(bool(delayed)).lower(),
    }  # fmt: skip
    path = _path(space, "/entries")
    while True:
        wait_ms = min(left_ms, LONGEST_WAIT_MS)
        query = urlencode(asked | {"wait_ms": wait_ms})
        page = _decoded((yield Question("GET", f"{path}?{query}", accept=BATCHES_TYPE, header=NEXT_HEADER)))
        left_ms -= wait_ms
        if page.entries or left_ms <= 0:
            return page
        asked["from"] = page.next


def retrieve_several(
    space: str, queues: Mapping[str, str], limit: int, wait_s: float
) -> Program[dict[str, QueuePage | DuramenError]]:
    """Entries of several queues; waits while there is none."""
    if not isinstance(queues, Mapping):
        raise refused("queues", queues, "a mapping of queues to positions")
    left_ms, left = _milliseconds("wait_s", wait_s), whole("limit", limit, 1, _MOST_ENTRIES)
    starts = {text("a queue", queue): text("a position", start) for queue, start in queues.items()}
    parts, found = split_queues(starts), dict[str, QueuePage | DuramenError]()
    asked = [(part, 0) for part in parts] if len(parts) > 1 or not left_ms else []
    for part, wait_ms in itertools.chain(asked, turns(parts, left_ms)):
        if len(found) == len(starts) and any(isinstance(one, DuramenError) or one.entries for one in found.values()):
            break
        pages = yield from _read(space, {queue: starts[queue] for queue in part}, left, wait_ms)
        left -= sum(len(one.entries) for one in pages.values() if isinstance(one, QueuePage))
        found |= pages
        starts |= {queue: one.next for queue, one in pages.items() if isinstance(one, QueuePage)}
    return found


def _read(
    space: str, starts: Mapping[str, str], limit: int, wait_ms: int
) -> Program[dict[str, QueuePage | DuramenError]]:
    """Entries of as many queues as one request may name; with a `limit` of 0 only their starting positions."""
    reads = [{"queue": queue, "from": start} for queue, start in starts.items()]
    body = {"queues": reads, "limit": max(1, limit), "wait_ms": wait_ms}
    answer = value_of((yield Question("POST", _path(space, "/retrieve"), body)), dict[str, Any])
    found = {one["queue"]: _found(one) for one in value_of(answer.get("queues"), list[dict[str, Any]])}
    if limit:
        return found
    unread = {queue: QueuePage([], _FIRST if start == "start" else start) for queue, start in starts.items()}
    return {queue: unread[queue] if isinstance(one, QueuePage) and one.entries else one for queue, one in found.items()}


def _found(one: Mapping[str, Any]) -> QueuePage | DuramenError:
    problem = one.get("problem")
    return _page(one) if problem is None else problem_of(value_of(problem, dict[str, Any]))


def _decoded(answer: object) -> QueuePage:
    content, following = value_of(answer, tuple[bytes, str])
    try:
        found = entry_fields(content)
    except BatchCorrupt as error:
        raise ServerUnreachable(f"what answers is no node of Duramen: {error}") from None
    if any(found.headers):
        headers = [tuple((name.decode(errors="replace"), value) for name, value in one) for one in found.headers]
        return QueuePage(list(map(QueueEntry, *found[:-1], headers)), following)
    return QueuePage(list(map(QueueEntry, *found[:-1])), following)


def _page(answer: object) -> QueuePage:
    said = value_of(answer, dict[str, Any])
    rows = value_of(said.get("entries"), list[dict[str, Any]])
    try:
        return QueuePage([_entry(row) for row in rows], value_of(said.get("next"), str))
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ServerUnreachable(f"what answers is no node of Duramen: {error}") from None


def _entry(row: Mapping[str, Any]) -> QueueEntry:
    return QueueEntry(*_fields(row))


def _fields(row: Mapping[str, Any]) -> tuple[Any, ...]:
    headers = tuple(
        ((bytes_of(name) or b"").decode(errors="replace"), bytes_of(value)) for name, value in row["headers"]
    )
    return (
        row["position"], row["version"], row["timestamp"], bytes_of(row["key"]), bytes_of(row["value"]), headers,
    )  # fmt: skip


def edit(space: str, queue: str, edits: Iterable[Edit], request_id: str) -> Program[list[int]]:
    """Change the values of entries; returns their versions."""
    bodies, given = list[dict[str, object]](), list(several("edits", "(position, value)", edits))
    for one in given:
        _check_tuple("an edit", one, 3, "(position, value) or (position, value, version)")
    new = encodable([one[1] if isinstance(one[1], bytes | str) else NewRecord(one[1]) for one in given], None)
    for one, entry in zip(given, new, strict=True):
        edit_body: dict[str, object] = {"position": text("position", one[0]), "value": json_of(entry.value)}
        if len(one) == 3:
            edit_body["version"] = whole("version", one[2], 0, INT64_MAX)
        bodies.append(edit_body)
    if not bodies:
        return []
    body = {"queue": text("queue", queue), "entries": bodies, **request(request_id)}
    answer = yield Question("POST", _path(space, "/edit"), body)
    return value_of(value_of(answer, dict[str, Any]).get("versions"), list[int])


def delete(space: str, queue: str, positions: Iterable[str], version: int | None, request_id: str) -> Program[None]:
    """Delete entries."""
    more = {} if version is None else {"version": whole("version", version, 0, INT64_MAX)}
    entries = [
        {"position": text("a position", position), **more} for position in several("positions", "position", positions)
    ]
    if entries:
        body = {"queue": text("queue", queue), "entries": entries, **request(request_id)}
        yield Question("POST", _path(space, "/delete"), body)


def replace(
    space: str, queue: str, start: str, values: Iterable[NewValue], by: str, reason: str, request_id: str
) -> Program[list[str]]:
    """Replace everything in a queue from a position on with other entries; returns their positions."""
    body = {
        "queue": text("queue", queue), "from": text("start", start), "entries": _entry_bodies(_several(values)),
        "by": text("by", by), "reason": text("reason", reason), **request(request_id),
    }  # fmt: skip
    return _positions((yield Question("POST", _path(space, "/replace"), body)))


def lease(
    space: str, queues: Iterable[str], limit: int, lease_s: float, wait_s: float, *, fifo: bool
) -> Program[list[LeasedEntry]]:
    """Leased entries of queues; waits while there is none."""
    left_ms, most = _milliseconds("wait_s", wait_s), whole("limit", limit, 1, _MOST_ENTRIES)
    options = {**leased_for(lease_s), "fifo": bool(fifo)}
    parts = rotated(split_queues(text("a queue", queue) for queue in several("queues", "queue", queues)))
    if len(parts) > 1 or not left_ms:
        found = yield from _lease_shares(space, parts, most, options)
        if found:
            return found
    for part, wait_ms in turns(parts, left_ms):
        found = yield from _lease(space, part, most, options | {"wait_ms": wait_ms})
        if found:
            return found
    return []


def _lease_shares(
    space: str, parts: Sequence[list[str]], limit: int, options: Mapping[str, object]
) -> Program[list[LeasedEntry]]:
    """Lease each part's share, then the remainder. After an error, returns what was leased before it."""
    found, full = list[LeasedEntry](), list[list[str]]()
    try:
        for part, share in shares(parts, limit):
            some = (yield from _lease(space, part, share, options)) if share else []
            found += some
            if len(some) == share:
                full.append(part)
        for part in full:
            if len(found) < limit:
                found += yield from _lease(space, part, limit - len(found), options)
    except DuramenError:
        if not found:
            raise
    return found


def _lease(space: str, queues: list[str], limit: int, options: Mapping[str, object]) -> Program[list[LeasedEntry]]:
    asked = Question("POST", _path(space, "/lease"), {"queues": queues, "limit": limit, **options})
    return _leased(value_of(value_of((yield asked), dict[str, Any]).get("entries"), list[dict[str, Any]]))


def _leased(rows: list[dict[str, Any]]) -> list[LeasedEntry]:
    try:
        return [
            LeasedEntry(*_fields(row), queue=row["queue"], lease=row["lease"], deliveries=row["deliveries"])
            for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ServerUnreachable(f"what answers is no node of Duramen: {error}") from None


def settle(space: str, what: str, entries: Iterable[LeasedEntry], more: Mapping[str, object]) -> Program[None]:
    """Acknowledge, return or extend leased entries."""
    leased = list(several("entries", "entry", entries))
    for one in leased:
        if not isinstance(one, LeasedEntry):
            raise refused("an entry", one, "an entry as `lease` returned it")
    places = [{"queue": one.queue, "position": one.position, "lease": one.lease} for one in leased]
    if not places:
        return
    answer = value_of((yield Question("POST", _path(space, f"/{what}"), {"entries": places, **more})), dict[str, Any])
    failed = value_of(answer.get("refused"), list[dict[str, Any]])
    if failed:
        first = problem_of(value_of(failed[0].get("problem"), dict[str, Any]))
        entry = leased[value_of(failed[0].get("entry"), int)]
        done = f"; {len(places) - len(failed)} of {len(places)} entries are done" if len(places) > 1 else ""
        raise type(first)(f"{first} (queue {entry.queue}){done}")


def list_queues(space: str, prefix: str) -> Program[list[str]]:
    """The names of queues with `prefix`."""
    found, missing, after = list[str](), list[MissingShard](), ""
    while True:
        page = yield from names_page(space, prefix, after, _MOST_NAMES)
        found += page.queues
        missing += page.missing_shards
        if page.next is None:
            break
        after = page.next
    if missing:
        reasons = "; ".join(f"shard {one.shard}: {one.reason}" for one in missing)
        warnings.warn(f"names of queues of {space} are missing: {reasons}", RuntimeWarning, stacklevel=2)
    return sorted(found)


def names_page(space: str, prefix: str, after: str, limit: int) -> Program[QueueNames]:
    """A page of names of queues with `prefix`."""
    asked = {"prefix": text("prefix", prefix), "after": text("after", after)}
    query = urlencode({**asked, "limit": whole("limit", limit, 1, _MOST_NAMES)})
    page = value_of((yield Question("GET", f"{_path(space, '/queues')}?{query}")), dict[str, Any])
    following, missing = page.get("next"), value_of(page.get("missing_shards", []), list[MissingShard])
    names = value_of(page.get("queues"), list[str])
    return QueueNames(names, None if following is None else value_of(following, str), missing)


def stats(space: str, queue: str) -> Program[QueueStats]:
    """Figures of a queue."""
    query = urlencode({"queue": text("queue", queue)})
    return value_of((yield Question("GET", f"{_path(space, '/stats')}?{query}")), QueueStats)


def usage(space: str) -> Program[SpaceUsage]:
    """The entries of all queues of a space."""
    return value_of((yield Question("GET", _path(space, "/usage"))), SpaceUsage)


def empty(space: str, what: str, queue: str, request_id: str) -> Program[None]:
    """Delete every entry of a queue, or also the queue."""
    yield Question("POST", _path(space, f"/{what}"), {"queue": text("queue", queue), **request(request_id)})
