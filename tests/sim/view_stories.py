"""Short stories of views of keyed streams: each goes well as it is, and badly with one of the planted bugs."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from tests.coordinators.transaction.transacting import Writer, broker_for

from duramen.base.errors import SnapshotNotReached
from duramen.broker.views.files import ViewFiles
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.keyed import checkpoint
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.plain import PLAIN
from duramen.keyed.view import KeyedView
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.disk import MemoryFileSystem

__all__ = ["VIEW_STORIES"]

_SECRET: Final = bytes(16)


def _view(*keys: bytes) -> KeyedView:
    view = KeyedView(PLAIN, 0, _SECRET)
    view.apply(bytes(encode([BatchInput(0, key, b"") for key in keys])))
    return view


def _log(end_offset: int) -> LogPositions:
    return LogPositions(bytes(16), 0, 0, end_offset, lambda _: 0)


def a_batch_is_written_and_not_committed() -> None:
    hand = ManualBroker()
    partition = hand.create("users", keyed="true").partition(0)
    view = hand.broker.views.get(hand.broker.streams.get("users"), 0)

    def append() -> None:
        answer: CallbackResult[int] = CallbackResult()
        partition.append(encode([BatchInput(0, b"k", b"")]), answer)
        hand.worker.run_soon()

    append()
    synced = hand.worker.start("sync")
    append()
    synced()
    hand.worker.run_soon()
    while hand.worker.step("disk") or hand.worker.step("read"):
        pass
    assert partition.log.end_offset > partition.log.high_watermark
    assert view.bounds.position == partition.log.high_watermark


def a_superseded_record_is_shown_by_an_older_snapshot() -> None:
    view = _view(b"k", b"k")
    view.raise_s0(1)
    assert view.dropping(0).stays(0, tombstone=False)


def a_tombstone_is_young() -> None:
    view = _view(b"k")
    view.raise_s0(1)
    assert view.dropping(0).stays(0, tombstone=True)


def changes_are_read_to_their_end() -> None:
    assert _view(b"a", b"b").changes(0, 2).offsets() == [0, 1]


def the_log_is_shorter_than_its_view() -> None:
    content = b"".join(checkpoint.encode(_view(b"a", b"b"), _log(2), 1))
    assert checkpoint.newest([content], _log(2), PLAIN.hash_id)[0] is not None
    assert checkpoint.newest([content], _log(1), PLAIN.hash_id)[0] is None


def a_view_is_loaded_again() -> None:
    disk, view = MemoryFileSystem(), _view(b"a", b"b")
    view.raise_s0(2)
    files = ViewFiles(disk, "keyed/view")
    files.load(PLAIN, _log(2), _SECRET, anew=True)
    files.save(view, _log(2))
    assert ViewFiles(disk, "keyed/view").load(PLAIN, _log(2), _SECRET, anew=False).view.s0 == 2


def a_transaction_is_open() -> None:
    view = _view()
    open_batch = encode([BatchInput(0, b"k", b"")], producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL)
    view.apply(bytes(open_batch))
    assert view.snapshot(1, 0, 1).offsets() == []


def a_view_is_behind_where_a_transaction_ends() -> None:
    hand = broker_for()
    stream = hand.create("users", 2, keyed="true")
    writer = Writer(hand, "writer", 2)
    for index in range(2):
        writer.write_keyed("users", index, (b"k", b"v"))
        hand.settle()
    views = [hand.broker.views.get(stream, index) for index in range(2)]
    before: CallbackResult[list[int]] = CallbackResult()
    hand.broker.snapshot_vectors.aim(views, before)
    writer.end(commit=True)
    seen = set[int]()
    while (lane := next((lane for lane, jobs in hand.worker.jobs.items() if jobs), None)) or hand.worker.actions:
        if hand.worker.actions:
            hand.worker.actions.popleft()()
        elif lane:
            hand.worker.start(lane)()
        with suppress(SnapshotNotReached):
            found = hand.broker.snapshot_vectors.newest(views, None)
            seen.add(sum(at > 1 for at in found))
    assert 1 not in seen


VIEW_STORIES: Final[Mapping[str, Callable[[], None]]] = {
    "supersede-uncommitted": a_batch_is_written_and_not_committed,
    "drop-shown": a_superseded_record_is_shown_by_an_older_snapshot,
    "drop-tombstone": a_tombstone_is_young,
    "end-increment-early": changes_are_read_to_their_end,
    "view-ahead": the_log_is_shorter_than_its_view,
    "s0-falls": a_view_is_loaded_again,
    "cut-transaction": a_view_is_behind_where_a_transaction_ends,
    "count-before-marker": a_transaction_is_open,
}
