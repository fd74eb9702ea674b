"""A node's knowledge of the partitions of a snapshot: leaders, committed offsets, and the newest commit markers."""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, OffsetNotAvailable
from duramen.base.ids import StreamId
from duramen.broker.partition import Partition
from duramen.coordinators.transaction.cluster.requests import FIND_COMMITS, CommitsFound, FindCommits, FoundCommits
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.markers import MarkedTransactions, find_marked
from duramen.rpc.server import Done, RpcServer

__all__ = ["CommitSurvey", "has_transactions"]

_MOST_MARKERS: Final = 100_000

_Found = Callable[[FoundCommits], None]


class CommitSurvey:
    """Responds for the replicas of this node."""

    def __init__(self, places: TransactionDependencies, server: RpcServer) -> None:
        self._places = places
        server.handle(FIND_COMMITS, self._find)

    def _find(self, request: FindCommits, done: Done[CommitsFound]) -> None:
        results, count = dict[int, FoundCommits](), len(request.partitions)
        parts = Countdown(lambda: done(CommitsFound(tuple(results[at] for at in range(count)))), count + 1)

        def found(at: int, one: FoundCommits) -> None:
            results[at] = one
            parts.count_down()

        for at, (stream_id, index, marked_from) in enumerate(request.partitions):
            partition = self._partition(StreamId(bytes=stream_id), index)
            if partition is None:
                found(at, FoundCommits(-1, why="a node does not know the partition yet"))
            else:
                self._look(partition, marked_from, partial(found, at))
        parts.count_down()

    def _partition(self, stream_id: StreamId, index: int) -> Partition | None:
        stream = self._places.streams.find_id(stream_id)
        return None if stream is None or index >= len(stream.partitions) else stream.partitions[index]

    def _look(self, partition: Partition, marked_from: int, found: _Found) -> None:
        epoch = partition.leader_epoch
        try:
            partition.check_leads()
            if partition.role is not None and partition.role.latest_offset is None:
                raise OffsetNotAvailable(f"what is committed in {partition.log.key} is not known yet")
            if marked_from < 0:
                found(_led(partition, epoch, partition.log.high_watermark, ()))
            else:
                done = partial(_marked, partition, epoch, marked_from, found)
                find_marked(self._places.store, partition, marked_from, _MOST_MARKERS, done)
        except DuramenError as error:
            found(FoundCommits(epoch, transactional=has_transactions(partition), why=str(error)))


def has_transactions(partition: Partition) -> bool:
    """Whether its log has, or had, records of a transaction."""
    transactions = partition.log.transactions
    return transactions.marked_offset > 0 or bool(transactions.opened())


def _led(partition: Partition, epoch: int, end: int, commits: tuple[tuple[int, int], ...]) -> FoundCommits:
    in_sync = tuple(sorted(partition.in_sync))
    return FoundCommits(epoch, end, has_transactions(partition), in_sync, commits)


def _marked(
    partition: Partition, epoch: int, marked_from: int, found: _Found, answer: MarkedTransactions | DuramenError
) -> None:
    why = ""
    if isinstance(answer, DuramenError):
        found(FoundCommits(epoch, why=str(answer)))
        return
    if partition.leader_epoch != epoch or not partition.leads:
        why = f"another node now leads {partition.log.key}"
    elif answer.next_offset < answer.high_watermark:
        why = f"{partition.log.key} has more than {_MOST_MARKERS} markers"
    elif partition.log.cleaned_offset > marked_from:
        why = f"markers of {partition.log.key} may be compacted away already"
    if why:
        found(FoundCommits(epoch, why=why))
        return
    commits = tuple((one.offset, one.sequence) for one in answer.ended if one.commit)
    found(_led(partition, epoch, answer.high_watermark, commits))
