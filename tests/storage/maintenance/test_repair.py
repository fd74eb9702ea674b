"""A damaged range of a segment is repaired with the right bytes, and with no others."""

import pytest
from tests.storage.maintenance.test_scrubber import checkpointed, scrub
from tests.storage.segment.test_quarantine import readable

from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log
from duramen.storage.maintenance.repair import Patch
from duramen.storage.segment.segment import Segment


def damaged(places: list[int], at: int = 1) -> tuple[StoreOnDoubles, Log, Segment, bytes]:
    """A log with a segment that the scrubber finds damaged at these bytes, and what the segment was before."""
    doubles, log = checkpointed([1000] * 300)
    segment = log.segments[at]
    before = doubles.files.content(f"{segment.path}.log")
    for place in places:
        doubles.files.corrupt(f"{segment.path}.log", place)
    scrub(doubles)
    assert segment.damage
    return doubles, log, segment, before


def repair(doubles: StoreOnDoubles, log: Log, segment: Segment, source: bytes) -> bool:
    """Repair it with the bytes of a whole copy of the segment."""
    patches = [Patch(damage, source[damage.start : damage.end]) for damage in segment.damage]
    done: list[bool] = []
    doubles.store.repairer.repair(log, segment, patches, done.append)
    doubles.settle()
    return done[0]


@pytest.mark.parametrize("cold", [False, True], ids=["the index is in memory", "the index is in its file"])
@pytest.mark.parametrize("places", [[500], [7], [14], [500, 66_000], [500, 70_000, 99_000]])
def test_what_is_repaired_is_read_and_stays_so(places: list[int], cold: bool) -> None:
    doubles, log, segment, before = damaged(places)
    if not cold:
        readable(doubles, log)
    assert repair(doubles, log, segment, before)
    assert segment.damage == []
    assert doubles.store.quarantine.ranges == 0
    assert doubles.metrics.counter("duramen_repaired_ranges_total").value >= 1
    doubles.crash()
    assert doubles.files.content(f"{segment.path}.log") == before
    assert readable(doubles, doubles.log())[1] == []
    assert scrub(doubles) == []


def test_other_bytes_leave_the_range_in_quarantine() -> None:
    doubles, log, segment, before = damaged([500])
    wrong = bytearray(before)
    wrong[510] ^= 1
    assert not repair(doubles, log, segment, bytes(wrong))
    assert segment.damage
    assert readable(doubles, log)[1]


def test_fewer_bytes_are_not_written() -> None:
    doubles, log, segment, before = damaged([500])
    done: list[bool] = []
    patches = [Patch(damage, before[damage.start : damage.end - 1]) for damage in segment.damage]
    doubles.store.repairer.repair(log, segment, patches, done.append)
    doubles.settle()
    assert done == [False]
    assert segment.damage
