"""One consumer group under Kafka's classic protocol: joining, assigning, heartbeats, leaving.

A group is told what happens and what time it is, and answers with effects: replies to requests that waited,
and the wish to have its state stored. It never looks at a clock and never waits; `next_deadline_ms` says when
it wants to be told that time has passed. Sources: the Kafka protocol guide; KIP-62 (rebalance timeout), KIP-134
(initial delay), KIP-345 (static members), KIP-394 (member ids), KIP-800 (reasons), KIP-814 (skipping assignment).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from duramen.base.errors import (
    DuramenError,
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)

__all__ = [
    "Effect",
    "Group",
    "GroupSnapshot",
    "GroupState",
    "JoinRequest",
    "JoinResult",
    "Member",
    "MemberSnapshot",
    "Reply",
    "Store",
    "SyncRequest",
    "SyncResult",
    "Token",
]

Token = Any
"""Whatever the caller wants back with a reply."""


class GroupState(StrEnum):
    """Kafka's names of the states."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FOLLOWING: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}

_HEARTBEAT_ERROR: Final[dict[GroupState, type[DuramenError] | None]] = {
    GroupState.EMPTY: UnknownMember,
    GroupState.PREPARING: RebalanceInProgress,
    GroupState.COMPLETING: None,
    GroupState.STABLE: None,
    GroupState.DEAD: UnknownMember,
}

_COMMIT_ERROR: Final[dict[GroupState, type[DuramenError] | None]] = {
    GroupState.EMPTY: None,
    GroupState.PREPARING: None,
    GroupState.COMPLETING: RebalanceInProgress,
    GroupState.STABLE: None,
    GroupState.DEAD: UnknownMember,
}


class JoinRequest(NamedTuple):
    """A member wants in, or in again. `new_member_id` is what it is called if it has no id yet."""

    member_id: str
    instance_id: str | None
    new_member_id: str
    id_required: bool  # the member can be asked to join again with its id (KIP-394)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    can_skip_assignment: bool = False


