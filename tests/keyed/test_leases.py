"""Leases, S0, and until when tombstones are kept."""

from random import Random

import pytest

from duramen.base.errors import SnapshotLeaseExpired, SnapshotLeaseNotFound
from duramen.keyed.compaction import Dropping, next_s0, tombstone_bound
from duramen.keyed.leases import Leases, SnapshotLease
from duramen.keyed.samples import PositionSample, Samples


def test_the_oldest_lease_holds_back() -> None:
    chance, leases, model = Random(2), Leases(), dict[str, SnapshotLease]()
    for step in range(400):
        now_ms = 10 * step
        if chance.random() < 0.6:
            lease = SnapshotLease(f"{chance.randrange(40)}", {0: step, 1: step % 7}, now_ms + chance.randrange(1, 900))
            leases.put(lease)
            model[lease.lease_id] = lease
        elif model:
            name = chance.choice(sorted(model))
            assert leases.remove(name) == model.pop(name)
        over = {name for name, lease in model.items() if lease.expires_ms <= now_ms}
        assert leases.next_end_ms() == min((lease.expires_ms for lease in model.values()), default=None)
        assert {lease.lease_id for lease in leases.over(now_ms)} == over
        for name in over:
            leases.expire(name, model.pop(name).expires_ms)
        for partition in (0, 1):
            expected = min((lease.positions[partition] for lease in model.values()), default=None)
            assert leases.oldest(partition) == expected
        assert {lease.lease_id for lease in leases.all()} == model.keys()
        assert len(leases) == len(model)
    assert leases.oldest(2) is None


def test_a_lease_that_is_over_says_since_when() -> None:
    leases = Leases()
    leases.put(SnapshotLease("a", {0: 5}, 1000))
    assert leases.get("a", 999).positions == {0: 5}
    for _ in range(2):
        with pytest.raises(SnapshotLeaseExpired, match="ended 3 s ago"):
            leases.get("a", 4000)
        leases.expire("a", 1000)
    with pytest.raises(SnapshotLeaseNotFound, match="there is no lease b"):
        leases.get("b", 0)
    assert (leases.expired(1000), leases.expired(1001), leases.first_expired_ms()) == ([], ["a"], 1000)
    leases.forget("a")
    assert leases.empty
    with pytest.raises(SnapshotLeaseNotFound):
        leases.get("a", 4000)


def test_s0_never_falls_and_passes_nobody() -> None:
    assert next_s0(5, 9, None, 20) == 9
    assert next_s0(5, 9, 7, 20) == 7
    assert next_s0(5, 9, None, 6) == 6
    assert next_s0(5, 3, None, 20) == 5
    assert next_s0(5, 9, 2, 20) == 5


def test_samples_are_bounded_and_answer_like_a_list() -> None:
    samples, every = Samples(3), list[PositionSample]()
    for at in range(2000):
        every.append(PositionSample(7 * at, 10 + at, 8 + at))
        samples.add(every[-1])
        samples.add(PositionSample(7 * at, 5, 5))
    assert len(samples.rows()) <= 1024
    for time_ms in range(0, 14_000, 333):
        found = samples.as_of(time_ms)
        assert found in every or found == PositionSample(0, 3, 3)
        assert time_ms - 28 <= found.time_ms <= time_ms
    assert samples.at(9) == PositionSample(0, 3, 3)
    assert samples.at(1500).position in range(1496, 1501)
    before = samples.as_of(7000)
    samples.drop_before(7000)
    assert samples.rows()[0] == before == samples.as_of(7000)


def test_tombstones_wait_for_readers_and_for_older_segments() -> None:
    samples = Samples(0)
    for at in range(1, 10):
        samples.add(PositionSample(100 * at, 10 * at, 10 * at - 2))
    assert tombstone_bound(samples, 600, 100, 80, []) == PositionSample(500, 50, 48)
    assert tombstone_bound(samples, 600, 100, 30, []) == PositionSample(300, 30, 28)
    assert tombstone_bound(samples, 600, 100, 80, [80, 45]) == PositionSample(400, 40, 38)
    assert tombstone_bound(samples, 600, 100, 80, [0]).position == 0


def test_what_stays() -> None:
    dropping = Dropping(8, 24, bytes((0b0000_1111, 0b1111_0000)), tombstones_below=10)
    assert [offset for offset in range(6, 26) if dropping.stays(offset, tombstone=False)] == [
        6, 7, 8, 9, 10, 11, 20, 21, 22, 23, 24, 25,
    ]  # fmt: skip
    assert not dropping.stays(9, tombstone=True)
    assert dropping.stays(10, tombstone=True)
    for first in range(30):
        for end in range(first, 30):
            gone = sum(not dropping.stays(offset, tombstone=False) for offset in range(first, end))
            assert dropping.dead(first, end) == gone
