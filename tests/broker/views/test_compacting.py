"""Compaction of keyed streams: what is dead as of S0 goes, tombstones after all that they delete, and nothing else."""

import pytest
from tests.broker.views.test_views import Keyed

from duramen.base.errors import ConfigInvalid
from duramen.codec.batch import BatchInput, encode
from duramen.keyed.leases import Leases, SnapshotLease
from duramen.sim.broker import CallbackResult, ManualBroker

MINUTE_MS = 60_000


def filled(keyed: Keyed, count: int, key: bytes = b"fill") -> None:
    """Records of a key of their own each, which fill segments."""
    for number in range(count):
        keyed.produce((b"%s %d" % (key, number), b"x" * 60))


def test_what_the_active_segment_supersedes_is_dropped_of_old_ones() -> None:
    keyed = Keyed(delete_retention_ms=10**9)
    keyed.produce((b"old", b"1"))
    filled(keyed, 40)
    keyed.hand.advance(MINUTE_MS)
    log = keyed.hand.broker.streams.get("users").partition(0).log
    filled(keyed, 15, b"more")
    keyed.produce((b"old", b"2"))  # it is in the active segment, which compaction does not look at
    last = len(keyed.written) - 1
    assert log.active.base_offset <= last
    keyed.hand.advance(MINUTE_MS)
    assert [record.offset for record in keyed.stored() if record.key == b"old"] == [last]
    keyed.hand.crash()
    keyed.check(len(keyed.written))


def test_a_tombstone_stays_for_its_time_and_goes_after_what_it_deletes() -> None:
    keyed = Keyed(snapshot_retention_ms=1000, delete_retention_ms=20 * MINUTE_MS)
    keyed.produce((b"gone", b"1"))
    filled(keyed, 15)
    keyed.produce((b"gone", None))
    filled(keyed, 15, b"more")
    keyed.hand.advance(5 * MINUTE_MS)
    kept = [record for record in keyed.stored() if record.key == b"gone"]
    assert [record.value for record in kept] == [None], "what it deletes has gone, the tombstone has not"
    keys = keyed.view.facts.keys
    keyed.hand.advance(20 * MINUTE_MS)
    filled(keyed, 15, b"again")  # a round begins where something is dirty
    keyed.hand.advance(5 * MINUTE_MS)
    assert not any(record.key == b"gone" for record in keyed.stored())
    assert keyed.view.facts.keys == keys - 1 + 15, "its key takes no room any more"
    keyed.configure("false")
    keyed.configure("true")  # a view that is made of what is left
    keyed.check(len(keyed.written))


def test_no_snapshot_before_the_one_as_of_which_it_was_compacted_is_opened_by_another_view() -> None:
    keyed = Keyed(snapshot_retention_ms=1000)
    for number in range(30):
        keyed.produce((b"a", b"%d" % number * 30), (b"b%d" % number, b"x" * 30))
    keyed.hand.advance(MINUTE_MS)
    log = keyed.hand.broker.streams.get("users").partition(0).log
    assert log.whole_from == len(keyed.written) > log.cleaned_offset
    keyed.configure("false")
    keyed.hand.crash()
    keyed.configure("true")
    assert keyed.view.bounds.s0 == len(keyed.written)
    keyed.check(len(keyed.written))


def test_a_stream_with_records_without_a_key_is_not_made_keyed_and_the_first_is_named() -> None:
    hand = ManualBroker({"log.cleaner.backoff.ms": 1000})
    partition = hand.create("users", partitions=2, segment_bytes=700).partition(1)
    for key in (b"a", b"b", None, b"c", None):
        written: CallbackResult[int] = CallbackResult()
        partition.append(
            encode([BatchInput(hand.clock.wall_ms(), b"k", b"v"), BatchInput(hand.clock.wall_ms(), key, b"x" * 90)]),
            written,
        )
        hand.settle()
        assert written.value >= 0

    def changed(**config: str) -> BaseException | None:
        answer: CallbackResult[None] = CallbackResult()
        hand.broker.configure_stream("users", {name.replace("_", "."): value for name, value in config.items()}, answer)
        hand.settle()
        return answer.error

    assert changed(cleanup_policy="compact", min_cleanable_dirty_ratio="0") is None
    refused = changed(keyed="true")
    assert isinstance(refused, ConfigInvalid)
    assert "offset 5 of partition 1 of users has none" in str(refused)
    for _ in range(6):
        partition.append(encode([BatchInput(hand.clock.wall_ms(), b"k", b"x" * 300)]), CallbackResult())
        hand.settle()
    hand.advance(MINUTE_MS)
    assert changed(keyed="true") is None, "compaction has removed them"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_leases_hold_what_they_show(seed: int) -> None:
    from random import Random

    from tests.keyed.model import KERNELS, World, check

    chance = Random(seed)
    world = World(chance, KERNELS[seed % len(KERNELS)], keys=5, page_records=7)
    held: Leases = world.leases
    for step in range(80):
        world.produce()
        world.apply()
        if chance.random() < 0.3:
            held.put(SnapshotLease(f"{step}", {0: chance.randint(world.view.s0, world.view.position)}, 1 << 60))
        if len(held) > 3:
            held.remove(held.all()[0].lease_id)
        world.move_s0(0)
        world.compact(tombstones_ms=0)
        check(world)
