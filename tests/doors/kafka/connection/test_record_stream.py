"""How an answer with records goes to the socket: whole, in order, and with few calls."""

import asyncio
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from duramen.base.errors import LogDamaged
from duramen.base.ports import Buffer
from duramen.doors.kafka.connection.cold_reads import ColdReads
from duramen.doors.kafka.connection.record_stream import Records, Streaming
from duramen.doors.kafka.request.exchange import StreamedAnswer
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import StoreLimits

ROOMY = StoreLimits(
    wal_file_bytes=1 << 20, wal_max_bytes=16 << 20, pending_bytes=8 << 20, copy_bytes=8 << 20, copy_interval_ms=1000
)
PIECE = 128 * 1024


class Socket(asyncio.Transport):
    """Notes what each call hands over. `patience`: after so many calls it takes nothing for a moment."""

    def __init__(self, patience: int = 1 << 30) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.calls: list[bytes] = []
        self.given: list[Buffer] = []
        self.aborted = False
        self._patience = self._left = patience

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        given = list(list_of_data)
        self.given += given
        self.calls.append(b"".join(given))
        self._left -= 1

    def abort(self) -> None:
        self.aborted = True

    def takes_more(self) -> bool:
        return self._left > 0 and not self.aborted

    def rested(self) -> None:
        self._left = self._patience


def logs(sizes: list[list[int]], *, copied: bool) -> StoreOnDoubles:
    """A log for each list of the sizes of its batches, in files or in memory only."""
    doubles = StoreOnDoubles(ROOMY)
    chance = random.Random(7)
    for number, batches in enumerate(sizes):
        log = doubles.log(number, LogConfig())
        for size in batches:
            doubles.append(log, chance.randbytes(size))
    doubles.settle()
    if copied:
        doubles.advance(1000)
    return doubles


def sent(
    doubles: StoreOnDoubles, parts: list[Buffer | Slice], socket: Socket, *, pieces_are_copied: bool = False
) -> None:
    """Send an answer of these parts to its end."""
    records = SimpleNamespace(
        broker=SimpleNamespace(store=doubles.store),
        cold_reads=ColdReads(doubles.store, doubles.clock, doubles.deadlines, 1.0),
        piece_bytes=lambda *, cold: PIECE * (4 if cold else 1),
        pieces_are_copied=pieces_are_copied,
    )
    streaming = Streaming(cast("Records", records))
    streaming.begin(StreamedAnswer(iter(parts)))

    def go_on() -> None:
        if not streaming.waits and streaming.answer is not None and socket.takes_more():
            streaming.send(socket, socket.takes_more, go_on)

    for _ in range(10_000):
        if streaming.answer is None or socket.aborted:
            return
        socket.rested()
        go_on()
        doubles.settle()
    pytest.fail("the answer does not end")


def whole(doubles: StoreOnDoubles, log: Log) -> Slice:
    slice_ = doubles.plan(log, 0, 1 << 30)
    assert slice_ is not None
    return slice_


@pytest.mark.parametrize("copied", [False, True])
def test_small_records_of_many_partitions_go_with_one_call(*, copied: bool) -> None:
    doubles = logs([[100, 200]] * 50, copied=copied)
    parts: list[Buffer | Slice] = [b"head"]
    expected = b"head"
    for number in range(50):
        log = doubles.log(number)
        expected += doubles.bytes_of(whole(doubles, log)) + b"between"
        parts += (whole(doubles, log), b"between")
    socket = Socket()
    sent(doubles, parts, socket)
    assert socket.calls == [expected]


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("patience", [1, 3, 1000])
def test_an_answer_goes_out_whole_and_in_order_in_pieces_of_a_bounded_size(
    *, copied: bool, cold: bool, patience: int
) -> None:
    chance = random.Random(patience)
    sizes = [[chance.choice((50, 3_000, 70_000, 400_000)) for _ in range(chance.randint(1, 6))] for _ in range(12)]
    doubles = logs(sizes, copied=copied)
    parts: list[Buffer | Slice] = [b"head"]
    expected = b"head"
    for number in range(len(sizes)):
        log = doubles.log(number)
        expected += doubles.bytes_of(whole(doubles, log)) + b"between"
        parts += (whole(doubles, log), b"between")
    doubles.files.cold = cold
    socket = Socket(patience)
    sent(doubles, parts, socket)
    assert b"".join(socket.calls) == expected
    largest = PIECE * (4 if cold else 1)
    assert max(map(len, socket.calls)) <= 1.5 * largest + 1000
    assert b"" not in socket.calls
    if not cold:
        assert b"between" not in socket.calls, "what lies between the records of partitions has no call of its own"


@pytest.mark.parametrize("copied", [False, True])
def test_sockets_that_must_not_keep_whole_batches_get_bytes_of_their_own(*, copied: bool) -> None:
    doubles = logs([[1_000_000, 300, 1_000_000]], copied=copied)
    slice_ = whole(doubles, doubles.log(0))
    expected = b"head" + doubles.bytes_of(whole(doubles, doubles.log(0))) + b"end"
    socket = Socket()
    sent(doubles, [b"head", slice_, b"end"], socket, pieces_are_copied=True)
    assert b"".join(socket.calls) == expected
    assert all(isinstance(given, bytes) for given in socket.given)


def test_what_is_damaged_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    doubles = logs([[1000], [1000]], copied=True)
    first, second = whole(doubles, doubles.log(0)), whole(doubles, doubles.log(1))
    damaged = doubles.bytes_of(whole(doubles, doubles.log(1)))
    piece = Slice.piece

    def broken(slice_: Slice, max_bytes: int, *, alone: bool = False) -> list[Buffer] | Blocked:
        if slice_ is second:
            raise LogDamaged("no sound batch lies here")
        return piece(slice_, max_bytes, alone=alone)

    monkeypatch.setattr(Slice, "piece", broken)
    socket = Socket()
    sent(doubles, [b"head", first, b"between", second, b"end"], socket)
    assert socket.aborted
    assert damaged not in b"".join(socket.calls)
    assert b"end" not in b"".join(socket.calls)
