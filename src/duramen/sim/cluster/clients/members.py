"""Members of a classic group of a cluster: they join, assign, commit offsets of their partitions, and leave.

The coordinator may change at any time, and a deposed one may not know it yet. The stored state binds all of them: a
generation of which a member learned an assignment stays, and members of earlier ones lose nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from duramen.base.errors import (
    DuramenError,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from duramen.coordinators.group.classic import LeavingMember
from duramen.coordinators.group.kinds import CommitMember
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import JoinRequest, SyncRequest
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.checkers.memberships import GroupModel
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.cluster.clients.transactors import READ_TOPIC
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["MEMBERS_GROUP", "PARTITIONS", "REBALANCE_MS", "SESSION_MS", "ClusterGroupMember"]

MEMBERS_GROUP: Final = "members"

PARTITIONS: Final = 4
SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 800
_JOIN_AGAIN: Final = (IllegalGeneration, RebalanceInProgress, UnknownMember)


class ClusterGroupMember(CoordinatedClient):
    """A client, and its membership; `group` has the responses to all of them."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int, group: GroupModel) -> None:
        super().__init__(calls, seed, think_us)
        self._group = group
        self._forget()

    def _forget(self) -> None:
        """It is not a member."""
        self._id = ""
        self._generation = -1
        self._members: tuple[str, ...] = ()  # of the generation, where it is to assign
        self._owned: list[int] | None = None  # None before the first response

    @property
    def _me(self) -> CommitMember:
        return CommitMember(self._id, None, self._generation)

    @property
    def generation(self) -> int:
        """The generation in which it knows its partitions; -1 without one."""
        return -1 if self._owned is None else self._generation

    @property
    def owned(self) -> list[int]:
        """Its partitions, as far as it knows."""
        return self._owned or []

    def step(self) -> None:
        self.of_group(MEMBERS_GROUP, self._act)

    def _act(self, place: PartitionId, node_id: int) -> None:
        if self._generation < 0:
            self._join(place, node_id)
        elif self._owned is None:
            self._sync(place, node_id)
        else:
            self.take_part(place, node_id)

    def take_part(self, place: PartitionId, node_id: int) -> None:
        """Act as a member that knows its partitions."""
        steps = [self._commit] * 4 + [self.heartbeat] * 4 + [self._join, self._leave, self._vanish]
        self.chance.choice(steps)(place, node_id)

    def _ask(
        self, place: PartitionId, node_id: int, what: str, ask: Callable[[Broker, Reply], None],
        then: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """Find the coordinator; `then` is called with a successful response."""

        def answered(value: Any) -> None:
            if self._is_refused(place, what, value):
                self.next(20_000)
            else:
                then(value)
                self.next()

        self.calls.ask(node_id, ask, answered)

    def _is_refused(self, place: PartitionId, what: str, value: Any) -> bool:
        if not isinstance(value, DuramenError):
            return False
        self.calls.trace("%s of %s: %s: %s", what, self._id or "nobody", type(value).__name__, value)
        if isinstance(value, _JOIN_AGAIN):
            member_id = "" if isinstance(value, UnknownMember) else self._id
            self._forget()
            self._id = member_id
        elif not self.refused(place, value) and not isinstance(value, MemberIdRequired):
            raise BrokenPromise(f"{what} of {self._id} is refused with {type(value).__name__}: {value}")
        return True

    # -- coming and going ---------------------------------------------------------------------------

    def _join(self, place: PartitionId, node_id: int) -> None:
        self._generation, self._owned = -1, None
        new: list[str] = []

        def ask(broker: Broker, reply: Reply) -> None:
            new.append(broker.groups.new_member_id("member"))
            request = JoinRequest(
                self._id, None, new[0], True, "member", "client", SESSION_MS, REBALANCE_MS, "consumer",
                [("range", b"")],
            )  # fmt: skip

            def done(value: Any) -> None:
                if isinstance(value, MemberIdRequired):
                    self._id = new[0]
                reply(value)

            broker.groups.join(MEMBERS_GROUP, request, done)

        def joined(value: Any) -> None:
            self._id, self._generation, self._owned = value.member_id, value.generation, None
            leads = value.leader_id == value.member_id
            self._members = tuple(one.member_id for one in value.members) if leads else ()
            self.calls.trace("%s is in generation %d, with %s", self._id, self._generation, self._members)

        self._ask(place, node_id, "a join", ask, joined)

    def _sync(self, place: PartitionId, node_id: int) -> None:
        assignments: list[tuple[str, bytes]] = []
        generation, member_id = self._generation, self._id
        if self._members:
            order = self.chance.sample(self._members, len(self._members))
            owned: dict[str, list[str]] = {member: [] for member in order}
            for partition in range(PARTITIONS):
                owned[order[partition % len(order)]].append(str(partition))
            assignments = [(member, ",".join(names).encode()) for member, names in owned.items()]
            self._group.gives(generation, dict(assignments))

        def ask(broker: Broker, reply: Reply) -> None:
            request = SyncRequest(member_id, None, generation, "consumer", "range", assignments)
            broker.groups.sync(MEMBERS_GROUP, request, reply)

        def synced(value: Any) -> None:
            names = value.assignment.decode().split(",") if value.assignment else []
            self.calls.trace("%s owns %s in generation %d", member_id, names, generation)
            self._group.synced(generation, member_id, value.assignment, names)
            self._owned = [int(name) for name in names]

        self._ask(place, node_id, "a sync", ask, synced)

    def heartbeat(self, place: PartitionId, node_id: int) -> None:
        me = self._me

        def ask(broker: Broker, reply: Reply) -> None:
            broker.groups.heartbeat(MEMBERS_GROUP, me, reply)

        self._ask(place, node_id, "a heartbeat", ask, lambda _: None)

    def _leave(self, place: PartitionId, node_id: int) -> None:
        leaving = [LeavingMember(self._id, None)]
        self._forget()

        def ask(broker: Broker, reply: Reply) -> None:
            broker.groups.leave(MEMBERS_GROUP, leaving, reply)

        self._ask(place, node_id, "the leaving", ask, lambda _: None)

    def _vanish(self, place: PartitionId, node_id: int) -> None:
        """The client ends without a word, and another takes its place."""
        del place, node_id
        self._forget()
        self.next()

    # -- offsets ------------------------------------------------------------------------------------

    def _commit(self, place: PartitionId, node_id: int) -> None:
        if not self._owned:
            self.next()
            return
        key = OffsetKey(MEMBERS_GROUP, READ_TOPIC, self.chance.choice(self._owned))
        bookmark = self.calls.bookmarks.of(key)
        offset, me, assigned = bookmark.sent(), self._me, self._group.assigned
        committed = [(key, CommittedOffset(offset, -1, "", self.calls.true.wall_ms()))]

        def ask(broker: Broker, reply: Reply) -> None:
            def done(results: list[DuramenError | None] | DuramenError) -> None:
                reply(results if isinstance(results, DuramenError) else results[0])

            broker.groups.commit(MEMBERS_GROUP, me, committed, done)

        def stored(_: Any) -> None:
            self.calls.trace("%s commits %d of %d in generation %d", me.member_id, offset, key.partition, me.generation)
            self._group.accepted("a commit", me.generation, assigned)
            bookmark.acknowledged(offset)

        self._ask(place, node_id, "a commit", ask, stored)
