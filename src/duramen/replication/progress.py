"""The progress of the replicas that fetch from this one, first-hand or as others report it. Pure."""

from collections.abc import Callable, Collection, Iterable

from duramen.replication.messages import Reach, ReplicationCheckpoint

__all__ = ["FollowerProgress"]


class _Replica:
    """`covered` is what is on its disk. Where that is less than the log, it is measured against a mark.

    A mark is an end of the log and the time at which that was the end; who has covered it was caught up then. One mark
    is kept until it is reached, so that a replica is not out of sync for following at some distance.
    `lacks` says whether its state lacks what its log no longer has: what it covered stays on its disk.
    """

    __slots__ = ("broker_epoch", "caught_up_ms", "checkpoint", "covered", "heard", "lacks", "mark_end", "mark_ms")

    def __init__(self, broker_epoch: int, covered: int, now_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.covered = covered
        self.checkpoint = -1
        self.heard = True
        self.lacks = False
        self.caught_up_ms = now_ms
        self.mark_end: int | None = None
        self.mark_ms = now_ms


class FollowerProgress:
    """What is known since `since_ms`, in one leader epoch: in it no replica has ever less on disk than it said."""

    __slots__ = ("_observe", "_replicas", "_since_ms")

    def __init__(self, since_ms: int, observe: Callable[[int, int], None] | None = None) -> None:
        """`observe` is told, of each mark that a replica reaches, its node id and the time that it took, in ms."""
        self._since_ms = since_ms
        self._observe = observe
        self._replicas: dict[int, _Replica] = {}

    def take_all(self, reaches: Iterable[Reach], log_end: int, now_ms: int) -> bool:
        """Replicas say how far they are, while the log ends at `log_end`; whether any of it is news."""
        news = [self._take(reach, log_end, now_ms) for reach in reaches]
        return any(news)

    def _take(self, reach: Reach, log_end: int, now_ms: int) -> bool:
        """What a replica said under an earlier registration does not count any more: it may have another disk."""
        known = self._replicas.get(reach.node_id)
        if known is not None and reach.broker_epoch < known.broker_epoch:
            return False
        news = known is None or reach.broker_epoch > known.broker_epoch or reach.covered > known.covered
        if known is None or reach.broker_epoch > known.broker_epoch:
            since_ms = self._since_ms if known is None else known.caught_up_ms
            known = self._replicas[reach.node_id] = _Replica(reach.broker_epoch, reach.covered, since_ms)
        lacks = reach.covered < 0
        news, known.heard, known.lacks = news or not known.heard or lacks != known.lacks, True, lacks
        known.covered = max(known.covered, reach.covered)
        if known.mark_end is not None and known.covered >= known.mark_end:
            known.caught_up_ms, known.mark_end = known.mark_ms, None
            if self._observe is not None:
                self._observe(reach.node_id, now_ms - known.mark_ms)
        if known.covered >= log_end:
            known.caught_up_ms = now_ms
        elif known.mark_end is None:
            known.mark_end, known.mark_ms = log_end, now_ms
        return news

    def take_checkpoints(self, checkpoints: Iterable[ReplicationCheckpoint]) -> None:
        """Replicas, whose reaches were taken before, say where their older checkpoints are."""
        for node_id, broker_epoch, offset in checkpoints:
            known = self._replicas.get(node_id)
            if known is not None and known.broker_epoch == broker_epoch:
                known.checkpoint = offset

    def checkpoint(self, node_id: int) -> int:
        """The position of its older checkpoint, -1 where nothing is known."""
        known = self._replicas.get(node_id)
        return -1 if known is None else known.checkpoint

    def checkpoints(self) -> tuple[ReplicationCheckpoint, ...]:
        """All that is known of checkpoints, to be passed on."""
        return tuple(
            ReplicationCheckpoint(node, known.broker_epoch, known.checkpoint)
            for node, known in sorted(self._replicas.items())
            if known.checkpoint >= 0
        )

    def appended(self, log_end: int, now_ms: int) -> None:
        """The log ends there now: who had all of it until now has something to catch up with."""
        for known in self._replicas.values():
            if known.mark_end is None:
                known.caught_up_ms = known.mark_ms = now_ms
                known.mark_end = log_end

    def is_stale(self, node_id: int, broker_epoch: int) -> bool:
        """Whether the node has been heard under a later registration."""
        known = self._replicas.get(node_id)
        return known is not None and broker_epoch < known.broker_epoch

    def covered(self, node_id: int) -> int:
        """The offset below which all is on its disk, -1 where nothing is known."""
        known = self._replicas.get(node_id)
        return -1 if known is None else known.covered

    def broker_epoch(self, node_id: int) -> int:
        """The registration under which it was last heard, -1 where it was not."""
        known = self._replicas.get(node_id)
        return -1 if known is None else known.broker_epoch

    def knows_all(self, nodes: Iterable[int]) -> bool:
        """Whether each of these was heard."""
        for node in nodes:
            known = self._replicas.get(node)
            if known is None or known.broker_epoch < 0:
                return False
        return True

    def lacks(self, node_id: int) -> bool:
        """Whether it said last that its state lacks what its log no longer has."""
        known = self._replicas.get(node_id)
        return known is not None and known.lacks

    def behind(self, nodes: Iterable[int], offset: int) -> list[int]:
        """Which of these are not known to have all below `offset` on their disks, or lack a part of their state."""
        known = self._replicas
        return [node for node in nodes if node not in known or known[node].covered < offset or known[node].lacks]

    def lags(self, node_id: int, log_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it lacks something and has not caught up for that long."""
        if self.covered(node_id) >= log_end:
            return False
        return now_ms - self._caught_up_ms(node_id) > lag_time_max_ms

    def lags_at_ms(self, node_id: int, lag_time_max_ms: int) -> int:
        """When it will lag if nothing comes from it until then."""
        return self._caught_up_ms(node_id) + lag_time_max_ms + 1

    def reaches(self) -> tuple[Reach, ...]:
        """All that is known, to be passed on."""
        if not self._replicas:
            return ()
        return tuple(
            Reach(node, known.broker_epoch, -1 if known.lacks else known.covered)
            for node, known in sorted(self._replicas.items())
        )

    def waiting_ms(self, now_ms: int) -> dict[int, int]:
        """Who has something to catch up with, and for how long."""
        return {node: now_ms - known.mark_ms for node, known in self._replicas.items() if known.mark_end is not None}

    def heard(self, node_id: int) -> bool:
        """Whether something was heard of it since the last `renew`."""
        known = self._replicas.get(node_id)
        return known is not None and known.heard

    def renew(self) -> None:
        """Who was heard before now may be gone."""
        for known in self._replicas.values():
            known.heard = False

    def forget(self, others_than: Collection[int]) -> None:
        """Forget all but those."""
        self._replicas = {node: known for node, known in self._replicas.items() if node in others_than}

    def _caught_up_ms(self, node_id: int) -> int:
        known = self._replicas.get(node_id)
        return self._since_ms if known is None else known.caught_up_ms
