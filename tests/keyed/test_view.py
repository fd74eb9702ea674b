"""A view against a stream that is a list: snapshots, changes, compaction, restarts."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keyed.model import BASE, KERNELS, SECRET, NotReadYetError, World, check, whole

from duramen.base.errors import BatchCorrupt, SnapshotNotReached, SnapshotStartOver, SnapshotTooOld
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode, stamp
from duramen.codec.markers import encode_marker
from duramen.keyed import checkpoint
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.kernel import Kernel
from duramen.keyed.latest_files import PartStore
from duramen.keyed.prev import PageStore
from duramen.keyed.view import KeyedView

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: one.name)


def run(chance: Random, kernel: Kernel, steps: int, *, filed: bool = False) -> None:
    """Chance writes, commits, moves S0, compacts, restarts; after each step the promises are looked at.

    With `filed` the table goes into files and back.
    """
    world = World(chance, kernel, keys=chance.choice((3, 20, 200)), page_records=chance.choice((1, 7, 64, 4096)))
    saved: tuple[bytes, PageStore, PartStore] | None = None
    log = LogPositions(b"i" * 16, 3, BASE, 1 << 60, lambda _: 0)
    for step in range(steps):
        match chance.randrange(20 if filed else 17):
            case 12 if world.view.filed is None or world.view.filed.parts:
                saved = b"".join(checkpoint.encode(world.view, log, step)), world.store, world.parts
            case 17 | 18 | 19:
                world.step()
            case 13 if chance.random() < 0.6:
                view = world.new_view() if saved is None or chance.random() < 0.5 else restored(world, log, *saved)
                world.goes_on_with(view)
                saved = None
            case kind:
                take_step(world, kind, step)
        check(world)


def take_step(world: World, kind: int, step: int) -> None:
    """One thing that happens to the stream or its view."""
    chance = world.chance
    match kind:
        case 0 | 1 | 2 | 3:
            world.produce()
        case 4 | 5:
            world.produce(chance.randrange(3))
        case 6:
            world.finish(chance.choice((*world.open, chance.randrange(3))), commit=chance.random() < 0.7)
        case 7 | 8:
            world.apply(None if chance.random() < 0.7 else chance.randint(BASE, world.end))
        case 9 | 14:
            world.move_s0(chance.choice((0, 30, 200)))
        case 10 | 15 | 16:
            world.compact(tombstones_ms=chance.choice((0, 50)), forget=chance.random() < 0.8)
        case 11 if chance.random() < 0.3:
            world.lease(f"lease {step}")
        case 11 if len(world.leases):
            world.leases.remove(chance.choice([one.lease_id for one in world.leases.all()]))


def restored(world: World, log: LogPositions, content: bytes, store: PageStore, parts: PartStore) -> KeyedView:
    """The view of a checkpoint."""
    found, wrong = checkpoint.newest([content], log, world.kernel.hash_id)
    assert found is not None
    assert wrong == []
    return checkpoint.restore(found, world.kernel, store, page_records=world.page_records, parts=parts)


@kernels
@pytest.mark.parametrize("filed", [False, True], ids=["memory", "files"])
@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(15))
def test_what_is_promised_holds(kernel: Kernel, filed: bool, chance: Random) -> None:
    run(Random(chance.random()), kernel, 60, filed=filed)


@pytest.mark.long
@kernels
@pytest.mark.parametrize("filed", [False, True], ids=["memory", "files"])
def test_what_is_promised_holds_for_long(kernel: Kernel, filed: bool) -> None:
    for seed in range(40):
        run(Random(seed), kernel, 120, filed=filed)


@kernels
def test_a_damaged_batch_stops_the_view_before_it(kernel: Kernel) -> None:
    view = KeyedView(kernel, 0, SECRET)
    good = bytes(encode([BatchInput(1, b"a", b"1"), BatchInput(1, b"b", b"2")]))
    bad = bytearray(encode([BatchInput(1, b"a", b"3")], base_offset=2))
    bad[-1] ^= 1
    for _ in range(2):
        with pytest.raises(BatchCorrupt):
            view.apply(good + bytes(bad))
        assert view.position == 2
    view.apply(bytes(encode([BatchInput(1, b"a", b"3")], base_offset=2)))
    assert whole_of(view) == [1, 2]


@kernels
def test_a_transaction_that_is_read_later_counts_at_its_own_marker(kernel: Kernel) -> None:
    view = KeyedView(kernel, 0, SECRET)
    batches = [transactional(8), marker(7), transactional(7), marker(8), marker(7)]
    for offset, batch in enumerate(batches):
        stamp(batch, offset, 0)
    view.apply(bytes(batches[0]))
    tries = iter((False, True))

    def read(first: int, end: int) -> bytes:
        assert (first, end) == (0, 1)
        if not next(tries):
            raise NotReadYetError
        return bytes(batches[0])

    with pytest.raises(NotReadYetError):
        view.apply(b"".join(batches[1:]), read)
    view.apply(b"".join(batches[1:]), read)
    assert view.position == 5
    assert [view.changes(at, at + 1).offsets() for at in range(5)] == [[], [], [], [0], [2]]


def transactional(producer: int) -> bytearray:
    rows = [BatchInput(1, b"%d" % producer, b"1")]
    return encode(rows, producer_id=producer, producer_epoch=0, attributes=TRANSACTIONAL)


def marker(producer: int) -> bytearray:
    return encode_marker(producer, 0, commit=True, coordinator_epoch=0, now_ms=1)


def whole_of(view: KeyedView) -> list[int]:
    return view.snapshot(view.position, 0, view.position).offsets()


def test_snapshots_that_are_not_there_are_refused() -> None:
    view = KeyedView(KERNELS[0], 0, SECRET)
    for offset in range(10):
        view.apply(bytes(encode([BatchInput(1, b"a", None)], base_offset=offset)))
        view.sample(offset)
    view.raise_s0(5)
    view.dropping(0, view.samples.as_of(3))
    assert view.bounds == (5, 10, 4)
    with pytest.raises(SnapshotTooOld):
        view.snapshot(4, 0, 4)
    with pytest.raises(SnapshotNotReached):
        view.snapshot(11, 0, 11)
    with pytest.raises(SnapshotNotReached):
        view.changes(8, 7)
    with pytest.raises(SnapshotStartOver):
        view.changes(3, 7)
    assert view.changes(4, 7).offsets() == [6]


@kernels
def test_keys_that_were_deleted_take_no_room(kernel: Kernel) -> None:
    world = World(Random(1), kernel, keys=500, page_records=64)
    for number in range(1000):
        world.entries.clear()
        data = encode([BatchInput(1, number.to_bytes(2, "big"), None)], base_offset=BASE + number)
        world.view.apply(bytes(data))
    assert len(world.view.latest) == 1000
    before = world.view.memory_bytes
    gone = bytearray(b"\xff" * 124 + b"\0")
    world.view.forget(gone, BASE)
    assert len(world.view.latest) == 8
    assert world.view.memory_bytes < before
    assert whole(world.view, BASE + 1000).offsets() == list(range(BASE + 992, BASE + 1000))
