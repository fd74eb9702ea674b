"""A group under every order of events that hypothesis can think of, held against what must hold in all of them."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.groups.driver import Asked, Driver

from duramen.base.errors import MemberIdRequired
from duramen.groups.members import ClassicMember
from duramen.groups.values import GroupState, JoinResult, SyncResult

REBALANCE_MS = 300
PROTOCOLS = st.sampled_from(
    [
        [("range", b"t")],
        [("range", b"t")],
        [("range", b"u")],
        [("range", b"t"), ("sticky", b"t")],
        [("sticky", b"t"), ("range", b"t")],
        [("sticky", b"t")],
    ]
)
SESSIONS = st.sampled_from([100, 500, 1000])
PICKS = st.integers(0, 50)
INSTANCES = ["one", "two", "three"]


class GroupMachine(RuleBasedStateMachine):
    """Members come, come back, ask, go, fall silent; time goes by; stores succeed and fail; the node dies."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.asked: list[Asked] = []
        self.lost: set[int] = set()  # requests that a dead node never answers
        self.assigned: dict[int, dict[str, bytes]] = {}  # by generation, what its leader brought
        self.leaders: dict[int, str] = {}
        self.names: dict[str, str] = {}  # a static member's id before it came back under another
        self.before: dict[str, ClassicMember] = {}
        self.generation = self.prepared_ms = self.completed_ms = 0
        self._state = GroupState.EMPTY
        self.max_size = 0
        self.drive = Driver()

    @initialize(initial_delay_ms=st.sampled_from([0, 100]), max_size=st.sampled_from([3, 100]))
    def begin(self, initial_delay_ms: int, max_size: int) -> None:
        self.drive = Driver(initial_delay_ms=initial_delay_ms, max_size=max_size)
        self.drive.hold_stores = True
        self.max_size = max_size

    # -- what the outside does ----------------------------------------------------------------------

    def _somebody(self, pick: int) -> str:
        """A member, more often than an id that is none any more or not yet."""
        here = [member.id for member in self.drive.group.members]
        others = [known for known in self.ids if known not in here]
        candidates = here * 3 + others[-3:]
        return candidates[pick % len(candidates)]

    def _join(self, member_id: str, instance: str | None, **how: Any) -> None:
        old = self.drive.group.members.static(instance) if instance is not None and not member_id else None
        asked = self.drive.join(member_id, instance=instance, rebalance_ms=REBALANCE_MS, **how)
        self.asked.append(asked)
        current = self.drive.group.members.static(instance)
        if old is not None and current is not None and current.id != old.id:
            self.names[current.id] = old.id
            self._gone(old.id)
        if isinstance(asked.result, MemberIdRequired):
            self.ids.append(asked.result.member_id)
        self.ids += [member.id for member in self.drive.group.members if member.id not in self.ids]

    @rule(protocols=PROTOCOLS, session_ms=SESSIONS, id_required=st.booleans())
    def a_dynamic_member_comes(self, **how: Any) -> None:
        self._join("", None, **how)

    @rule(instance=st.sampled_from(INSTANCES), protocols=PROTOCOLS, session_ms=SESSIONS, can_skip=st.booleans())
    def a_static_member_comes(self, instance: str, **how: Any) -> None:
        self._join("", instance, **how)

    @rule(instance=st.sampled_from(INSTANCES), can_skip=st.booleans())
    def a_static_member_is_back_as_before(self, instance: str, can_skip: bool) -> None:
        member = self.drive.group.members.static(instance)
        if member is not None:
            self._join(
                "", instance, protocols=member.protocols, session_ms=member.session_timeout_ms, can_skip=can_skip
            )

    @precondition(lambda self: self.ids)
    @rule(pick=PICKS, protocols=PROTOCOLS, session_ms=SESSIONS, named=st.booleans())
    def a_member_joins_again(self, pick: int, protocols: Any, session_ms: int, named: bool) -> None:
        member_id = self._somebody(pick)
        member = self.drive.group.members.get(member_id)
        instance = member.instance_id if member is not None and named else None
        self._join(member_id, instance, protocols=protocols, session_ms=session_ms)

    @precondition(lambda self: self.ids)
    @rule(pick=PICKS)
    def a_member_joins_again_as_before(self, pick: int) -> None:
        self._join_as_before(self._somebody(pick))

    def _join_as_before(self, member_id: str) -> None:
        member = self.drive.group.members.get(member_id)
        if member is None:
            self._join(member_id, None)
        else:
            how = {"protocols": member.protocols, "session_ms": member.session_timeout_ms}
            self._join(member_id, member.instance_id, **how)

    @precondition(lambda self: self._state is GroupState.PREPARING)
    @rule()
    def everybody_joins_again(self) -> None:
        for member in self.drive.group.members:
            if member.joining is None and self.drive.group.state is GroupState.PREPARING:
                self._join_as_before(member.id)

    @precondition(lambda self: self.ids)
    @rule(pick=PICKS, behind=st.sampled_from([0, 0, 0, 1]), content=st.binary(min_size=1, max_size=2))
    def a_member_syncs(self, pick: int, behind: int, content: bytes) -> None:
        self._sync(self._somebody(pick), behind, content)

    def _sync(self, member_id: str, behind: int, content: bytes) -> None:
        group = self.drive.group
        generation = group.generation - behind
        brought: dict[str, bytes] = {}
        stores = len(self.drive.stores)
        if member_id == group.leader_id:
            brought = {member.id: content + member.id.encode() for member in group.members}
        self.asked.append(self.drive.sync(member_id, generation, brought))
        if len(self.drive.stores) > stores and brought:
            self.assigned[generation] = brought

    @precondition(lambda self: self._state is GroupState.COMPLETING)
    @rule(stored=st.booleans())
    def everybody_syncs(self, stored: bool) -> None:
        for member in self.drive.group.members:
            if self.drive.group.state is GroupState.COMPLETING:
                self._sync(member.id, 0, b"all ")
        while stored and self.drive.stores:
            self.drive.store()

    @precondition(lambda self: self.ids)
    @rule(pick=PICKS)
    def a_member_is_alive(self, pick: int) -> None:
        self.drive.heartbeat(self._somebody(pick))

    @precondition(lambda self: self.ids)
    @rule(pick=PICKS)
    def a_member_commits(self, pick: int) -> None:
        self.drive.commit(self._somebody(pick))

    @precondition(lambda self: len(self.drive.group.members) > 1)
    @rule(pick=PICKS)
    def a_member_leaves(self, pick: int) -> None:
        member_id = self._somebody(pick)
        member = self.drive.group.members.get(member_id)
        self.drive.leave(member_id, member.instance_id if member is not None else None)
        self._gone(member_id)

    @precondition(lambda self: self.drive.stores)
    @rule(fail=st.sampled_from([False, False, False, True]))
    def a_store_ends(self, fail: bool) -> None:
        self.drive.store(fail=fail)

    @rule(duration_ms=st.sampled_from([1, 20, 49, 99, 301, 1001]), alive=st.sampled_from([True, True, False]))
    def time_goes_by(self, duration_ms: int, alive: bool) -> None:
        if alive:
            for member in self.drive.group.members:
                self.drive.heartbeat(member.id, instance=member.instance_id)
        # In steps, so that what must hold is looked at after each deadline.
        until_ms = self.drive.now_ms + duration_ms
        while (at_ms := self.drive.group.next_deadline_ms()) is not None and at_ms <= until_ms:
            self._look()
            self.drive.advance(max(0, at_ms - self.drive.now_ms))
        self._look()
        self.drive.advance(until_ms - self.drive.now_ms)

    @rule()
    def the_node_dies(self) -> None:
        self.lost |= {id(asked) for asked in self.asked if asked.result is None}
        self.drive.restart()
        self.before = {member.id: member for member in self.drive.group.members}
        self.generation = self.drive.group.generation
        # What was decided and not stored is forgotten; those generations come again.
        self.assigned = {known: brought for known, brought in self.assigned.items() if known <= self.generation}
        self.leaders = {known: leader for known, leader in self.leaders.items() if known <= self.generation}

    # -- what must hold -----------------------------------------------------------------------------

    def _gone(self, member_id: str) -> None:
        """The member has a reason to be gone."""
        self.before.pop(member_id, None)

    def _look(self) -> None:
        """Note who is there, having checked that nobody who was there is gone without a reason."""
        group, now_ms = self.drive.group, self.drive.now_ms
        here = {member.id: member for member in group.members}
        for member_id, member in self.before.items():
            if member_id in here:
                continue
            lapsed = member.expires_ms <= now_ms
            never_joined = member.joining is None and now_ms >= self.prepared_ms + min(100, REBALANCE_MS)
            never_synced = now_ms >= self.completed_ms + REBALANCE_MS
            assert lapsed or never_joined or never_synced, f"{member_id} is lost"
        self.before = here
        if group.state is GroupState.PREPARING and self._state is not GroupState.PREPARING:
            self.prepared_ms = now_ms
        if group.generation != self.generation:
            assert group.generation > self.generation, "a generation is over for good"
            self.generation = group.generation
            self.completed_ms = now_ms
        self._state = group.state

    @invariant()
    def nobody_is_lost_and_generations_grow(self) -> None:
        self._look()

    @invariant()
    def states_and_members_fit(self) -> None:
        group = self.drive.group
        members = list(group.members)
        assert len(members) <= self.max_size + len(INSTANCES)
        if group.state is GroupState.EMPTY:
            assert not members
            assert group.leader_id is None
        elif members:
            assert group.members.get(group.leader_id) is not None
        else:
            assert group.state is GroupState.PREPARING, "only the initial delay keeps a group without members"
        if group.state is not GroupState.PREPARING:
            assert all(member.joining is None for member in members)
        if group.state is not GroupState.COMPLETING:
            assert all(member.syncing is None for member in members)
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert all(group.protocol in [name for name, _ in member.protocols] for member in members)

    @invariant()
    def answers_are_right(self) -> None:
        waiting = {
            id(token)
            for member in self.drive.group.members
            for token in (member.joining, member.syncing)
            if token is not None
        } | {id(reply.token) for store in self.drive.stores for reply in store.replies}
        left = []
        for asked in self.asked:
            if asked.result is None:
                assert id(asked) in waiting or id(asked) in self.lost, "a request is forgotten"
                left.append(asked)
            elif isinstance(asked.result, JoinResult):
                self._check_join(asked.result)
            elif isinstance(asked.result, SyncResult):
                self._check_sync(asked)
        self.asked = left

    def _check_join(self, result: JoinResult) -> None:
        if self.names.get(result.member_id) == result.leader_id:
            return  # a static leader that is back, and must not know it
        leader = self._root(result.leader_id)
        assert self.leaders.setdefault(result.generation, leader) == leader, "a generation has two leaders"
        if result.members:
            assert result.member_id == result.leader_id
            assert result.member_id in [member.member_id for member in result.members]

    def _check_sync(self, asked: Asked) -> None:
        brought = self.assigned[self.drive.group.generation]
        member_id: str | None = asked.member
        while member_id is not None and member_id not in brought:
            member_id = self.names.get(member_id)
        assert asked.assigned == brought.get(member_id or "", b"")

    def _root(self, member_id: str) -> str:
        while member_id in self.names:
            member_id = self.names[member_id]
        return member_id

    def teardown(self) -> None:
        """When everybody falls silent, everybody is answered, and the group is empty."""
        for _ in range(20):
            self.drive.advance(2000)
            while self.drive.stores:
                self.drive.store()
        assert self.drive.group.state is GroupState.EMPTY
        assert all(asked.result is not None or id(asked) in self.lost for asked in self.asked)


GroupMachine.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=40)
TestGroup = GroupMachine.TestCase
