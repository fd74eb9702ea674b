"""The coordinator of a consumer group or transactional id: finding it, requests to it, committed offsets."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from duramen.base.errors import DuramenError, ServerUnreachable
from duramen.base.ids import Position
from duramen.client.answers import PASSING, failure
from duramen.client.cluster import BrokerCluster, RetryPatience, TopicPartition
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["NOBODY", "TRANSACTIONS", "Generation", "GroupCoordinatorClient"]

_GROUPS: Final = 0
TRANSACTIONS: Final = 1
"""The kind of coordinator that transactional ids have."""

_WHAT: Final = {_GROUPS: "group", TRANSACTIONS: "transactional id"}

_T = TypeVar("_T")


class Generation(NamedTuple):
    """The identity of a group member: its member id and generation."""

    number: int
    member_id: str


class _Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


NOBODY = Generation(-1, "")
"""Somebody who is no member: may commit while the group has none."""


class GroupCoordinatorClient:
    """The coordinator of a consumer group, or of another `kind`. Not thread-safe, like its cluster."""

    def __init__(self, cluster: BrokerCluster, group: str, *, kind: int = _GROUPS) -> None:
        self.group = group
        self._kind = kind
        self._cluster = cluster
        self._node_id: int | None = None

    def ask(self, api: ApiKey, message: Mapping[str, object], *, wait_s: float = 0.0) -> Message:
        """Send a request to it; the response may have an error code that requires `forget`.

        Raises ServerUnreachable, or the error about the group's id.
        """
        node_id = self._find()
        try:
            return self._cluster.node(node_id).request(api, message, wait_s=wait_s)
        except ServerUnreachable:
            self.forget()
            raise

    def forget(self) -> None:
        """Look the coordinator up again on next use."""
        self._node_id = None

    def _find(self) -> int:
        patience = RetryPatience(self._cluster.timeout_s)
        while self._node_id is None:
            asked = {"key": self.group, "key_type": self._kind, "coordinator_keys": [self.group]}
            found = self._cluster.ask(ApiKey.FIND_COORDINATOR, asked)
            coordinator = found["coordinators"][0] if found["coordinators"] else found
            code = coordinator["error_code"]
            if code == ErrorCode.NONE:
                self._cluster.learn(coordinator["node_id"], coordinator["host"], coordinator["port"])
                self._node_id = coordinator["node_id"]
                break
            error = failure(code, f"{_WHAT[self._kind]} {self.group}", coordinator["error_message"])
            if code not in PASSING:
                raise error
            patience.pause(error)
        return self._node_id

    # -- offsets ------------------------------------------------------------------------------------

    def committed(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of the group, for partitions that have one.

        Raises ServerUnreachable or the broker's error, once the timeout is over.
        """
        return {at: found.offset for at, found in self._asked(wanted).items()}

    def metadata(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The metadata of these committed offsets. Raises as `committed`."""
        return {at: found.metadata for at, found in self._asked(wanted).items()}

    def positions(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """These offsets, each with the leader epoch that was committed with it, or -1. Raises as `committed`."""
        return {at: Position(found.leader_epoch, found.offset) for at, found in self._asked(wanted).items()}

    def _asked(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, _Committed]:
        topics = _by_topic((at, at.partition) for at in wanted)
        asked_topics = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
        asked = {
            "group_id": self.group,
            "topics": asked_topics,
            "groups": [{"group_id": self.group, "member_id": None, "topics": asked_topics}],
        }
        patience = RetryPatience(self._cluster.timeout_s)
        while True:
            found: dict[TopicPartition, _Committed] = {}
            error = self._committed(asked, found)
            if error is None:
                return found
            patience.pause(error)

    def _committed(self, asked: Message, found: dict[TopicPartition, _Committed]) -> DuramenError | None:
        try:
            answer = self.ask(ApiKey.OFFSET_FETCH, asked)
        except ServerUnreachable as lost:
            return lost
        group = answer["groups"][0] if answer["groups"] else answer
        codes = [group["error_code"]]
        for topic in group["topics"]:
            for partition in topic["partitions"]:
                codes.append(partition["error_code"])
                if partition["committed_offset"] >= 0:
                    at = TopicPartition(topic["name"], partition["partition_index"])
                    found[at] = _Committed(
                        partition["committed_offset"], partition["committed_leader_epoch"], partition["metadata"] or ""
                    )
        return self._passing(codes)

    def commit(
        self, offsets: Mapping[TopicPartition, int], member: Generation = NOBODY, *, metadata: str = "",
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Commit offsets, with metadata and the leader epochs of the previous records.

        Raises UnknownMember, IllegalGeneration or RebalanceInProgress if the group does not accept them from `member`;
        ServerUnreachable or another error of the broker, once the timeout is over.
        """
        topics: dict[str, list[dict[str, Any]]] = _by_topic(
            (
                at,
                {
                    "partition_index": at.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": leader_epochs.get(at, -1),
                    "committed_metadata": metadata,
                },
            )
            for at, offset in offsets.items()
        )
        asked = {
            "group_id": self.group,
            "generation_id_or_member_epoch": member.number,
            "member_id": member.member_id,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        }
        patience = RetryPatience(self._cluster.timeout_s)
        while (error := self._commit(asked)) is not None:
            patience.pause(error)

    def _commit(self, asked: Message) -> DuramenError | None:
        try:
            answer = self.ask(ApiKey.OFFSET_COMMIT, asked)
        except ServerUnreachable as lost:
            return lost
        return self._passing(
            [partition["error_code"] for topic in answer["topics"] for partition in topic["partitions"]]
        )

    def _passing(self, codes: Iterable[int]) -> DuramenError | None:
        """None where nothing failed, or why to ask again; raises what will not pass."""
        failed = [code for code in codes if code != ErrorCode.NONE]
        if not failed:
            return None
        error = failure(failed[0], f"group {self.group}")
        if failed[0] not in PASSING:
            raise error
        self.forget()
        return error


def _by_topic(pairs: Iterable[tuple[TopicPartition, _T]]) -> dict[str, list[_T]]:
    topics: dict[str, list[_T]] = {}
    for at, one in pairs:
        topics.setdefault(at.topic, []).append(one)
    return topics
