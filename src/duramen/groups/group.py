"""One consumer group under Kafka's classic protocol: joining, assigning, heartbeats, leaving.

The caller passes events and the time; the group returns effects: responses to waiting requests, and requests to store
its state. It never looks at a clock and never waits; `next_deadline_ms` is when it needs the time again. Sources: the
Kafka protocol guide; KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member
ids), KIP-800 (reasons), KIP-814 (skipping assignment).
"""

from typing import Final

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
from duramen.groups.members import ClassicMember, ClassicMembers
from duramen.groups.values import (
    Effect,
    GroupSnapshot,
    GroupState,
    JoinRequest,
    JoinResult,
    MemberSubscription,
    ReplyEffect,
    StoreEffect,
    SyncRequest,
    SyncResult,
    Token,
)

__all__ = ["FOLLOWING", "Group"]

FOLLOWING: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""Which state may come after which."""

_PENDING_BYTES: Final = 256  # the memory of a generated id, without its characters

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


class Group:
    """The state machine. Every method that takes `now_ms` may leave effects; `take_effects` hands them over."""

    def __init__(self, group_id: str, *, initial_delay_ms: int = 3000, max_size: int = (1 << 31) - 1) -> None:
        self.id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members = ClassicMembers(group_id)
        self._initial_delay_ms = initial_delay_ms
        self._max_size = max_size
        self._pending: dict[str, int] = {}  # ids given out and not joined with yet, with when they lapse
        self._unsynced: set[str] = set()  # members that joined this generation and have not asked for their assignment
        self._rebalance_ms: int | None = None  # when members that have not joined, or not synced, are removed
        self._initial_until_ms: int | None = None  # the latest end of an initial delay that may be extended
        self._newcomer = False  # a new member came during the initial delay
        self._storing: int | None = None  # the generation whose assignment is being stored
        self._effects: list[Effect] = []

    # -- asking -------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """The effects to execute, in order; once."""
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [member.expires_ms for member in self.members if not member.waits]
        times += self._pending.values()
        if self._rebalance_ms is not None:
            times.append(self._rebalance_ms)
        return min(times, default=None)

    @property
    def untouched(self) -> bool:
        """Whether it is only a name: it has and had no members."""
        return self.state is GroupState.EMPTY and not self.generation and not self.members and not self._pending

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY and not self.members

    @property
    def held_bytes(self) -> int:
        """The memory of its members and of the generated ids."""
        pending = _PENDING_BYTES * len(self._pending) + sum(map(len, self._pending))
        return pending + sum(member.held_bytes for member in self.members)

    def held_for(self, request: JoinRequest) -> int:
        """The memory of the member that a join is from."""
        known = self.members.get(request.member_id) or self.members.static(request.instance_id)
        return known.held_bytes if known is not None else 0

    def snapshot(self) -> GroupSnapshot:
        """The group as it is stored and described."""
        described = self.protocol if self.state in (GroupState.STABLE, GroupState.COMPLETING) else None
        members = tuple(member.snapshot(described) for member in self.members)
        return GroupSnapshot(self.generation, self.protocol_type, self.protocol, self.leader_id, members)

    @classmethod
    def restore(
        cls, group_id: str, snapshot: GroupSnapshot, now_ms: int, *, initial_delay_ms: int, max_size: int
    ) -> "Group":
        """A group as it was stored: its members have a whole session timeout to be heard of.

        One that was stored without a leader has not assigned since: it rebalances.
        """
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
            member = ClassicMember(stored.member_id, request, now_ms)
            member.assignment = stored.assignment
            group.members.add(member)
        if group.members:
            group.state = GroupState.STABLE
            if group.leader_id is None:
                group._rebalance(now_ms)
        return group

    # -- joining ------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        """A join request; the reply comes as an effect, now or when the rebalance is complete."""
        try:
            self._join(request, token, now_ms)
        except DuramenError as error:
            self._effects.append(ReplyEffect(token, error))

    def _join(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        if self.state is GroupState.DEAD:
            raise UnknownMember(f"group {self.id} is being removed")
        self._check_protocols(request)
        replaced = self.members.static(request.instance_id)
        if request.member_id:
            self._join_again(request, token, now_ms)
        elif replaced is not None:
            self._replace_static(replaced, request, token, now_ms)
        else:
            self._join_new(request, token, now_ms)

    def _check_protocols(self, request: JoinRequest) -> None:
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocol("a join names a protocol type and at least one protocol")
        replaced = self.members.static(request.instance_id) if not request.member_id else None
        common = self.members.common_protocols(without=request.member_id if replaced is None else replaced.id)
        if common is None:
            return
        if request.protocol_type != self.protocol_type:
            raise InconsistentProtocol(
                f"group {self.id} has the protocol type {self.protocol_type}, not {request.protocol_type}"
            )
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
        self._add(ClassicMember(request.new_member_id, request, now_ms), request, token, now_ms)

    def _join_again(self, request: JoinRequest, token: Token, now_ms: int) -> None:
        if self._pending.pop(request.member_id, None) is not None:
            self._check_size()
            self._add(ClassicMember(request.member_id, request, now_ms), request, token, now_ms)
            return
        member = self.members.known(request.member_id, request.instance_id)
        changed = list(request.protocols) != member.protocols
        rejoin = (
            self.state is GroupState.PREPARING
            or changed
            or (self.state is GroupState.STABLE and member.id == self.leader_id)
        )
        if not rejoin:
            # The response to its last join was lost: repeat it.
            self._effects.append(ReplyEffect(token, self._join_result(member)))
            member.expires_ms = now_ms + member.session_timeout_ms
            return
        member.update(request)
        self.protocol_type = request.protocol_type
        self._wait_join(member, token, now_ms)
        self._rebalance(now_ms)

    def _replace_static(self, old: ClassicMember, request: JoinRequest, token: Token, now_ms: int) -> None:
        """A static member returns under a new id: the old id is fenced."""
        fenced = FencedInstance(f"another member joined as {request.instance_id}")
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                self._effects.append(ReplyEffect(waiting, fenced))
        self.members.remove(old)
        self._unsynced.discard(old.id)
        member = ClassicMember(request.new_member_id, request, now_ms)
        member.assignment = old.assignment
        was_leader = self.leader_id == old.id
        if was_leader:
            self.leader_id = member.id
        self.members.add(member)
        self.protocol_type = request.protocol_type
        if self.state is GroupState.STABLE and self._takes_over(member, old):
            result = self._join_result(member)
            if was_leader and not request.can_skip_assignment:
                # An old client that is not named the leader does not assign again (KIP-814).
                result = result._replace(leader_id=old.id, members=())
            reply = ReplyEffect(token, result._replace(skip_assignment=was_leader and request.can_skip_assignment))
            self._effects.append(StoreEffect(self.snapshot(), (reply,)))
            return
        self._wait_join(member, token, now_ms)
        self._rebalance(now_ms)

    def _takes_over(self, member: ClassicMember, old: ClassicMember) -> bool:
        """Whether a static member that is back may go on with the assignment it had, without a rebalance."""
        return self.members.elected_protocol() == self.protocol and member.wants_the_same(
            old, self.protocol_type, self.protocol
        )

    def _add(self, member: ClassicMember, request: JoinRequest, token: Token, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        if self.leader_id is None:
            self.leader_id = member.id
        self._newcomer = True
        self._wait_join(member, token, now_ms)
        self._rebalance(now_ms)

    def _wait_join(self, member: ClassicMember, token: Token, now_ms: int) -> None:
        if member.joining is not None:
            self._effects.append(ReplyEffect(member.joining, RebalanceInProgress("the member joined again")))
        member.joining = token
        member.expires_ms = now_ms + member.session_timeout_ms

    # -- rebalancing --------------------------------------------------------------------------------

    def _to(self, state: GroupState) -> None:
        if state not in FOLLOWING[self.state]:
            raise AssertionError(f"a group does not go from {self.state} to {state}")
        self.state = state

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance, or go on with the one there is; complete it if everybody is here."""
        if self.state is not GroupState.PREPARING:
            self._prepare(now_ms)
        elif self._rebalance_ms is None:
            self._rebalance_ms = now_ms + self.members.longest_rebalance_ms()
        if self._initial_until_ms is None and self._all_joined():
            self._complete(now_ms)

    def _prepare(self, now_ms: int) -> None:
        empty = self.state is GroupState.EMPTY
        unassigned = self.state is GroupState.COMPLETING
        self._to(GroupState.PREPARING)
        self._storing = None
        self._unsynced.clear()
        for member in self.members:
            if unassigned:
                member.assignment = b""  # the leader's assignment may not be stored; members keep what they had so far
            self._answer_sync(member, RebalanceInProgress("the group is rebalancing"), now_ms)
        timeout_ms = self.members.longest_rebalance_ms()
        self._rebalance_ms = now_ms + timeout_ms
        if empty and self._initial_delay_ms:
            self._initial_until_ms = now_ms + timeout_ms
            self._rebalance_ms = now_ms + min(self._initial_delay_ms, timeout_ms)
            self._newcomer = False

    def _all_joined(self) -> bool:
        return not self.members or (not self._pending and self.members.all_joined())

    def _complete(self, now_ms: int) -> None:
        self._rebalance_ms = self._initial_until_ms = None
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self._remove(member)
        if self.members and self.members.first(joined=True) is None:
            return  # only static members that have not come back yet: they have until their sessions end
        self.generation += 1
        if not self.members:
            self._to(GroupState.EMPTY)
            self.protocol = None
            self.leader_id = None
            self._effects.append(StoreEffect(self.snapshot()))
            return
        self.protocol = self.members.elected_protocol()
        leader = self.members.get(self.leader_id)
        if leader is None or leader.joining is None:
            self.leader_id = self.members.first(joined=True)
        self._to(GroupState.COMPLETING)
        self._rebalance_ms = now_ms + self.members.longest_rebalance_ms()
        for member in self.members:
            if member.joining is not None:
                self._effects.append(ReplyEffect(member.joining, self._join_result(member)))
                member.joining = None
                member.expires_ms = now_ms + member.session_timeout_ms
                self._unsynced.add(member.id)

    def _join_result(self, member: ClassicMember) -> JoinResult:
        members: tuple[MemberSubscription, ...] = ()
        if member.id == self.leader_id:
            members = self.members.subscriptions(self.protocol)
        return JoinResult(
            self.generation, self.protocol_type, self.protocol or "", self.leader_id or "", member.id, members
        )

    # -- assigning ----------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, token: Token, now_ms: int) -> None:
        """A sync request; the reply comes as an effect, now or when the leader's assignment is stored."""
        try:
            self._sync(request, token, now_ms)
        except DuramenError as error:
            self._effects.append(ReplyEffect(token, error))

    def _sync(self, request: SyncRequest, token: Token, now_ms: int) -> None:
        member = self.members.known(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if (request.protocol_type is not None and request.protocol_type != self.protocol_type) or (
            request.protocol is not None and request.protocol != self.protocol
        ):
            raise InconsistentProtocol(f"group {self.id} uses {self.protocol_type} with {self.protocol}")
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress("the group is rebalancing")
        member.expires_ms = now_ms + member.session_timeout_ms
        self._unsynced.discard(member.id)
        if self.state is GroupState.STABLE:
            self._effects.append(ReplyEffect(token, self._sync_result(member)))
            self._all_synced()
            return
        if member.syncing is not None:
            self._effects.append(ReplyEffect(member.syncing, RebalanceInProgress("the member asked again")))
        member.syncing = token
        if member.id == self.leader_id and self._storing is None:
            assignments = dict(request.assignments)
            for other in self.members:
                other.assignment = bytes(assignments.get(other.id, b""))
            self._storing = self.generation
            self._effects.append(StoreEffect(self.snapshot()))

    def _sync_result(self, member: ClassicMember) -> SyncResult:
        return SyncResult(self.protocol_type, self.protocol or "", member.assignment)

    def _all_synced(self) -> None:
        if self.state is GroupState.STABLE and not self._unsynced:
            self._rebalance_ms = None

    def stored(self, store: StoreEffect, error: DuramenError | None, now_ms: int) -> None:
        """The snapshot of a `StoreEffect` is durable, or could not be stored."""
        self._effects += [reply if error is None else ReplyEffect(reply.token, error) for reply in store.replies]
        if self.state is not GroupState.COMPLETING or self._storing != store.snapshot.generation:
            return
        self._storing = None
        if error is not None:
            for member in self.members:
                self._answer_sync(member, error, now_ms)
            self._rebalance(now_ms)
            return
        self._to(GroupState.STABLE)
        self._all_synced()
        for member in self.members:
            self._answer_sync(member, self._sync_result(member), now_ms)

    def _answer_sync(self, member: ClassicMember, result: SyncResult | DuramenError, now_ms: int) -> None:
        if member.syncing is not None:
            self._effects.append(ReplyEffect(member.syncing, result))
            member.syncing = None
            member.expires_ms = now_ms + member.session_timeout_ms

    # -- staying and leaving ------------------------------------------------------------------------

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A heartbeat. Raises the error that the member gets."""
        member = self.members.known(member_id, instance_id)
        self._check_generation(generation)
        member.expires_ms = now_ms + member.session_timeout_ms
        error = _HEARTBEAT_ERROR[self.state]
        if error is not None:
            raise error(f"group {self.id} is in the state {self.state}")

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, transactional: bool = False
    ) -> None:
        """Raise unless offsets may be committed by this member in this generation, or by anybody (generation < 0).

        In a transaction also between its join and its assignment: a producer could not make anything of the error.
        """
        if generation < 0 and not self.members and self.state is GroupState.EMPTY:
            return
        member = self.members.known(member_id, instance_id)
        self._check_generation(generation)
        error = _COMMIT_ERROR[self.state]
        if error is not None and not (transactional and self.state is GroupState.COMPLETING):
            raise error(f"group {self.id} is in the state {self.state}")
        member.expires_ms = now_ms + member.session_timeout_ms

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> None:
        """A member goes. Raises UnknownMember or FencedInstance."""
        if self._pending.pop(member_id, None) is not None:
            self._after_lapse(now_ms)
            return
        static = self.members.static(instance_id)
        if not member_id and static is not None:
            member_id = static.id
        self._remove(self.members.known(member_id, instance_id))
        self._after_removal(now_ms)

    def _remove(self, member: ClassicMember, error: DuramenError | None = None) -> None:
        gone = error or UnknownMember("the member left the group")
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                self._effects.append(ReplyEffect(waiting, gone))
        self.members.remove(member)
        self._unsynced.discard(member.id)
        if self.leader_id == member.id:
            self.leader_id = self.members.first()

    def _after_removal(self, now_ms: int) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(now_ms)
        elif self.state is GroupState.PREPARING and self._initial_until_ms is None and self._all_joined():
            self._complete(now_ms)

    def _after_lapse(self, now_ms: int) -> None:
        """An id that was given out is not joined with: a rebalance that waits for it may be complete."""
        if self.state is GroupState.PREPARING:
            self._after_removal(now_ms)

    def close(self, error: DuramenError | None = None) -> None:
        """The group is removed: waiting requests get an error, by default that it is gone; no effects follow."""
        for member in self.members:
            self._remove(member, error)
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
        expired = [member for member in self.members if not member.waits and member.expires_ms <= now_ms]
        for member in expired:
            self._remove(member)
        if expired:
            self._after_removal(now_ms)
        elif lapsed:
            self._after_lapse(now_ms)
        if self._rebalance_ms is not None and self._rebalance_ms <= now_ms:
            self._rebalance_due(now_ms)

    def _rebalance_due(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING:
            # Members that never asked for their assignment are gone.
            for member in self.members:
                if member.id in self._unsynced:
                    self._remove(member)
            self._rebalance(now_ms)
        elif self._initial_until_ms is not None and self._newcomer and now_ms < self._initial_until_ms:
            self._newcomer = False
            self._rebalance_ms = min(now_ms + self._initial_delay_ms, self._initial_until_ms)
        else:
            self._complete(now_ms)
