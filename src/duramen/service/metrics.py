"""Broker metrics that are computed on request and otherwise cost nothing."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Final

from duramen.base.countdown import Countdown
from duramen.base.metrics import Metrics, Sample
from duramen.base.ports import Clock
from duramen.broker.streams import BrokerStreams, Stream
from duramen.broker.views.running_view import RunningView
from duramen.broker.views.views import KeyedViews
from duramen.coordinators.group.coordinator import Coordinator
from duramen.coordinators.group.lag import Lags
from duramen.coordinators.queue.shard import QueueShard
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.share.lag import ShareLags
from duramen.coordinators.transaction.coordinator import Transactions
from duramen.queues.totals import ShardTotals
from duramen.storage.log.log import Log

__all__ = ["Measures"]


_OF_VIEWS: Final[Mapping[str, Callable[[RunningView], float]]] = {
    "keys": lambda view: view.facts.keys,
    "superseded_records": lambda view: view.facts.superseded,
    "position": lambda view: view.facts.position,
    "lag_records": lambda view: view.lag,
    "oldest_snapshot": lambda view: view.bounds.s0,
    "memory_bytes": lambda view: view.facts.memory_bytes,
    "table_file_bytes": lambda view: view.facts.file_bytes,
    "bytes_per_key": lambda view: round(view.facts.bytes_per_key, 1),
    "stands": lambda view: bool(view.facts.problem),
}


class Measures:
    """The series of the streams, their logs, the groups and the transactions. Nothing here reads a disk."""

    def __init__(
        self,
        streams: BrokerStreams,
        groups: Coordinator,
        transactions: Transactions,
        lags: Lags,
        share_lags: ShareLags,
        clock: Clock,
        metrics: Metrics,
        views: KeyedViews,
        coordinators: Runtime,
    ) -> None:
        self._streams = streams
        self._groups = groups
        self._transactions = transactions
        self._clock = clock
        self._lags = lags
        self._share_lags = share_lags
        self._views = views
        self._coordinators = coordinators
        metrics.compute("duramen_records_in_total", lambda: self._of_streams(lambda stream: stream.records_in.value))
        metrics.compute("duramen_bytes_in_total", lambda: self._of_streams(lambda stream: stream.bytes_in.value))
        metrics.compute("duramen_records_out_total", lambda: self._of_streams(lambda stream: stream.records_out.value))
        metrics.compute("duramen_bytes_out_total", lambda: self._of_streams(lambda stream: stream.bytes_out.value))
        metrics.compute("duramen_log_start_offset", lambda: self._of_logs(lambda log: log.start_offset))
        metrics.compute("duramen_log_end_offset", lambda: self._of_logs(lambda log: log.high_watermark))
        for name, value in _OF_VIEWS.items():
            metrics.compute(f"duramen_view_{name}", partial(self._of_views, value))
        metrics.compute("duramen_rows_damaged_total", lambda: [((), coordinators.states.damages)])
        metrics.compute("duramen_states_lost", lambda: [((), len(coordinators.losses))])
        metrics.compute("duramen_queue_shard_entries", lambda: self._of_shards(lambda totals: totals.entries))
        metrics.compute("duramen_queue_shard_bytes", lambda: self._of_shards(lambda totals: totals.bytes))
        metrics.compute("duramen_log_bytes", lambda: self._of_logs(Log.size_bytes))
        metrics.compute("duramen_transactions_open", lambda: [((), len(transactions.open_since_ms()))])
        metrics.compute("duramen_transaction_longest_open_seconds", self._longest_open)
        metrics.compute(
            "duramen_group_lag_records", lambda: chain(lags.records(), share_lags.records()), self._lags_left_out
        )  # fmt: skip
        metrics.compute(
            "duramen_group_lag_seconds", lambda: chain(lags.seconds(), share_lags.seconds()), self._lags_left_out
        )  # fmt: skip

    def update(self) -> Iterator[None]:
        """Update computed metrics step by step, so that other work runs in between."""
        self._groups.measure()
        yield
        yield from self._lags.measure()
        yield from self._share_lags.measure()

    def ask(self, done: Callable[[None], None]) -> None:
        """After `update`: fetch metrics of other nodes; `done(None)` once they have responded, or at the deadline."""
        both = Countdown(lambda: done(None), 2)
        self._lags.ask(lambda _: both.count_down())
        self._share_lags.ask(lambda _: both.count_down())

    def _lags_left_out(self) -> int:
        return self._lags.left_out + self._share_lags.left_out

    def _longest_open(self) -> Iterator[Sample]:
        now_ms = self._clock.wall_ms()
        since_ms = min(self._transactions.open_since_ms(), default=now_ms)
        yield (), max(0, now_ms - since_ms) / 1000

    def _ordered(self) -> Iterator[Stream]:
        # The broker's own come last: where not everything is shown, people's streams are.
        streams = list(self._streams)
        yield from (stream for stream in streams if not stream.internal)
        yield from (stream for stream in streams if stream.internal)

    def _of_streams(self, value: Callable[[Stream], float]) -> Iterator[Sample]:
        for stream in self._ordered():
            yield (stream.name,), value(stream)

    def _of_logs(self, value: Callable[[Log], float]) -> Iterator[Sample]:
        for stream in self._ordered():
            for partition in list(stream.partitions):
                yield (stream.name, str(partition.index)), value(partition.log)

    def _of_shards(self, value: Callable[[ShardTotals], float]) -> Iterator[Sample]:
        for stream in self._ordered():
            for shard in range(stream.shards):
                found: QueueShard | None = self._coordinators.loaded(stream.name, shard)
                totals = None if found is None else found.known_totals(self._coordinators.rows(stream.name, shard))
                if totals is not None:
                    yield (stream.name, str(shard)), value(totals)

    def _of_views(self, value: Callable[[RunningView], float]) -> Iterator[Sample]:
        for stream in self._ordered():
            for partition in list(stream.partitions) if stream.keyed else ():
                view = self._views.find(partition, stream)
                if view is not None:
                    yield (stream.name, str(partition.index)), value(view)
