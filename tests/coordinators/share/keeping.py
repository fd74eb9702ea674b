"""What a broker keeps of share groups, as the shards of the partitions that it leads have it."""

from collections.abc import Callable
from typing import TypeVar, cast

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.coordinators.share.shard import ShareStateShard
from duramen.coordinators.share.state import SHARE_STATE_STREAM, find_state, snapshot_offsets
from duramen.groups.share_records import ShareKey, ShareState
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult

__all__ = ["coordinated", "lags_in_metrics", "partitions_of", "states", "update_measures"]

T = TypeVar("T")


def _each(broker: Broker, query: Callable[[ShareStateShard, StateRows], T]) -> list[T]:
    found = list[T]()
    for partition in broker.streams.get(SHARE_STATE_STREAM).partitions:
        answer: CallbackResult[object] = CallbackResult()
        broker.coordinators.read(SHARE_STATE_STREAM, partition.index, query, answer)
        if not isinstance(answer.calls[0][0], DuramenError):
            found.append(cast("T", answer.value))
    return found


def _states(_: ShareStateShard, rows: StateRows) -> dict[ShareKey, ShareState]:
    return {key: state for key, _ in snapshot_offsets(rows) if (state := find_state(rows, key)) is not None}


def states(broker: Broker) -> dict[ShareKey, ShareState]:
    """The states that it keeps now."""
    return {key: state for one in _each(broker, _states) for key, state in one.items()}


def partitions_of(broker: Broker, group: str) -> dict[str | None, list[int]]:
    """The partitions of a group, by the present names of its topics."""
    found: dict[str | None, list[int]] = {}
    for key in broker.share_groups.keys(group):
        found.setdefault(broker.share_nodes.topics.name_of(key.topic_id), []).append(key.partition)
    return found


def coordinated(broker: Broker) -> dict[str, int]:
    """The newest epochs of groups' coordinators that it remembers."""
    found = _each(broker, lambda shard, _: dict(shard.coordinated))
    return {group: max(one.get(group, -1) for one in found) for group in {group for one in found for group in one}}


def update_measures(broker: Broker, settle: Callable[[], object]) -> None:
    """Update the metrics that are computed on request, as `/metrics` does; `settle` lets all responses arrive."""
    for _ in broker.measures.update():
        pass
    answer: CallbackResult[None] = CallbackResult()
    broker.measures.ask(answer)
    settle()
    assert answer.there


def lags_in_metrics(broker: Broker) -> dict[tuple[str, ...], tuple[float, float | None]]:
    """The lag of groups in records and seconds, by group, stream and partition."""
    computed = broker.metrics.computed()
    seconds = dict(computed["duramen_group_lag_seconds"].samples())
    records = computed["duramen_group_lag_records"].samples()
    return {labels: (value, seconds.get(labels)) for labels, value in records}
