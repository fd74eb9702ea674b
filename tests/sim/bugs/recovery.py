"""Bugs of recovery: what a start takes from the disk, and what it forgets."""

from collections.abc import Hashable, Sequence
from typing import Any, Final

from tests.sim.planted import Behind, Bug, Original, Place

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer, FileSystem
from duramen.codec.batch import Header
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ProducerTable
from duramen.storage.log.refused_batches import Refusals
from duramen.storage.log.transactions import TransactionTable
from duramen.storage.maintenance.copier import CopiedBytes, SegmentWrite
from duramen.storage.recovery import logs as recovering_logs
from duramen.storage.recovery import recovery
from duramen.storage.recovery.logs import LogsFound
from duramen.storage.recovery.plan import FileScan, RecoveryVerdict
from duramen.storage.recovery.recovery import Recovered
from duramen.storage.recovery.replay import Replay
from duramen.storage.recovery.trim import Trimming

__all__ = ["RECOVERY_BUGS"]


class _Deaf(Behind):
    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Left out."""
        del position
        return sum(map(len, buffers))


def _untrimmed(_: Original) -> Original:
    def trim(self: Any) -> None:
        """Bytes beyond the checkpointed position stay."""

    return trim


def _bytes_believed(right: Original) -> Original:
    def write_segment(files: FileSystem, write: SegmentWrite) -> CopiedBytes:
        path, end = write.path, write.position + sum(map(len, write.buffers))
        if not files.exists(path + ".log") or files.open(path + ".log").size() < end:
            written: CopiedBytes = right(files, write)
            return written
        file, index_file = files.open(path + ".log"), files.open(path + ".index", create=True)
        believed: CopiedBytes = right(files, write._replace(file=_Deaf(file), index_file=index_file))
        return believed._replace(file=file)

    return write_segment


def _end_at_first_bad(right: Original) -> Original:
    def judge(scans: Sequence[FileScan], replay: int) -> RecoveryVerdict:
        verdict: RecoveryVerdict = right(scans, replay)
        return RecoveryVerdict(verdict.damage[0][0], ()) if verdict.damage else verdict

    return judge


def _forget_producers(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            log.producers = ProducerTable()
        return recovered

    return run


def _take_any_first_sequence(right: Original) -> Original:
    del right

    def _check_unknown(self: ProducerTable, batch: Header) -> None:
        """Whatever the first sequence of a producer is, that is not known."""

    return _check_unknown


def _remember_no_refusal(right: Original) -> Original:
    del right

    def note(self: Refusals, place: Hashable, head: Header, error: DuramenError | None = None) -> None:
        """Nothing is kept of it."""

    return note


def _same_epoch(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        used = [log.takeovers.latest_epoch for log in recovered.logs.values()]
        return recovered._replace(node_epoch=max(used, default=recovered.node_epoch))

    return run


def _leave_uncut(_: Original) -> Original:
    def _cut(self: Any, log: Log, end_offset: int) -> None:
        """The batches behind `end_offset` stay."""

    return _cut


def _leave_undeleted(_: Original) -> Original:
    def delete(self: Any, log: Log) -> None:
        """The log stays, with everything in it."""

    return delete


def _forget_open(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            log.transactions = TransactionTable((), log.transactions.aborted)
        return recovered

    return run


def _forget_aborted(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            log.transactions = TransactionTable(log.transactions.opened())
        return recovered

    return run


RECOVERY_BUGS: Final = (
    Bug(
        "believe-unsynced-bytes",
        "believe bytes of a segment beyond its synced position",
        (
            Place(Trimming, "trim", _untrimmed),
            Place(recovering_logs, "write_segment", _bytes_believed),
        ),
        "recovery does not write again what a segment's file is long enough for",
    ),
    Bug(
        "cut-at-first-bad",
        "cut at the first bad CRC",
        (Place(recovery, "judge", _end_at_first_bad),),
    ),
    Bug(
        "drop-producers",
        "drop producer state on restart",
        (Place(recovery._Recovery, "run", _forget_producers),),
    ),
    Bug(
        "take-any-first-sequence",
        "take the first batch of a producer that is not known with any sequence",
        (
            Place(ProducerTable, "_check_unknown", _take_any_first_sequence),
            Place(Refusals, "note", _remember_no_refusal),
        ),
    ),
    Bug(
        "reuse-epoch",
        "reuse an epoch after a restart",
        (Place(recovery._Recovery, "run", _same_epoch),),
    ),
    Bug(
        "replay-truncated",
        "replay a batch of a truncated log",
        (Place(Replay, "_cut", _leave_uncut),),
    ),
    Bug(
        "replay-deleted",
        "replay a batch of a deleted log",
        (Place(LogsFound, "delete", _leave_undeleted),),
    ),
    Bug(
        "forget-open-transactions",
        "forget on restart which transactions are open",
        (Place(recovery._Recovery, "run", _forget_open),),
        "the last stable offset is the high watermark then",
    ),
    Bug(
        "drop-aborted",
        "drop the list of aborted transactions on restart",
        (Place(recovery._Recovery, "run", _forget_aborted),),
    ),
)
