"""The progress of the replicas that fetch from this one, from their own reports or from others' reports. Pure."""

from collections.abc import Callable, Collection, Iterable

from duramen.replication.messages import Reach, ReplicationCheckpoint

__all__ = ["FollowerProgress"]


class _Replica:
    """The progress of one replica. `covered` is the synced end; if it is below the log end, a mark measures the lag.

    A mark is an end of the log and the time of this end. A replica that has covered it was caught up at that time. A
    mark is kept until it is reached, so that a replica that follows at some distance is not out of sync. `lacks` says
    whether its state lacks records that its log no longer has; the covered records stay on its disk.
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
    """The replicas' progress since `since_ms` in one leader epoch: within it, no replica loses reported records."""

    __slots__ = ("_observe", "_replicas", "_since_ms")

    def __init__(self, since_ms: int, observe: Callable[[int, int], None] | None = None) -> None:
        """For each mark that a replica reaches, `observe` gets the node id and the latency in ms."""
        self._since_ms = since_ms
        self._observe = observe
        self._replicas: dict[int, _Replica] = {}

    def take_all(self, reaches: Iterable[Reach], log_end: int, now_ms: int) -> bool:
        """Take reports of replicas while the log ends at `log_end`; returns whether any of them has news."""
        news = [self._take(reach, log_end, now_ms) for reach in reaches]
        return any(news)

    def _take(self, reach: Reach, log_end: int, now_ms: int) -> bool:
        """Take a report. Reports under an earlier registration no longer count: the replica may have another disk."""
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
        """Take the older checkpoints of replicas, after their reaches."""
        for node_id, broker_epoch, offset in checkpoints:
            known = self._replicas.get(node_id)
            if known is not None and known.broker_epoch == broker_epoch:
                known.checkpoint = offset

    def checkpoint(self, node_id: int) -> int:
        """The position of the replica's older checkpoint, -1 if unknown."""
        known = self._replicas.get(node_id)
        return -1 if known is None else known.checkpoint

    def checkpoints(self) -> tuple[ReplicationCheckpoint, ...]:
        """All known checkpoints, to be passed on."""
        return tuple(
            ReplicationCheckpoint(node, known.broker_epoch, known.checkpoint)
            for node, known in sorted(self._replicas.items())
            if known.checkpoint >= 0
        )

    def appended(self, log_end: int, now_ms: int) -> None:
        """Note a new log end: replicas that had the whole log get a mark."""
        for known in self._replicas.values():
            if known.mark_end is None:
                known.caught_up_ms = known.mark_ms = now_ms
                known.mark_end = log_end

    def is_stale(self, node_id: int, broker_epoch: int) -> bool:
        """Whether the node has reported under a later registration."""
        known = self._replicas.get(node_id)
        return known is not None and broker_epoch < known.broker_epoch

    def covered(self, node_id: int) -> int:
        """The offset below which all records are on the replica's disk, -1 if unknown."""
        known = self._replicas.get(node_id)
        return -1 if known is None else known.covered

    def broker_epoch(self, node_id: int) -> int:
        """The registration of the replica's last report, -1 without a report."""
        known = self._replicas.get(node_id)
        return -1 if known is None else known.broker_epoch

    def knows_all(self, nodes: Iterable[int]) -> bool:
        """Whether each of these nodes has reported."""
        for node in nodes:
            known = self._replicas.get(node)
            if known is None or known.broker_epoch < 0:
                return False
        return True

    def lacks(self, node_id: int) -> bool:
        """Whether the last report says that the replica's state lacks records that its log no longer has."""
        known = self._replicas.get(node_id)
        return known is not None and known.lacks

    def behind(self, nodes: Iterable[int], offset: int) -> list[int]:
        """The nodes that are not known to have all records below `offset` on disk, or lack a part of their state."""
        known = self._replicas
        return [node for node in nodes if node not in known or known[node].covered < offset or known[node].lacks]

    def lags(self, node_id: int, log_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the replica lacks records and has not caught up for longer than that."""
        if self.covered(node_id) >= log_end:
            return False
        return now_ms - self._caught_up_ms(node_id) > lag_time_max_ms

    def lags_at_ms(self, node_id: int, lag_time_max_ms: int) -> int:
        """The time at which the replica will lag without another report."""
        return self._caught_up_ms(node_id) + lag_time_max_ms + 1

    def reaches(self) -> tuple[Reach, ...]:
        """All known reaches, to be passed on."""
        if not self._replicas:
            return ()
        return tuple(
            Reach(node, known.broker_epoch, -1 if known.lacks else known.covered)
            for node, known in sorted(self._replicas.items())
        )

    def waiting_ms(self, now_ms: int) -> dict[int, int]:
        """The replicas that lack records, with the time since their mark."""
        return {node: now_ms - known.mark_ms for node, known in self._replicas.items() if known.mark_end is not None}

    def heard(self, node_id: int) -> bool:
        """Whether the replica has reported since the last `renew`."""
        known = self._replicas.get(node_id)
        return known is not None and known.heard

    def renew(self) -> None:
        """Require new reports: replicas that reported before now may be gone."""
        for known in self._replicas.values():
            known.heard = False

    def forget(self, others_than: Collection[int]) -> None:
        """Forget all replicas except these."""
        self._replicas = {node: known for node, known in self._replicas.items() if node in others_than}

    def _caught_up_ms(self, node_id: int) -> int:
        known = self._replicas.get(node_id)
        return self._since_ms if known is None else known.caught_up_ms
