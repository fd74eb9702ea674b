"""The metadata log on the storage, with writes that still wait there."""

from duramen.base.errors import DuramenError
from duramen.controller.quorum.entries import written
from duramen.controller.quorum.log import MetadataLog
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import NO_VOTERS
from duramen.sim.machine.store import StoreOnDoubles


def test_it_begins_anew_behind_what_still_waits_to_be_written() -> None:
    store = StoreOnDoubles()
    log, answers = store.log(), list[DuramenError | None]()
    metadata = MetadataLog(store.store, log, store.clock, 1 << 20)
    other = store.log(1)
    while not store.backlogged:
        store.append(other, b"x" * 1000)
    for offset in range(3):
        metadata.append(written(EntryBatch(1, offset, 1, None, NO_VOTERS), 1, NO_VOTERS, 0), answers.append)
    assert log.end_offset == 0
    metadata.restart(EpochEnd(1, 5), answers.append)
    while len(answers) < 4:
        store.advance(1000)
    assert answers[-1] is None
    assert (log.start_offset, log.end_offset, metadata.end) == (5, 5, EpochEnd(1, 5))
