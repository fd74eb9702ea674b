"""What a consumer is told when the disk does not give what it asked for, and what the broker does about its state."""

import errno
import os

from duramen.base.errors import LogDamaged, StorageFailed
from duramen.sim.broker import ManualBroker

_RECORDS = 200


def _filled() -> tuple[ManualBroker, str]:
    """A stream of two hundred records of 1 kB in one segment, none of it in memory."""
    hand = ManualBroker()
    log = hand.create("read").partition(0).log
    for number in range(_RECORDS):
        hand.produce("read", b"%03d" % number + b"." * 997)
    hand.settle()
    hand.advance(61_000)
    hand.restart()
    hand.files.cold = True
    return hand, log.active.path + ".log"


def test_a_fetch_that_fails_to_read_is_told_and_the_next_one_is_served() -> None:
    hand, path = _filled()
    failing = 1

    def interfere(call: str, read: str, size: int) -> int:
        nonlocal failing
        if call == "read" and read == path and failing:
            failing -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    hand.files.interfere = interfere
    # Near the end: to find it the segment has to be read.
    answer, _ = hand.fetch(("read", 0, _RECORDS - 10))
    hand.settle()
    error = answer.value[0].error
    assert isinstance(error, StorageFailed)
    assert "reading failed" in str(error)
    assert len(hand.values("read")) == _RECORDS


def test_a_fetch_of_what_is_damaged_is_told_and_everything_around_it_is_served() -> None:
    hand, path = _filled()
    size = hand.files.open(path).size() // _RECORDS
    hand.files.corrupt(path, 150 * size + 500)
    served: set[int] = set()
    refused: set[int] = set()
    for offset in range(_RECORDS):
        for _ in range(2):  # what is found while an answer is sent is told to the next fetch
            answer, _ = hand.fetch(("read", 0, offset), partition_bytes=1)
            hand.settle()
            found = answer.value[0]
            if found.error is not None:
                assert isinstance(found.error, LogDamaged)
                assert path in str(found.error)
                refused.add(offset)
                break
            try:
                records = hand.read(found.slice)
            except LogDamaged:
                continue
            assert records[0].offset == offset
            served.add(offset)
            break
    assert refused == {150}
    assert served == set(range(_RECORDS)) - {150}
