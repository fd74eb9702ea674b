"""A group in a test's hand: time, requests with their answers, and what the group wants stored."""

from collections import deque
from collections.abc import Sequence

from duramen.base.errors import DuramenError, StorageFailed
from duramen.groups.group import Group
from duramen.groups.values import (
    GroupSnapshot,
    GroupState,
    JoinRequest,
    JoinResult,
    ReplyEffect,
    StoreEffect,
    SyncRequest,
    SyncResult,
)

__all__ = ["Asked", "Driver"]


class Asked:
    """A request that was sent; its answer, once it has come."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.result: JoinResult | SyncResult | DuramenError | None = None

    @property
    def joined(self) -> JoinResult:
        """The answer to a join that succeeded."""
        assert isinstance(self.result, JoinResult), self.result
        return self.result

    @property
    def assigned(self) -> bytes:
        """The answer to a sync that succeeded."""
        assert isinstance(self.result, SyncResult), self.result
        return self.result.assignment

    @property
    def refused(self) -> type[DuramenError]:
        """The kind of error that was answered."""
        assert isinstance(self.result, DuramenError), self.result
        return type(self.result)


class Driver:
    """A group, the time, and the stores it waits for. Stores succeed at once unless `hold_stores`."""

    def __init__(self, *, initial_delay_ms: int = 0, max_size: int = 1000) -> None:
        self.options = {"initial_delay_ms": initial_delay_ms, "max_size": max_size}
        self.group = Group("g", **self.options)
        self.now_ms = 1000
        self.hold_stores = False
        self.stores: deque[StoreEffect] = deque()
        self.stored: GroupSnapshot | None = None
        self._ids = 0

    def new_id(self, prefix: str) -> str:
        """A member id that nobody has."""
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def state(self) -> GroupState:
        """The group's state now."""
        return self.group.state

    # -- requests -----------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        id_required: bool = False,
        session_ms: int = 1000,
        rebalance_ms: int = 3000,
        can_skip: bool = False,
    ) -> Asked:
        """Ask to join; a new member is called by its instance or `m`, and a number."""
        asked = Asked(member_id)
        request = JoinRequest(
            member_id,
            instance,
            self.new_id(instance or "m"),
            id_required,
            "client",
            "/host",
            session_ms,
            rebalance_ms,
            protocol_type,
            list(protocols),
            can_skip,
        )
        self.group.join(request, asked, self.now_ms)
        self.settle()
        return asked

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Asked:
        """Ask for the assignment, as the leader with everybody's; in the present generation unless another is named."""
        asked = Asked(member_id)
        generation = self.group.generation if generation is None else generation
        brought = list((assignments or {}).items())
        request = SyncRequest(member_id, instance, generation, protocol_type, protocol, brought)
        self.group.sync(request, asked, self.now_ms)
        self.settle()
        return asked

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> object:
        """A sign of life; the kind of error where there is one."""
        generation = self.group.generation if generation is None else generation
        try:
            self.group.heartbeat(member_id, instance, generation, self.now_ms)
        except DuramenError as error:
            return type(error)
        return None

    def commit(
        self, member_id: str, generation: int | None = None, instance: str | None = None, *, transactional: bool = False
    ) -> object:
        """Ask whether offsets may be committed; the kind of error where they may not."""
        generation = self.group.generation if generation is None else generation
        try:
            self.group.check_commit(member_id, instance, generation, self.now_ms, transactional=transactional)
        except DuramenError as error:
            return type(error)
        return None

    def leave(self, member_id: str, instance: str | None = None) -> object:
        """Leave; the kind of error where there is one."""
        try:
            self.group.leave(member_id, instance, self.now_ms)
        except DuramenError as error:
            return type(error)
        finally:
            self.settle()
        return None

    # -- what follows -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Hand out the answers, and see to what is to be stored."""
        for effect in self.group.take_effects():
            if isinstance(effect, ReplyEffect):
                assert effect.token.result is None, "a request was answered twice"
                effect.token.result = effect.result
            else:
                self.stores.append(effect)
        if not self.hold_stores and self.stores:
            self.store()

    def store(self, *, fail: bool = False) -> None:
        """The oldest store ends."""
        store = self.stores.popleft()
        if not fail:
            self.stored = store.snapshot
        self.group.stored(store, StorageFailed("the disk") if fail else None, self.now_ms)
        self.settle()

    def advance(self, duration_ms: int) -> None:
        """Let time go by, telling the group of every time that it asked to be told of."""
        until_ms = self.now_ms + duration_ms
        while (at_ms := self.group.next_deadline_ms()) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.group.tick(self.now_ms)
            self.settle()
            following_ms = self.group.next_deadline_ms()
            assert following_ms is None or following_ms > self.now_ms, "the group asks to be told of the past"
        self.now_ms = until_ms

    def restart(self) -> None:
        """The node dies and starts again with what was stored."""
        self.stores.clear()
        if self.stored is None:
            self.group = Group("g", **self.options)
        else:
            self.group = Group.restore("g", self.stored, self.now_ms, **self.options)

    # -- shortcuts ----------------------------------------------------------------------------------

    def stable(self, *instances: str | None, protocols: Sequence[tuple[str, bytes]] = (("range", b""),)) -> list[str]:
        """Members, one for each of `instances` (None: dynamic), joined and synced; each assigned its own id."""
        for instance in instances:
            self.join(instance=instance, protocols=protocols)
        for member in self.group.members:
            if member.joining is None and self.group.state is GroupState.PREPARING:
                self.join(member.id, instance=member.instance_id, protocols=protocols)
        assert self.group.state is GroupState.COMPLETING
        ids = [member.id for member in self.group.members]
        self.assign()
        return ids

    def assign(self) -> None:
        """Every member asks for its assignment, the leader bringing each its own id."""
        assert self.group.leader_id is not None
        brought = {member.id: member.id.encode() for member in self.group.members}
        for member in self.group.members:
            leads = member.id == self.group.leader_id
            self.sync(member.id, assignments=brought if leads else None, instance=member.instance_id)
