"""Queues over HTTP, as both clients use them. Pure but for the classes that have a client."""

import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from duramen.base.errors import BatchCorrupt, DuramenError, RequestInvalid, ServerUnreachable
from duramen.client.api.arguments import INT64_MAX, refused, seconds, text, whole
from duramen.client.api.http import Program, Question
from duramen.client.api.joined_enqueues import JoinedEnqueues
from duramen.client.api.records import Encodable, NewRecord, Record, Writable, encodable
from duramen.client.api.values import value_of
from duramen.client.http import Wish, path_of, problem_of
from duramen.codec.batch import BatchInput, encode
from duramen.codec.jsonbytes import bytes_of, json_of
from duramen.codec.queue_entries import KEY_HEADER, NEXT_HEADER, encode_entries, entry_fields
from duramen.codec.shown_batches import BATCHES_TYPE

__all__ = ["AsyncQueues", "QueueEntry", "QueuePage", "Queues"]

_T = TypeVar("_T")

_LONGEST_WAIT_MS: Final = 20_000  # of one request: then it is asked again
_MOST_ENTRIES: Final = 10_000
_PAGE_ENTRIES: Final = 10_000


class QueueEntry(msgspec.Struct, frozen=True):
    """An entry of a queue. `position` stays, `version` changes with each edit.

    >>> client.spaces.create("notes")
    SpaceInfo(...)
    >>> positions = client.queues("notes").enqueue("ann", [NewRecord("milk", key="1")])
    >>> [entry] = client.queues("notes").retrieve("ann").entries
    >>> entry.key, entry.value, entry.text, entry.headers, entry.position == positions[0]
    (b'1', b'milk', 'milk', (), True)
    """

    position: str
    version: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The value as UTF-8, empty where there is none. Raises UnicodeDecodeError for other bytes."""
        return "" if self.value is None else self.value.decode()


class QueuePage(NamedTuple):
    """Entries in their order, and the position from which on the next ones are read.

    >>> QueuePage([], "0.0").next
    '0.0'
    """

    entries: Sequence[QueueEntry]
    next: str


Edit: TypeAlias = tuple[str, bytes | str | None] | tuple[str, bytes | str | None, int]
"""The position of an entry, its new value and, if the entry has to have it, a version."""


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


def _path(space: str, what: str = "") -> str:
    return path_of("spaces", text("space", space)) + what


def _wish(entry: Encodable) -> dict[str, object]:
    wish: dict[str, object] = {"value": json_of(entry.value)}
    if entry.key is not None:
        wish["key"] = json_of(entry.key)
    if entry.headers:
        wish["headers"] = [(json_of(name), json_of(value)) for name, value in entry.headers]
    if entry.timestamp_ms is not None:
        wish["timestamp"] = entry.timestamp_ms
    return wish


def _wishes(values: Iterable[Writable]) -> list[dict[str, object]]:
    return [_wish(entry) for entry in encodable(values, None)]


def _check_tuple(what: str, one: object, most: int, expected: str) -> None:
    if not isinstance(one, tuple) or not 2 <= len(one) <= most:
        raise refused(what, one, expected)


def enqueue(space: str, entries: Iterable[tuple[str, Writable]]) -> Program[list[str]]:
    """Put entries into queues; their positions."""
    pairs = list(entries)
    if not pairs:
        return []
    batch = encode_entries(pairs, _now_ms())
    return (yield from _put(space, bytes(encode(inputs_of(pairs))) if batch is None else batch))


def enqueue_inputs(space: str, new: Sequence[BatchInput]) -> Program[list[str]]:
    """Put entries into queues, the keys of these records."""
    return (yield from _put(space, bytes(encode(new))))


def _put(space: str, batch: bytes) -> Program[list[str]]:
    return _positions((yield Question("POST", _path(space, "/entries"), Wish(batch, BATCHES_TYPE))))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def inputs_of(entries: Iterable[tuple[str, Writable]]) -> list[BatchInput]:
    """Entries as the records that they are sent as. Raises RequestInvalid."""
    pairs = list(entries)
    for pair in pairs:
        _check_tuple("an entry", pair, 2, "(queue, value)")
    return list(_inputs(pairs))


def _inputs(pairs: Sequence[tuple[str, Writable]]) -> Iterator[BatchInput]:
    now_ms, names = _now_ms(), dict[str, bytes]()
    for (queue, _), entry in zip(pairs, encodable([value for _, value in pairs], None), strict=True):
        name = names.get(queue)
        if name is None:
            name = names[queue] = text("queue", queue).encode()
        headers = entry.headers if entry.key is None else ((KEY_HEADER, entry.key), *entry.headers)
        yield BatchInput(now_ms if entry.timestamp_ms is None else entry.timestamp_ms, name, entry.value, headers)


def _positions(answer: object) -> list[str]:
    return value_of(value_of(answer, dict[str, Any]).get("positions"), list[str])


def _each(queue: str, values: Iterable[Writable]) -> list[tuple[str, Writable]]:
    if isinstance(values, bytes | str | NewRecord | Record):
        raise RequestInvalid(f"values are given in a list: write [{type(values).__name__}(…)] for a single one")
    return [(queue, value) for value in values]


def retrieve(space: str, queue: str, start: str, limit: int, wait_s: float) -> Program[QueuePage]:
    """Entries of a queue, waited for as long as there is none."""
    left_ms = int(seconds("wait_s", wait_s) * 1000)
    asked: dict[str, object] = {
        "queue": text("queue", queue), "from": text("start", start),
        "limit": whole("limit", limit, 1, _MOST_ENTRIES),
    }  # fmt: skip
    path = _path(space, "/entries")
    while True:
        wait_ms = min(left_ms, _LONGEST_WAIT_MS)
        query = urlencode(asked | {"wait_ms": wait_ms})
        page = _decoded((yield Question("GET", f"{path}?{query}", accept=BATCHES_TYPE, header=NEXT_HEADER)))
        left_ms -= wait_ms
        if page.entries or left_ms <= 0:
            return page
        asked["from"] = page.next


def retrieve_several(
    space: str, queues: Mapping[str, str], limit: int, wait_s: float
) -> Program[dict[str, QueuePage | DuramenError]]:
    """Entries of several queues, waited for as long as there is none."""
    if not isinstance(queues, Mapping):
        raise refused("queues", queues, "a mapping of queues to positions")
    left_ms = int(seconds("wait_s", wait_s) * 1000)
    starts = {text("a queue", queue): text("a position", start) for queue, start in queues.items()}
    found: dict[str, QueuePage | DuramenError] = {}
    while starts:
        wait_ms = min(left_ms, _LONGEST_WAIT_MS)
        reads = [{"queue": queue, "from": start} for queue, start in starts.items()]
        wish = {"queues": reads, "limit": whole("limit", limit, 1, _MOST_ENTRIES), "wait_ms": wait_ms}
        answer = value_of((yield Question("POST", _path(space, "/retrieve"), wish)), dict[str, Any])
        found = {one["queue"]: _found(one) for one in value_of(answer.get("queues"), list[dict[str, Any]])}
        left_ms -= wait_ms
        if left_ms <= 0 or any(isinstance(one, DuramenError) or one.entries for one in found.values()):
            break
        starts = {queue: one.next for queue, one in found.items() if isinstance(one, QueuePage)}
    return found


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
    headers = tuple(
        ((bytes_of(name) or b"").decode(errors="replace"), bytes_of(value)) for name, value in row["headers"]
    )
    return QueueEntry(
        row["position"], row["version"], row["timestamp"], bytes_of(row["key"]), bytes_of(row["value"]), headers
    )


def edit(space: str, queue: str, edits: Iterable[Edit]) -> Program[list[int]]:
    """Give entries other values; their versions."""
    wishes = list[dict[str, object]]()
    for one in edits:
        _check_tuple("an edit", one, 3, "(position, value) or (position, value, version)")
        (value,) = encodable([NewRecord(one[1])], None)
        wish: dict[str, object] = {"position": text("position", one[0]), "value": json_of(value.value)}
        if len(one) == 3:
            wish["version"] = whole("version", one[2], 0, INT64_MAX)
        wishes.append(wish)
    if not wishes:
        return []
    answer = yield Question("POST", _path(space, "/edit"), {"queue": text("queue", queue), "entries": wishes})
    return value_of(value_of(answer, dict[str, Any]).get("versions"), list[int])


def delete(space: str, queue: str, positions: Iterable[str], version: int | None) -> Program[None]:
    """Delete entries."""
    if isinstance(positions, str):
        raise RequestInvalid("positions are given in a list: write [position] for a single one")
    more = {} if version is None else {"version": whole("version", version, 0, INT64_MAX)}
    entries = [{"position": text("a position", position), **more} for position in positions]
    if entries:
        yield Question("POST", _path(space, "/delete"), {"queue": text("queue", queue), "entries": entries})


def replace(space: str, queue: str, start: str, values: Iterable[Writable], by: str, reason: str) -> Program[list[str]]:
    """Take back what is in a queue from a position on, and put other entries there; their positions."""
    wish = {
        "queue": text("queue", queue), "from": text("start", start), "entries": _wishes(values),
        "by": text("by", by), "reason": text("reason", reason),
    }  # fmt: skip
    return _positions((yield Question("POST", _path(space, "/replace"), wish)))


class Queues:
    """The queues of a space. A queue is there once something was put into it, and costs nothing while it is idle.

    >>> client.spaces.create("post")
    SpaceInfo(...)
    >>> queues = client.queues("post")
    >>> first, second = queues.enqueue("ann", ["hello", "world"])
    >>> [entry.text for entry in queues.retrieve("ann").entries]
    ['hello', 'world']
    >>> versions = queues.edit("ann", [(first, "Hello")])
    >>> queues.delete("ann", [second])
    >>> [entry.text for entry in queues.read("ann")]
    ['Hello']
    """

    def __init__(self, run: _Run, space: str) -> None:
        self._run = run
        self.space = text("space", space)

    def enqueue(self, queue: str, values: Iterable[Writable]) -> list[str]:
        """Put entries at the end of a queue, all of them or none; their positions, once they are durable.

        Raises QueueSpaceNotFound, QueueNameInvalid, QueueBatchTooLarge, ServerUnreachable …

        >>> client.spaces.create("jobs")
        SpaceInfo(...)
        >>> len(client.queues("jobs").enqueue("ann", ["one", duramen.NewRecord("two", headers={"by": "Eve"})]))
        2
        """
        return self._run(enqueue(self.space, _each(queue, values)))

    def enqueue_many(self, entries: Iterable[tuple[str, Writable]]) -> list[str]:
        """Put entries into many queues; those of a shard all together or not at all. More in `enqueue`.

        >>> client.spaces.create("news-feeds")
        SpaceInfo(...)
        >>> len(client.queues("news-feeds").enqueue_many([("ann", "one"), ("bob", "two")]))
        2
        """
        return self._run(enqueue(self.space, entries))

    def retrieve(self, queue: str, start: str = "start", *, limit: int = 100, wait_s: float = 0) -> QueuePage:
        """Entries from a position on, `start` or `end`; where there is none, wait for the first for `wait_s`.

        Each has its newest value; what was deleted is left out. Reading changes nothing.

        Raises QueueHistoryRewritten where what was read was taken back: undo what came of entries from its `start` on,
        and go on there; QueuePositionUnknown, QueuePositionFuture, QueueSpaceNotFound, QueueNameInvalid …

        >>> client.spaces.create("tasks")
        SpaceInfo(...)
        >>> positions = client.queues("tasks").enqueue("ann", ["one", "two"])
        >>> page = client.queues("tasks").retrieve("ann", limit=1)
        >>> [entry.text for entry in client.queues("tasks").retrieve("ann", page.next).entries]
        ['two']
        """
        return self._run(retrieve(self.space, queue, start, limit, wait_s))

    def retrieve_many(
        self, queues: Mapping[str, str], *, limit: int = 100, wait_s: float = 0
    ) -> dict[str, QueuePage | DuramenError]:
        """Entries of several queues, each from its position on, `limit` in all; or why a queue cannot be read there.

        >>> client.spaces.create("chats")
        SpaceInfo(...)
        >>> positions = client.queues("chats").enqueue("ann", ["hi"])
        >>> found = client.queues("chats").retrieve_many({"ann": "start", "bob": "start"})
        >>> {queue: len(page.entries) for queue, page in found.items()}
        {'ann': 1, 'bob': 0}
        """
        return self._run(retrieve_several(self.space, queues, limit, wait_s))

    def read(self, queue: str, start: str = "start") -> Iterator[QueueEntry]:
        """All entries from a position on, page by page. Raises as `retrieve`.

        >>> client.spaces.create("lists")
        SpaceInfo(...)
        >>> positions = client.queues("lists").enqueue("ann", ["a", "b"])
        >>> [entry.text for entry in client.queues("lists").read("ann", positions[1])]
        ['b']
        """
        while (page := self.retrieve(queue, start, limit=_PAGE_ENTRIES)).entries:
            yield from page.entries
            start = page.next

    def edit(self, queue: str, edits: Iterable[Edit]) -> list[int]:
        """Give entries other values, all of them or none; the versions that they have then.

        With a version an entry is edited only where it has that one. Raises QueueEntryGone, QueueVersionStale,
        QueueHistoryRewritten, QueuePositionUnknown …

        >>> client.spaces.create("pages")
        SpaceInfo(...)
        >>> [at] = client.queues("pages").enqueue("ann", ["a"])
        >>> [version] = client.queues("pages").edit("ann", [(at, "b")])
        >>> [newer] = client.queues("pages").edit("ann", [(at, "c", version)])
        >>> client.queues("pages").edit("ann", [(at, "d", version)])
        Traceback (most recent call last):
        duramen.base.errors.QueueVersionStale: the entry at ...
        """
        return self._run(edit(self.space, queue, edits))

    def delete(self, queue: str, positions: Iterable[str], *, version: int | None = None) -> None:
        """Delete entries, all of them or none; with a `version` only where they have it. Raises as `edit`.

        >>> client.spaces.create("carts")
        SpaceInfo(...)
        >>> positions = client.queues("carts").enqueue("ann", ["a", "b"])
        >>> client.queues("carts").delete("ann", positions[:1])
        """
        self._run(delete(self.space, queue, positions, version))

    def replace(
        self, queue: str, start: str, values: Iterable[Writable], *, by: str = "", reason: str = ""
    ) -> list[str]:
        """Take back everything from a position on, and put these entries there, in one step; their positions.

        Whoever has read what is taken back gets QueueHistoryRewritten with `by` and `reason`. Raises
        QueuePositionUnknown, QueuePositionFuture, QueueHistoryRewritten …

        >>> client.spaces.create("ledgers")
        SpaceInfo(...)
        >>> first, second = client.queues("ledgers").enqueue("ann", ["+5", "+7"])
        >>> positions = client.queues("ledgers").replace("ann", second, ["+6", "+7"], reason="an event was lost")
        >>> [entry.text for entry in client.queues("ledgers").read("ann")]
        ['+5', '+6', '+7']
        """
        return self._run(replace(self.space, queue, start, values, by, reason))


class AsyncQueues:
    """The queues of a space; more in `duramen.Queues`.

    >>> await client.spaces.create("aio-post")
    SpaceInfo(...)
    >>> queues = client.queues("aio-post")
    >>> first, second = await queues.enqueue("ann", ["hello", "world"])
    >>> versions = await queues.edit("ann", [(first, "Hello")])
    >>> await queues.delete("ann", [second])
    >>> [entry.text async for entry in queues.read("ann")]
    ['Hello']
    """

    def __init__(self, run: _RunAsync, space: str) -> None:
        self._run = run
        self.space = text("space", space)
        self._joined = JoinedEnqueues(lambda new: run(enqueue_inputs(space, new)))

    async def enqueue(self, queue: str, values: Iterable[Writable]) -> list[str]:
        """Put entries at the end of a queue, all of them or none; more in `duramen.Queues.enqueue`.

        Entries of tasks that share this object travel together.

        >>> await client.spaces.create("aio-jobs")
        SpaceInfo(...)
        >>> len(await client.queues("aio-jobs").enqueue("ann", ["one", "two"]))
        2
        """
        return await self._put(_each(queue, values))

    async def enqueue_many(self, entries: Iterable[tuple[str, Writable]]) -> list[str]:
        """Put entries into many queues; those of a shard all together or not at all.

        >>> await client.spaces.create("aio-feeds")
        SpaceInfo(...)
        >>> len(await client.queues("aio-feeds").enqueue_many([("ann", "one"), ("bob", "two")]))
        2
        """
        return await self._put(entries)

    async def _put(self, entries: Iterable[tuple[str, Writable]]) -> list[str]:
        new = inputs_of(entries)
        return await self._joined.put(new) if new else []

    async def retrieve(self, queue: str, start: str = "start", *, limit: int = 100, wait_s: float = 0) -> QueuePage:
        """Entries from a position on, at once or once there are some; more in `duramen.Queues.retrieve`.

        >>> await client.spaces.create("aio-tasks")
        SpaceInfo(...)
        >>> waiting = asyncio.ensure_future(client.queues("aio-tasks").retrieve("ann", wait_s=30))
        >>> positions = await client.queues("aio-tasks").enqueue("ann", ["one"])
        >>> [entry.text for entry in (await waiting).entries]
        ['one']
        """
        return await self._run(retrieve(self.space, queue, start, limit, wait_s))

    async def retrieve_many(
        self, queues: Mapping[str, str], *, limit: int = 100, wait_s: float = 0
    ) -> dict[str, QueuePage | DuramenError]:
        """Entries of several queues; more in `duramen.Queues.retrieve_many`.

        >>> await client.spaces.create("aio-chats")
        SpaceInfo(...)
        >>> list(await client.queues("aio-chats").retrieve_many({"ann": "start", "bob": "end"}))
        ['ann', 'bob']
        """
        return await self._run(retrieve_several(self.space, queues, limit, wait_s))

    async def read(self, queue: str, start: str = "start") -> AsyncIterator[QueueEntry]:
        """All entries from a position on, page by page.

        >>> await client.spaces.create("aio-lists")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-lists").enqueue("ann", ["a", "b"])
        >>> [entry.text async for entry in client.queues("aio-lists").read("ann", positions[1])]
        ['b']
        """
        while (page := await self.retrieve(queue, start, limit=_PAGE_ENTRIES)).entries:
            for entry in page.entries:
                yield entry
            start = page.next

    async def edit(self, queue: str, edits: Iterable[Edit]) -> list[int]:
        """Give entries other values, all of them or none; more in `duramen.Queues.edit`.

        >>> await client.spaces.create("aio-pages")
        SpaceInfo(...)
        >>> [at] = await client.queues("aio-pages").enqueue("ann", ["a"])
        >>> [version] = await client.queues("aio-pages").edit("ann", [(at, "b")])
        """
        return await self._run(edit(self.space, queue, edits))

    async def delete(self, queue: str, positions: Iterable[str], *, version: int | None = None) -> None:
        """Delete entries, all of them or none; with a `version` only where they have it.

        >>> await client.spaces.create("aio-carts")
        SpaceInfo(...)
        >>> await client.queues("aio-carts").delete("ann", await client.queues("aio-carts").enqueue("ann", ["a"]))
        """
        await self._run(delete(self.space, queue, positions, version))

    async def replace(
        self, queue: str, start: str, values: Iterable[Writable], *, by: str = "", reason: str = ""
    ) -> list[str]:
        """Take back everything from a position on, and put these entries there; more in `duramen.Queues.replace`.

        >>> await client.spaces.create("aio-ledgers")
        SpaceInfo(...)
        >>> [first] = await client.queues("aio-ledgers").enqueue("ann", ["+5"])
        >>> positions = await client.queues("aio-ledgers").replace("ann", first, ["+6"], by="Eve")
        >>> [entry.text async for entry in client.queues("aio-ledgers").read("ann")]
        ['+6']
        """
        return await self._run(replace(self.space, queue, start, values, by, reason))