class MemberSubscription(NamedTuple):
    """What the group's leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a join that succeeded; `members` is filled for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    member_id: str
    members: tuple[MemberSubscription, ...]
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A member asks for its assignment; the leader brings everybody's."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Sequence[tuple[str, bytes]]


class SyncResult(NamedTuple):
    """The answer to a sync that succeeded."""

    protocol_type: str
    protocol: str
    assignment: bytes


class Reply(NamedTuple):
    """Answer the request that came with `token`."""

    token: Token
    result: JoinResult | SyncResult | DuramenError


class Store(NamedTuple):
    """Store the group as it is in `snapshot`, then say so with `stored`."""

    snapshot: "GroupSnapshot"


Effect = Reply | Store


class MemberSnapshot(NamedTuple):
    """A member as it is stored and described."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """A group as it is stored and described."""

    generation: int
    protocol_type: str
    protocol: str | None
    leader_id: str | None
    members: tuple[MemberSnapshot, ...]


class Member:
    """A member and the request of its that waits, if any."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_ms",
        "id",
        "instance_id",
        "joining",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, request: JoinRequest, now_ms: int) -> None:
        self.id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = list(request.protocols)
        self.assignment = b""
        self.joining: Token | None = None
        self.syncing: Token | None = None
        self.expires_ms = now_ms + self.session_timeout_ms

    def update(self, request: JoinRequest) -> None:
        """Take over what a join says anew."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = list(request.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's subscription under a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def waits(self) -> bool:
        """A member whose request waits here is alive."""
        return self.joining is not None or self.syncing is not None


class Group:
    """The state machine. Every method that takes `now_ms` may leave effects; `take_effects` hands them over."""

    def __init__(self, group_id: str, *, initial_delay_ms: int = 3000, max_size: int = (1 << 31) - 1) -> None:
        self.id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self._initial_delay_ms = initial_delay_ms
        self._max_size = max_size
        self._static: dict[str, str] = {}  # member ids by group.instance.id
        self._pending: dict[str, int] = {}  # ids given out and not joined with yet, with when they lapse
        self._rebalance_ms: int | None = None  # when the rebalance ends whoever is missing
        self._initial_until_ms: int | None = None  # the latest end of an initial delay that may be extended
        self._newcomer = False  # somebody new came during the initial delay
        self._storing: int | None = None  # the generation whose assignment is being stored
        self._effects: list[Effect] = []

    # -- asking -------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """What has to be done, in order; once."""
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [member.expires_ms for member in self.members.values() if not member.waits]
        times += self._pending.values()
        if self._rebalance_ms is not None:
            times.append(self._rebalance_ms)
        return min(times, default=None)

    def snapshot(self) -> GroupSnapshot:
        """The group as it is stored and described."""
        described = self.state in (GroupState.STABLE, GroupState.COMPLETING)
        return GroupSnapshot(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader_id,
            tuple(
                MemberSnapshot(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    member.metadata(self.protocol) if described else b"",
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )

    @classmethod
    def restore(
        cls, group_id: str, snapshot: GroupSnapshot, now_ms: int, *, initial_delay_ms: int, max_size: int
    ) -> "Group":
        """A group as it was stored: its members have a whole session timeout to be heard of."""
        group = cls(group_id, initial_delay_ms=initial_delay_ms, max_size=max_size)
        group.generation = snapshot.generation
        group.protocol_type = snapshot.protocol_type
        group.protocol = snapshot.protocol
        group.leader_id = snapshot.leader_id
        for stored in snapshot.members:
            request = JoinRequest(
                stored.member_id, stored.instance_id, "", False, stored.client_id, stored.client_host,
                stored.session_timeout_ms, stored.rebalance_timeout_ms, snapshot.protocol_type,
                [(snapshot.protocol or "", stored.subscription)],
            )  # fmt: skip
            member = Member(stored.member_id, request, now_ms)
            member.assignment = stored.assignment
            group._admit(member)
        if group.members:
            group.state = GroupState.STABLE
        return group

    # -- joining ------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        """A join request; the reply comes as an effect, now or when the rebalance is complete."""
        try:
            self._join(request, token, now_ms)
        except DuramenError as error:
            self._effects.append(Reply(token, error))

    def _join(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        if self.state is GroupState.DEAD:
            raise UnknownMember(f"group {self.id} is being removed")
        self._check_protocols(request)
        if request.member_id:
            self._join_again(request, token, now_ms)
        elif request.instance_id is not None and request.instance_id in self._static:
            self._replace_static(request, token, now_ms)
        else:
            self._join_new(request, token, now_ms)

    def _check_protocols(self, request: JoinRequest) -> None:
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocol("a join names a protocol type and at least one protocol")
        if not self.members or (set(self.members) == {request.member_id}):
            return
        if request.protocol_type != self.protocol_type:
            raise InconsistentProtocol(
                f"group {self.id} has the protocol type {self.protocol_type}, not {request.protocol_type}"
            )
        others = [member for member in self.members.values() if member.id != request.member_id]
        common = set.intersection(*({name for name, _ in member.protocols} for member in others))
        if not common & {name for name, _ in request.protocols}:
            raise InconsistentProtocol(f"group {self.id} has the protocols {', '.join(sorted(common))}")

    def _check_size(self) -> None:
        if len(self.members) >= self._max_size:
            raise GroupFull(f"group {self.id} has {len(self.members)} members, as many as it may")

    def _join_new(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        self._check_size()
        if request.instance_id is None and request.id_required:
            self._pending[request.new_member_id] = now_ms + request.session_timeout_ms
            raise MemberIdRequired(request.new_member_id)
        self._add(Member(request.new_member_id, request, now_ms), request, token, now_ms)

    def _join_again(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        if self._pending.pop(request.member_id, None) is not None:
            self._check_size()
            self._add(Member(request.member_id, request, now_ms), request, token, now_ms)
            return
        member = self._known(request.member_id, request.instance_id)
        changed = list(request.protocols) != member.protocols
        rejoin = (
            self.state is GroupState.PREPARING
            or changed
            or (self.state is GroupState.STABLE and member.id == self.leader_id)
        )
        if not rejoin:
            # The answer to its last join was lost: say it again.
            self._effects.append(Reply(token, self._join_result(member)))
            member.expires_ms = now_ms + member.session_timeout_ms
            return
        member.update(request)
        self._wait_join(member, token, now_ms)
        self._rebalance(now_ms)

    def _replace_static(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        """A static member is back under a new id: whoever uses the old one is fenced."""
        old = self.members[self._static[request.instance_id or ""]]
        fenced = FencedInstance(f"another member joined as {request.instance_id}")
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                self._effects.append(Reply(waiting, fenced))
        del self.members[old.id]
        member = Member(request.new_member_id, request, now_ms)
        member.assignment = old.assignment
        was_leader = self.leader_id == old.id
        if was_leader:
            self.leader_id = member.id
        self._admit(member)
        if self.state is GroupState.STABLE and old.metadata(self.protocol) == member.metadata(self.protocol):
            self._effects.append(Store(self.snapshot()))
            result = self._join_result(member)
            if was_leader and not request.can_skip_assignment:
                # Told that another is the leader, an old client does not assign again (KIP-814).
                result = result._replace(leader_id=old.id, members=())
            self._effects.append(Reply(token, result._replace(skip_assignment=was_leader)))
            return
        self._wait_join(member, token, now_ms)
        self._rebalance(now_ms)

    def _known(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                raise UnknownMember(f"group {self.id} has no member {instance_id}")
            if current != member_id:
                raise FencedInstance(f"another member joined as {instance_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.id} has no member {member_id}")
        return member

    def _admit(self, member: Member) -> None:
        self.members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id

    def _add(self, member: Member, request: JoinRequest, token: Token, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        self._admit(member)
        if self.leader_id is None:
            self.leader_id = member.id
        self._newcomer = True
        self._wait_join(member, token, now_ms)
        self._rebalance(now_ms)

    def _wait_join(self, member: Member, token: Token, now_ms: int) -> None:
        if member.joining is not None:
            self._effects.append(Reply(member.joining, UnknownMember("the member joined again")))
        member.joining = token
        member.expires_ms = now_ms + member.session_timeout_ms

    # -- rebalancing --------------------------------------------------------------------------------

    def _to(self, state: GroupState) -> None:
        if state not in _FOLLOWING[self.state]:
            raise AssertionError(f"a group does not go from {self.state} to {state}")
        self.state = state

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance, or go on with the one there is; complete it if everybody is here."""
        if self.state is not GroupState.PREPARING:
            self._prepare(now_ms)
        if self._initial_until_ms is None and self._everybody_joined():
            self._complete(now_ms)

    def _prepare(self, now_ms: int) -> None:
        empty = self.state is GroupState.EMPTY
        self._to(GroupState.PREPARING)
        self._storing = None
        for member in self.members.values():
            member.assignment = b""
            if member.syncing is not None:
                self._effects.append(Reply(member.syncing, RebalanceInProgress("the group is rebalancing")))
                member.syncing = None
                member.expires_ms = now_ms + member.session_timeout_ms
        timeout_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        self._rebalance_ms = now_ms + timeout_ms
        if empty and self._initial_delay_ms:
            self._initial_until_ms = now_ms + timeout_ms
            self._rebalance_ms = now_ms + min(self._initial_delay_ms, timeout_ms)
            self._newcomer = False

    def _everybody_joined(self) -> bool:
        return not self._pending and all(member.joining is not None for member in self.members.values())

    def _complete(self, now_ms: int) -> None:
        self._rebalance_ms = self._initial_until_ms = None
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(member)
        if self.members and not any(member.joining is not None for member in self.members.values()):
            # Only static members that have not come back yet: they have until their sessions end.
            self._rebalance_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
            return
        self.generation += 1
        if not self.members:
            self._to(GroupState.EMPTY)
            self.protocol = None
            self.leader_id = None
            self._effects.append(Store(self.snapshot()))
            return
        self.protocol = self._elect_protocol()
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.joining is None:
            self.leader_id = next(member.id for member in self.members.values() if member.joining is not None)
        self._to(GroupState.COMPLETING)
        self._rebalance_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
        for member in self.members.values():
            if member.joining is not None:
                self._effects.append(Reply(member.joining, self._join_result(member)))
                member.joining = None
                member.expires_ms = now_ms + member.session_timeout_ms

    def _elect_protocol(self) -> str:
        """Of the protocols that all members know, the one that most of them prefer."""
        common = set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _join_result(self, member: Member) -> JoinResult:
        members: tuple[MemberSubscription, ...] = ()
        if member.id == self.leader_id:
            members = tuple(
                MemberSubscription(other.id, other.instance_id, other.metadata(self.protocol))
                for other in self.members.values()
            )
        return JoinResult(
            self.generation, self.protocol_type, self.protocol or "", self.leader_id or "", member.id, members
        )

    # -- assigning ----------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, token: Token, now_ms: int) -> None:
        """A sync request; the reply comes as an effect, now or when the leader's assignment is stored."""
        try:
            self._sync(request, token, now_ms)
        except DuramenError as error:
            self._effects.append(Reply(token, error))

    def _sync(self, request: SyncRequest, token: Token, now_ms: int) -> None:
        member = self._known(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if (request.protocol_type is not None and request.protocol_type != self.protocol_type) or (
            request.protocol is not None and request.protocol != self.protocol
        ):
            raise InconsistentProtocol(f"group {self.id} uses {self.protocol_type} with {self.protocol}")
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress("the group is rebalancing")
        member.expires_ms = now_ms + member.session_timeout_ms
        if self.state is GroupState.STABLE:
            self._effects.append(Reply(token, self._sync_result(member)))
            return
        if member.syncing is not None:
            self._effects.append(Reply(member.syncing, UnknownMember("the member asked again")))
        member.syncing = token
        if member.id == self.leader_id and self._storing is None:
            assignments = dict(request.assignments)
            for other in self.members.values():
                other.assignment = bytes(assignments.get(other.id, b""))
            self._storing = self.generation
            self._effects.append(Store(self.snapshot()))

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(self.protocol_type, self.protocol or "", member.assignment)

    def stored(self, snapshot: GroupSnapshot, error: DuramenError | None, now_ms: int) -> None:
        """What a `Store` effect asked for is durable, or could not be stored."""
        if self.state is not GroupState.COMPLETING or self._storing != snapshot.generation:
            return
        self._storing = None
        if error is not None:
            for member in self.members.values():
                member.assignment = b""
                self._answer_sync(member, error, now_ms)
            self._rebalance(now_ms)
            return
        self._to(GroupState.STABLE)
        self._rebalance_ms = None
        for member in self.members.values():
            self._answer_sync(member, self._sync_result(member), now_ms)

    def _answer_sync(self, member: Member, result: SyncResult | DuramenError, now_ms: int) -> None:
        if member.syncing is not None:
            self._effects.append(Reply(member.syncing, result))
            member.syncing = None
            member.expires_ms = now_ms + member.session_timeout_ms

    # -- staying and leaving ------------------------------------------------------------------------

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A sign of life. Raises what the member has to know instead."""
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        member.expires_ms = now_ms + member.session_timeout_ms
        error = _HEARTBEAT_ERROR[self.state]
        if error is not None:
            raise error(f"group {self.id} is in the state {self.state}")

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise unless offsets may be committed by this member in this generation, or by anybody (generation < 0)."""
        if generation < 0 and not self.members and self.state is GroupState.EMPTY:
            return
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        error = _COMMIT_ERROR[self.state]
        if error is not None:
            raise error(f"group {self.id} is in the state {self.state}")
        member.expires_ms = now_ms + member.session_timeout_ms

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> None:
        """A member goes. Raises UnknownMember or FencedInstance."""
        if self._pending.pop(member_id, None) is not None:
            self._after_removal(now_ms)
            return
        if not member_id and instance_id is not None:
            member_id = self._static.get(instance_id, "")
        member = self._known(member_id, instance_id)
        self._remove(member)
        self._after_removal(now_ms)

    def _remove(self, member: Member) -> None:
        gone = UnknownMember("the member left the group")
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                self._effects.append(Reply(waiting, gone))
        del self.members[member.id]
        if member.instance_id is not None and self._static.get(member.instance_id) == member.id:
            del self._static[member.instance_id]
        if self.leader_id == member.id:
            self.leader_id = next(iter(self.members), None)

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(now_ms)
        elif self.state is GroupState.PREPARING and self._initial_until_ms is None and self._everybody_joined():
            self._complete(now_ms)

    def close(self) -> None:
        """The group is removed: whoever waits is told, and nothing happens any more."""
        for member in list(self.members.values()):
            self._remove(member)
        self._pending.clear()
        self._rebalance_ms = self._initial_until_ms = None
        if self.state is not GroupState.DEAD:
            self._to(GroupState.DEAD)

    # -- time ---------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Time has passed: end sessions, ids never used, and rebalances that waited long enough."""
        lapsed = [member_id for member_id, at_ms in self._pending.items() if at_ms <= now_ms]
        for member_id in lapsed:
            del self._pending[member_id]
        expired = [member for member in self.members.values() if not member.waits and member.expires_ms <= now_ms]
        for member in expired:
            self._remove(member)
        if expired or lapsed:
            self._after_removal(now_ms)
        if self._rebalance_ms is not None and self._rebalance_ms <= now_ms:
            self._rebalance_due(now_ms)

    def _rebalance_due(self, now_ms: int) -> None:
        if self.state is GroupState.COMPLETING:
            # Members that never asked for their assignment are gone.
            self._rebalance_ms = None
            missing = [member for member in self.members.values() if member.syncing is None]
            for member in missing:
                self._remove(member)
            self._rebalance(now_ms)
        elif self._initial_until_ms is not None and self._newcomer and now_ms < self._initial_until_ms:
            self._newcomer = False
            self._rebalance_ms = min(now_ms + self._initial_delay_ms, self._initial_until_ms)
        else:
            self._complete(now_ms)
