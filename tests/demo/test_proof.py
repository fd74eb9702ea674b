import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DemoFailed
from duramen.demo.digest import fingerprint
from duramen.demo.member import MemberPartition
from duramen.demo.proof import prove

PARTITIONS = 3
Read = tuple[int, int, int]  # partition, offset, number of the flight


def mark(number: int) -> bytes:
    return fingerprint(b"flight-%d" % number, b"flights.EWR.UA", b"{}")


class Passage:
    """Flights that were published, stored and read; tests change what was read."""

    def __init__(self, count: int, seed: int = 0) -> None:
        chance = random.Random(seed)
        ends = [0] * PARTITIONS
        self.fingerprints = [mark(number) for number in range(count)]
        self.places: list[tuple[int, int]] = []
        for _ in range(count):
            partition = chance.randrange(PARTITIONS)
            self.places.append((partition, ends[partition]))
            ends[partition] += 1
        self.reads: list[list[Read]] = [[], []]
        for number, place in enumerate(self.places):
            self.reads[chance.randrange(2)].append((*place, number))

    def prove(self) -> list[tuple[int, int, int, bool, int]]:
        partitions, offsets = [place[0] for place in self.places], [place[1] for place in self.places]
        members = [_parts(reads) for reads in self.reads]
        proofs = prove(self.fingerprints, partitions, offsets, members, PARTITIONS)
        return [
            (one.partition, one.acknowledged, one.read, one.digest_in == one.digest_out, one.read_again)
            for one in proofs
        ]


def _parts(reads: Sequence[Read]) -> dict[int, MemberPartition]:
    parts: dict[int, MemberPartition] = {}
    for partition, offset, number in reads:
        part = parts.setdefault(partition, MemberPartition(array("q"), array("q"), bytearray()))
        part.offsets.append(offset)
        part.numbers.append(number)
        part.fingerprints += mark(number)
    return parts


@given(st.integers(0, 60), st.integers(0, 1000), st.data())
def test_holds_whoever_has_read_what_how_often(count: int, seed: int, data: st.DataObject) -> None:
    passage = Passage(count, seed)
    again = data.draw(st.lists(st.sampled_from(range(count)), max_size=20)) if count else []
    for number in again:
        passage.reads[number % 2].append((*passage.places[number], number))
    proofs = passage.prove()
    assert sum(read for _, _, read, _, _ in proofs) == count
    assert sum(read_again for *_, read_again in proofs) == len(again)
    assert all(acknowledged == read and same for _, acknowledged, read, same, _ in proofs)


def test_one_that_was_not_read_is_missing() -> None:
    passage = Passage(30)
    partition, offset, number = passage.reads[0].pop()
    expected = f"flight {number} was acknowledged at partition {partition}, offset {offset}, and it is not there"
    with pytest.raises(DemoFailed, match=expected):
        passage.prove()


def test_one_that_was_stored_twice_is_named() -> None:
    passage = Passage(30)
    partition, offset, number = passage.reads[0][0]
    passage.reads[1].append((partition, 1000, number))
    place = f"partition {partition}, offset"
    expected = f"flight {number} is there twice: at {place} {offset} and at {place} 1000"
    with pytest.raises(DemoFailed, match=expected):
        passage.prove()


def test_one_that_lies_elsewhere_than_was_acknowledged_is_named() -> None:
    passage = Passage(30)
    partition, offset, number = passage.reads[0].pop()
    passage.reads[0].append((partition, 1000, number))
    place = f"partition {partition}, offset"
    expected = f"flight {number} was acknowledged at {place} {offset}, and it is at {place} 1000"
    with pytest.raises(DemoFailed, match=expected):
        passage.prove()


def test_an_offset_that_holds_something_else_after_the_crash_is_named() -> None:
    passage = Passage(30)
    partition, offset, number = passage.reads[0][0]
    passage.reads[1].append((partition, offset, number + 1))
    with pytest.raises(DemoFailed, match=f"partition {partition}, offset {offset} held one flight before the crash"):
        passage.prove()


def test_what_nobody_published_is_noticed() -> None:
    passage = Passage(30)
    passage.reads[0].append((1, 1000, -1))
    with pytest.raises(DemoFailed, match=r"partition 1: .* went in, .* came out"):
        passage.prove()


def test_another_content_is_noticed() -> None:
    passage = Passage(30)
    passage.fingerprints[7] = mark(1007)
    with pytest.raises(DemoFailed, match=f"partition {passage.places[7][0]}: .* with digest .* came out"):
        passage.prove()
