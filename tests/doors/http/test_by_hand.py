"""Records through the HTTP door's code on a broker by hand: any records, any pages, and a disk that takes only some."""

import asyncio
import errno
import json
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from duramen.base.errors import BatchInvalid, BatchTooLarge, StorageFailed, StorageFull, StreamNotFound
from duramen.base.units import MIB
from duramen.codec.batch import CONTROL, BatchInput, encode, header
from duramen.codec.jsonbytes import Base64, json_of
from duramen.doors.http.produce import produce
from duramen.doors.http.reads import HttpReads
from duramen.doors.http.serving.problems import answer_to_partly_stored
from duramen.doors.http.types.records import Place, RecordInfo, RecordPlaces, RecordRequest, RecordsQuery
from duramen.doors.problems import PartlyStored
from duramen.service.forwarding.forwarding import Forwarding, NoPeers
from duramen.service.forwarding.memory import Room
from duramen.sim.broker import ManualBroker

T = TypeVar("T")


def run(hand: ManualBroker, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for the broker, which goes on whenever nothing else does."""

    async def settling() -> T:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            hand.settle()
        return task.result()

    return asyncio.run(settling())


def alone(hand: ManualBroker) -> Forwarding:
    """The node has no others that it could ask."""
    return Forwarding(hand.broker, NoPeers(), Room(MIB))


def storing(hand: ManualBroker, name: str, wishes: list[RecordRequest]) -> Coroutine[Any, Any, RecordPlaces]:
    return produce(hand.broker, alone(hand), hand.broker.streams.get(name), wishes, 1000)


def read_all(hand: ManualBroker, name: str, partition: int, **query: Any) -> list[RecordInfo]:
    """Every record of a partition, page by page."""
    found: list[RecordInfo] = []
    reading, offset = HttpReads(), "start"

    async def pages() -> None:
        nonlocal offset
        while True:
            page = await reading.read(
                hand.broker, alone(hand), hand.broker.streams.get(name), RecordsQuery(partition, offset, **query)
            )
            if not page.records:
                assert page.next == page.end
                return
            found.extend(page.records)
            offset = str(page.next)

    run(hand, pages())
    return found


class Model:
    """What a stream of three partitions holds: values as JSON has them, by partition."""

    def __init__(self) -> None:
        self.stored: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}

    def place(self, wish: RecordRequest, partition: int, now_ms: int) -> Place:
        timestamp = now_ms if wish.timestamp is None else wish.timestamp
        self.stored[partition].append((wish.key, wish.value, wish.headers, timestamp))
        return Place(partition, len(self.stored[partition]) - 1)


def text_or_bytes(*, null: bool) -> st.SearchStrategy[Any]:
    some = st.binary(max_size=40).map(json_of)
    return some | st.none() if null else some


names: st.SearchStrategy[str | Base64] = text_or_bytes(null=False)
wishes = st.builds(
    RecordRequest,
    value=text_or_bytes(null=True),
    key=text_or_bytes(null=True),
    headers=st.lists(st.tuples(names, text_or_bytes(null=True)), max_size=3),
    partition=st.none() | st.integers(0, 2),
    timestamp=st.none() | st.integers(0, 1_000_000),
)


@given(st.lists(st.lists(wishes, min_size=1, max_size=30), max_size=4), st.integers(1, 7), st.integers(1, 200))
def test_any_records_are_read_as_they_were_stored(
    requests: list[list[RecordRequest]], limit: int, max_bytes: int
) -> None:
    hand, model = ManualBroker(), Model()
    hand.create("s", partitions=3, max_message_bytes=600)
    for request in requests:
        now_ms = hand.broker.now_ms()
        places = run(hand, storing(hand, "s", request)).records
        for wish, place in zip(request, places, strict=True):
            if wish.partition is not None:
                assert place.partition == wish.partition
            assert place == model.place(wish, place.partition, now_ms)
    for partition, stored in model.stored.items():
        found = read_all(hand, "s", partition, limit=limit, max_bytes=max_bytes)
        assert [record.offset for record in found] == list(range(len(stored)))
        assert [(one.key, one.value, one.headers, one.timestamp) for one in found] == stored


def test_control_batches_are_passed_over() -> None:
    hand = ManualBroker()
    stream = hand.create("s")
    hand.produce("s", b"a")
    hand.settle()
    log = stream.partition(0).log
    # Nothing writes markers yet: one is put where a transaction would put it.
    marker = encode([BatchInput(0, b"\0\0\0\1", b"\0\0\0\0\0\0")], attributes=CONTROL, producer_id=1)
    hand.store.append(log, marker, header(marker), stream.partition(0).leader_epoch, None)
    hand.produce("s", b"b")
    hand.settle()
    assert [(record.offset, record.value) for record in read_all(hand, "s", 0)] == [(0, "a"), (2, "b")]
    assert [record.value for record in read_all(hand, "s", 0, limit=1)] == ["a", "b"]


def failing_at(hand: ManualBroker, directory: str) -> None:
    def interfere(call: str, path: str, size: int) -> int:
        if call == "write" and directory in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    hand.files.interfere = interfere


def test_what_was_stored_is_said_where_the_disk_took_only_some() -> None:
    hand = ManualBroker()
    stream = hand.create("s", partitions=2, durability="os")
    for partition in (0, 1):
        hand.produce("s", b"before", partition=partition)
    hand.settle()
    failing_at(hand, stream.partition(1).log.directory)
    request = [RecordRequest(str(number), partition=number % 2) for number in range(4)]
    with pytest.raises(PartlyStored) as raised:
        run(hand, storing(hand, "s", request))
    assert isinstance(raised.value.error, StorageFailed | StorageFull)
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "query_string": b""}
    answer = asyncio.run(answer_to_partly_stored(Request(scope | {"server": ("localhost", 1)}), raised.value))
    problem = json.loads(bytes(answer.body))
    assert problem["type"] == raised.value.error.id
    assert problem["stored"] == [
        {"record": 0, "partition": 0, "offset": 1}, {"record": 2, "partition": 0, "offset": 2},
    ]  # fmt: skip
    hand.files.interfere = None
    assert [record.value for record in read_all(hand, "s", 0)] == ["before", "0", "2"]


def test_where_nothing_was_stored_the_error_is_the_answer() -> None:
    hand = ManualBroker()
    stream = hand.create("s", durability="os")
    hand.produce("s", b"before")
    hand.settle()
    failing_at(hand, stream.partition(0).log.directory)
    with pytest.raises((StorageFailed, StorageFull)):
        run(hand, storing(hand, "s", [RecordRequest("v")]))


def test_all_batches_are_checked_before_the_first_is_appended() -> None:
    hand = ManualBroker()
    hand.create("compacted", partitions=2, cleanup_policy="compact")
    with pytest.raises(BatchInvalid, match="every record needs a key"):
        run(hand, storing(hand, "compacted", [RecordRequest("v", "k", partition=0), RecordRequest("v", partition=1)]))
    hand.create("small", max_message_bytes=200)
    with pytest.raises(BatchTooLarge, match="record 1: it takes"):
        run(hand, storing(hand, "small", [RecordRequest("v"), RecordRequest("v" * 200)]))
    assert hand.values("compacted") == hand.values("small") == []


def test_a_stream_that_is_deleted_meanwhile() -> None:
    hand = ManualBroker()
    hand.create("s")

    async def meanwhile() -> None:
        task = asyncio.ensure_future(storing(hand, "s", [RecordRequest("v")] * 1000))
        await asyncio.sleep(0)
        hand.delete("s")
        with pytest.raises(StreamNotFound, match="deleted meanwhile"):
            await task

    asyncio.run(meanwhile())


def test_the_answer_is_what_json_says_of_it() -> None:
    hand = ManualBroker()
    hand.create("s")
    run(hand, storing(hand, "s", [RecordRequest({"base64": "/w=="}, "k", [("h", None)])]))
    (record,) = read_all(hand, "s", 0)
    wish = msgspec.json.decode(msgspec.json.encode(record), type=RecordRequest)
    assert (wish.value, wish.key, wish.headers, wish.partition) == ({"base64": "/w=="}, "k", [("h", None)], 0)
