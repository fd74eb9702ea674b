"""Membership in a consumer group: the classic protocol, blocking and without a thread.

The user of a `GroupMembership` calls `heartbeat` between its other work, more often than the session timeout. If the
heartbeat reports that the membership is over (the group rebalances, or has removed the silent member), finished work is
committed if the group still accepts it, and `join` gets a new assignment.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from duramen.base.errors import (
    DuramenError,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    ServerUnreachable,
    UnknownMember,
)
from duramen.client.answers import PASSING, failure
from duramen.client.assignors import ASSIGNORS
from duramen.client.cluster import BrokerCluster, RetryPatience, TopicPartition
from duramen.client.coordinator import NOBODY, Generation, GroupCoordinatorClient
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.membership import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["GroupMembership"]

_TYPE: Final = "consumer"
_COUNTS_S: Final = 10.0  # how often the leader looks whether its topics have more partitions
_OUTSIDE: Final = (UnknownMember, IllegalGeneration, RebalanceInProgress)


class GroupMembership:
    """One member of a consumer group. Not thread-safe, as the cluster that it uses."""

    def __init__(
        self,
        cluster: BrokerCluster,
        group: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_ms: int = 3_000,
    ) -> None:
        """The group gives the member up after `session_timeout_ms` without a heartbeat.

        It waits `rebalance_timeout_ms` at most for the member to join again.
        """
        self._cluster = cluster
        self._coordinator = GroupCoordinatorClient(cluster, group)
        self._topics = list(topics)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_s = heartbeat_ms / 1000
        self._member = NOBODY
        self._joined = False
        self._next_heartbeat = 0.0
        self._counts: dict[str, int] = {}  # of a leader: what the shares were made from
        self._next_counts = 0.0
        self.assigned: tuple[TopicPartition, ...] = ()
        """The member's partitions since it joined."""

    @property
    def identity(self) -> Generation:
        """Its identity in the group; no member id before it has joined."""
        return self._member

    # -- membership ---------------------------------------------------------------------------------

    def join(self) -> None:
        """Join the group, waiting for the other members.

        Raises InconsistentProtocol, GroupFull, GroupIdInvalid …; ServerUnreachable once the timeout is over.
        """
        patience = RetryPatience(self._cluster.timeout_s)
        while not self._joined:
            try:
                error = self._join()
            except MemberIdRequired as given:
                self._member = Generation(-1, given.member_id)
            except _OUTSIDE as outside:
                if isinstance(outside, UnknownMember):
                    self._member = NOBODY
                patience = RetryPatience(self._cluster.timeout_s)
            except ServerUnreachable as lost:
                patience.pause(lost)
            else:
                if error is not None:
                    self._coordinator.forget()
                    patience.pause(error)

    def _join(self) -> DuramenError | None:
        """One attempt; returns why another one may do better. Raises as `join`, MemberIdRequired, or those outside."""
        wait_s = self._rebalance_timeout_ms / 1000
        metadata = encode_subscription(self._topics)
        asked = {
            "group_id": self._coordinator.group,
            "session_timeout_ms": self._session_timeout_ms,
            "rebalance_timeout_ms": self._rebalance_timeout_ms,
            "member_id": self._member.member_id,
            "protocol_type": _TYPE,
            "protocols": [{"name": name, "metadata": metadata} for name in ASSIGNORS],
        }
        joined = self._coordinator.ask(ApiKey.JOIN_GROUP, asked, wait_s=wait_s)
        if joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
            raise MemberIdRequired(joined["member_id"])
        if (error := self._passing(joined)) is not None:
            return error
        self._member = Generation(joined["generation_id"], joined["member_id"])
        shares: list[dict[str, object]] = []
        self._counts = {}
        if joined["leader"] == self._member.member_id and not joined["skip_assignment"]:
            shares = self._share_out(joined)
        asked = {
            "group_id": self._coordinator.group,
            "generation_id": self._member.number,
            "member_id": self._member.member_id,
            "protocol_type": _TYPE,
            "protocol_name": joined["protocol_name"],
            "assignments": shares,
        }
        synced = self._coordinator.ask(ApiKey.SYNC_GROUP, asked, wait_s=wait_s)
        if (error := self._passing(synced)) is not None:
            return error
        self.assigned = tuple(
            TopicPartition(topic, index)
            for topic, indexes in decode_assignment(synced["assignment"]).items()
            for index in indexes
        )
        self._joined = True
        self._next_heartbeat = time.monotonic() + self._heartbeat_s
        return None

    def _share_out(self, joined: Message) -> list[dict[str, object]]:
        """As the leader: everybody's partitions."""
        wanted = {member["member_id"]: set(decode_subscription(member["metadata"])) for member in joined["members"]}
        self._counts = self._count_partitions(sorted(set[str]().union(*wanted.values())))
        self._next_counts = time.monotonic() + _COUNTS_S
        shares: list[dict[str, object]] = []
        for member_id, ats in ASSIGNORS[joined["protocol_name"]](wanted, self._counts).items():
            by_topic: dict[str, list[int]] = {}
            for at in ats:
                by_topic.setdefault(at.topic, []).append(at.partition)
            shares.append({"member_id": member_id, "assignment": encode_assignment(by_topic)})
        return shares

    def _count_partitions(self, topics: Sequence[str]) -> dict[str, int]:
        return {name: len(topic.leaders) for name, topic in self._cluster.topics(topics).items()}

    def heartbeat(self) -> bool:
        """Send a heartbeat if one is due; False if it has to `join` again. Raises ServerUnreachable …"""
        now = time.monotonic()
        if not self._joined or now < self._next_heartbeat:
            return self._joined
        asked = {
            "group_id": self._coordinator.group,
            "generation_id": self._member.number,
            "member_id": self._member.member_id,
        }
        try:
            error = self._passing(self._coordinator.ask(ApiKey.HEARTBEAT, asked))
        except _OUTSIDE as outside:
            self._outside(outside)
            return False
        if error is not None:
            self._coordinator.forget()
        self._next_heartbeat = now + self._heartbeat_s
        if self._counts and now >= self._next_counts:
            self._next_counts = now + _COUNTS_S
            self._joined = self._count_partitions(list(self._counts)) == self._counts
        return self._joined

    def leave(self) -> None:
        """Leave, so that the others need not wait for the session timeout. Errors are ignored."""
        if self._member.member_id:
            asked = {
                "group_id": self._coordinator.group,
                "member_id": self._member.member_id,
                "members": [{"member_id": self._member.member_id}],
            }
            with contextlib.suppress(DuramenError):
                self._coordinator.ask(ApiKey.LEAVE_GROUP, asked)
        self._joined = False
        self._member = NOBODY
        self.assigned = ()

    def _outside(self, error: DuramenError) -> None:
        self._joined = False
        if isinstance(error, UnknownMember):
            self._member = NOBODY

    def _passing(self, answer: Message) -> DuramenError | None:
        """None where nothing failed, or why to ask again; raises what will not pass."""
        code = answer["error_code"]
        if code == ErrorCode.NONE:
            return None
        error = failure(code, f"group {self._coordinator.group}")
        if code not in PASSING:
            raise error
        return error

    # -- offsets ------------------------------------------------------------------------------------

    def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets in the assigned partitions; those without one are omitted.

        Raises ServerUnreachable or the broker's error, once the timeout is over.
        """
        return self._coordinator.committed(self.assigned) if self.assigned else {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets; False if the group no longer accepts them from this member.

        Raises ServerUnreachable or the broker's error, once the timeout is over.
        """
        if not offsets:
            return True
        if not self._member.member_id:
            return False
        try:
            self._coordinator.commit(offsets, self._member)
        except _OUTSIDE as outside:
            self._outside(outside)
            return False
        return True
