"""Steps about records: producing, fetching, offsets by time and epoch, deleting."""

from typing import Any

from tests.differential.batches import STEP_MS, batch, damaged, produce_step
from tests.differential.drawing import Drawing, Making, Step
from tests.differential.peer import CLOSED, Beside, Symbol

from duramen.codec.batch import batches
from duramen.codec.kafka.versions import ApiKey

__all__ = ["Records"]


class Records:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [
            (20, self._produce), (14, self._fetch), (8, self._list_offsets), (4, self._epochs),
            (4, self._delete_records), (1, self._produce_strictly),
        ]  # fmt: skip

    def _produce(self) -> Step:
        whole = batch(self._draw, self._draw.number(1, 6))
        records = bytes(whole) if self._draw.often() else damaged(self._draw, whole)
        acks = 1 if self._draw.sometimes(0.3) else -1
        return produce_step(self._draw, self._draw.name(), self._draw.partition(), records, acks)

    def _produce_strictly(self) -> Step:
        """To a topic that wants more replicas than there are."""
        return produce_step(self._draw, "strict", 0, bytes(batch(self._draw, 1)))

    def _fetch(self) -> Step:
        version = self._draw.version(ApiKey.FETCH)
        name = self._draw.name()
        topic: dict[str, Any] = {"topic": name, "topic_id": Symbol("topic_id", name)}
        offset = self._draw.number(20) if self._draw.often() else self._draw.one(-1, 1000, 0)
        topic["partitions"] = [
            {
                "partition": self._draw.partition(),
                "fetch_offset": offset,
                "partition_max_bytes": self._draw.one(1, 300, 1 << 20),
            }
        ]
        wish = {
            "replica_id": -1, "max_wait_ms": 1, "min_bytes": self._draw.one(0, 1),
            "max_bytes": self._draw.one(1, 1 << 24), "isolation_level": self._draw.number(2), "topics": [topic],
            "session_id": 0, "session_epoch": -1,
        }  # fmt: skip
        return Step(ApiKey.FETCH, version, wish, finish=lambda _, answer: _with_what_is_ahead(answer))

    def _list_offsets(self) -> Step:
        version = self._draw.version(ApiKey.LIST_OFFSETS)
        specials = [-1, -2]
        specials += [-3] if version >= 7 else []
        specials += [-4] if version >= 8 else []
        specials += [-5] if version >= 9 else []
        stamp = self._draw.chance.choice(specials)
        if self._draw.sometimes(0.5):
            stamp = self._draw.began_ms + self._draw.number(200 * STEP_MS)
        elif not self._draw.often():
            stamp = self._draw.one(-6, -3, -4, 1 << 60, 0)
        partition = {"partition_index": self._draw.partition(), "timestamp": stamp}
        topics = [{"name": self._draw.name(), "partitions": [partition]}]
        wish = {"replica_id": -1, "isolation_level": self._draw.number(2), "topics": topics}
        return Step(ApiKey.LIST_OFFSETS, version, wish)

    def _epochs(self) -> Step:
        name, index = self._draw.name(), self._draw.partition()
        now = Symbol("leader_epoch", f"{name}/{index}")
        partition = {
            "partition": index,
            "current_leader_epoch": -1
            if self._draw.often()
            else self._draw.one(now, Beside(now, 1), -2),  # nothing is before Apache Kafka's first epoch, 0
            "leader_epoch": self._draw.one(now, now, Beside(now, 1), 1 << 30, -1),
        }
        wish = {"replica_id": -1, "topics": [{"topic": name, "partitions": [partition]}]}
        return Step(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._draw.version(ApiKey.OFFSET_FOR_LEADER_EPOCH), wish)

    def _delete_records(self) -> Step:
        partition = {"partition_index": self._draw.partition(), "offset": self._draw.one(-1, 0, 1, 2, 5, 100, -2)}
        wish = {"topics": [{"name": self._draw.name(), "partitions": [partition]}], "timeout_ms": 30_000}
        return Step(ApiKey.DELETE_RECORDS, self._draw.version(ApiKey.DELETE_RECORDS), wish)


def _with_what_is_ahead(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with the aborted transactions that begin behind the records sent apart: only their number."""
    if answer == CLOSED:
        return answer
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            heads = [head for _, head in batches(partition["records"] or b"")]
            last = max((head.base_offset + head.last_offset_delta for head in heads), default=-1)
            aborted = partition["aborted_transactions"]
            if aborted is not None:
                told = [one for one in aborted if one["first_offset"] <= last]
                partition |= {"aborted_transactions": told, "aborted_ahead": len(aborted) - len(told)}
    return answer
