"""Members of a classic group: they join, assign, commit offsets of their partitions, and leave.

They use the Kafka door, each with its own connection. After a crash they continue with their identity: the group still
has them, or tells them to rejoin.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.groups.records import OffsetKey
from duramen.sim.checkers.checker import CommittedModel
from duramen.sim.checkers.history import LogHistory
from duramen.sim.checkers.memberships import GroupModel
from duramen.sim.clients.door import AtTheDoor
from duramen.sim.clients.shared import Clients
from duramen.sim.clients.wire import WireConnection
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["MEMBERS_GROUP", "SimulatedMembers"]

MEMBERS_GROUP: Final = "members"

_MEMBERS: Final = 3
_AT_ONCE: Final = 0.9
_SESSION_MS: Final = 5000
_REBALANCE_MS: Final = 300
_SUBSCRIPTION: Final = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"  # version 0, of no topics, without user data
_JOIN_AGAIN: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
_UNAVAILABLE: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class _Member:
    """A client and its membership."""

    def __init__(self, number: int) -> None:
        self.name = f"member {number}"
        self.connection: WireConnection | None = None
        self.busy = False
        self.joining = False  # whether a join of its was not answered
        self.asked_us = 0
        self.heard_us = 0  # when the group has last taken it for a member
        self.forget()

    def forget(self) -> None:
        """It is not a member."""
        self.id = ""
        self.generation = -1
        self.members: tuple[str, ...] = ()  # of the generation, where it is to assign
        self.leads = False
        self.owned: list[str] | None = None  # None before the first response


class SimulatedMembers:
    """All members of one group."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._all = [_Member(number) for number in range(_MEMBERS)]
        self._group = GroupModel(MEMBERS_GROUP)
        self._door: AtTheDoor | None = None

    def begin(self) -> None:
        """A process has started."""
        access = self._clients.access
        self._door = access if isinstance(access, AtTheDoor) else None
        self._group.restarted(lost=self._clients.checker.offsets_lost)
        for one in self._all:
            one.connection, one.busy, one.joining = None, False, False
            if one.generation >= 0 and self._is_silent(one):
                self._group.disturbed()  # its session may have ended before the process did
            one.heard_us = self._clients.clock.now_us  # a restored member has a whole session again

    def act(self) -> None:
        """The next step of one of them."""
        chance = self._clients.chance
        idle = [one for one in self._all if not one.busy]
        if self._door is None or not idle:
            return
        one = chance.choice(idle)
        if one.generation < 0:
            self._join(one)
        elif one.owned is None:
            self._sync(one)
        else:
            steps = [self._commit] * 4 + [self._heartbeat] * 4 + [self._join, self._leave, self._vanish]
            chance.choice(steps)(one)

    # -- asking -------------------------------------------------------------------------------------

    def _ask(
        self, one: _Member, api: ApiKey, version: int, message: Mapping[str, Any], done: Callable[[Message], None]
    ) -> None:
        if self._door is None:
            raise AssertionError("members need the door")
        if one.connection is None:
            one.connection = self._door.connect()
        one.busy = True
        one.asked_us = self._clients.clock.now_us

        def answered(answer: Message) -> None:
            one.busy = False
            done(answer)

        whole = {"group_id": MEMBERS_GROUP, "group_instance_id": None, **message}
        self._door.ask(api, version, whole, self._clients.answer(answered), one.connection)

    def _refused(self, one: _Member, what: str, code: int) -> bool:
        """Whether a request was; then it joins again. Raises BrokenPromise where nothing explains why."""
        if code == ErrorCode.NONE:
            one.heard_us = one.asked_us  # its session restarts with the request, however late the response comes
            return False
        self._clients.trace("%s: %s: %s", one.name, what, ErrorCode(code).name)
        if code in _UNAVAILABLE:
            if not (self._clients.faults.failed or (self._door is not None and self._door.is_stopping)):
                raise BrokenPromise(f"{one.name}: {what} is refused with {ErrorCode(code).name}, without a reason")
        elif not self._joins_again(code):
            raise BrokenPromise(f"{one.name}: {what} is refused with {ErrorCode(code).name}")
        elif self._has_to_know(one):
            raise BrokenPromise(f"{one.name}: {what} is refused with {ErrorCode(code).name}, and nobody has rebalanced")
        elif code == ErrorCode.UNKNOWN_MEMBER_ID and one.generation == self._group.assigned:
            self._group.disturbed()  # its session has ended: the others are to join again
        id_ = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else one.id
        one.forget()
        one.id = id_
        return True

    def _joins_again(self, code: int) -> bool:
        """Whether it says that a member is to join again: a group of which damage has taken all is not there."""
        return code in _JOIN_AGAIN or (code == ErrorCode.GROUP_ID_NOT_FOUND and self._group.lost)

    def _has_to_know(self, one: _Member) -> bool:
        """Whether the group has this member in its generation: nobody joined, left or was silent for too long."""
        if one.owned is None or not self._group.is_settled(one.generation):
            return False
        if one.generation != self._group.assigned or any(other.joining for other in self._all):
            return False
        return not any(self._is_silent(other) for other in self._all if other.generation == one.generation)

    def _is_silent(self, one: _Member) -> bool:
        """Whether its session may have ended."""
        return self._clients.clock.now_us - one.heard_us >= _SESSION_MS * 1000

    # -- steps --------------------------------------------------------------------------------------

    def _join(self, one: _Member) -> None:
        self._group.disturbed()
        one.joining = True
        message = {
            "session_timeout_ms": _SESSION_MS, "rebalance_timeout_ms": _REBALANCE_MS, "member_id": one.id,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}], "reason": None,
        }  # fmt: skip
        self._clients.trace("%s joins as %s", one.name, one.id or "nobody")
        self._ask(one, ApiKey.JOIN_GROUP, 9, message, partial(self._joined, one))

    def _joined(self, one: _Member, answer: Message) -> None:
        one.joining = False
        if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED and not one.id:
            one.id = answer["member_id"]
            self._join(one)
            return
        if self._refused(one, "joining", answer["error_code"]):
            return
        one.id, one.generation, one.owned = answer["member_id"], answer["generation_id"], None
        one.leads = answer["leader"] == one.id
        one.members = tuple(member["member_id"] for member in answer["members"])
        self._clients.trace("%s is %s in generation %d of %d", one.name, one.id, one.generation, len(one.members))
        self._group.joined(one.generation, answer["leader"])
        if one.leads:
            self._group.led(one.generation, one.members)
        if self._clients.chance.random() < _AT_ONCE:
            self._sync(one)

    def _sync(self, one: _Member) -> None:
        assignments: dict[str, bytes] = {}
        if one.leads and one.members:
            owned: dict[str, list[str]] = {member: [] for member in one.members}
            for at, (history, _) in enumerate(self._clients.histories()):
                owned[one.members[at % len(one.members)]].append(str(history))
            assignments = {member: ",".join(names).encode() for member, names in owned.items()}
            self._group.gives(one.generation, assignments)
        message = {
            "generation_id": one.generation, "member_id": one.id, "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member, "assignment": data} for member, data in assignments.items()],
        }  # fmt: skip
        self._ask(one, ApiKey.SYNC_GROUP, 5, message, partial(self._synced, one))

    def _synced(self, one: _Member, answer: Message) -> None:
        if self._refused(one, "asking for its assignment", answer["error_code"]):
            return
        data = bytes(answer["assignment"])
        one.owned = data.decode().split(",") if data else []
        self._clients.trace("%s owns %s in generation %d", one.name, data.decode(), one.generation)
        self._group.synced(one.generation, one.id, data, one.owned)

    def _heartbeat(self, one: _Member) -> None:
        message = {"generation_id": one.generation, "member_id": one.id}
        told, generation = self._group.told, one.generation

        def answered(answer: Message) -> None:
            if not self._refused(one, "a heartbeat", answer["error_code"]):
                self._group.accepted("a heartbeat", generation, told)

        self._ask(one, ApiKey.HEARTBEAT, 4, message, answered)

    def _leave(self, one: _Member) -> None:
        self._group.disturbed()
        id_ = one.id
        self._clients.trace("%s leaves", one.name)
        one.forget()

        def answered(answer: Message) -> None:
            code = answer["error_code"] or answer["members"][0]["error_code"]
            self._refused(one, "leaving", code)

        members = [{"member_id": id_, "group_instance_id": None, "reason": None}]
        self._ask(one, ApiKey.LEAVE_GROUP, 5, {"members": members}, answered)

    def _vanish(self, one: _Member) -> None:
        """The client ends without a word, and another takes its place."""
        self._group.disturbed()
        self._clients.trace("%s is not heard of any more", one.name)
        if one.connection is not None:
            one.connection.close()
        one.connection = None
        one.forget()

    # -- offsets ------------------------------------------------------------------------------------

    def _commit(self, one: _Member) -> None:
        clients = self._clients
        owned = [history for history, _ in clients.histories() if str(history) in (one.owned or ())]
        if not owned:
            return
        history = clients.chance.choice(owned)
        model = clients.checker.commits(OffsetKey(MEMBERS_GROUP, history.name, history.partition))
        offset = clients.number()
        model.ask(offset)
        clients.trace("%s commits %d of %s", one.name, offset, history)
        message = self._offset(one, history, offset)
        told = self._group.told
        self._ask(
            one, ApiKey.OFFSET_COMMIT, 9, message, partial(self._committed, one, one.generation, told, model, offset)
        )

    def _offset(self, one: _Member, history: LogHistory, offset: int) -> dict[str, Any]:
        place = {"partition_index": history.partition, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": history.name, "partitions": [place]}]
        return {"generation_id_or_member_epoch": one.generation, "member_id": one.id, "topics": topics}

    def _committed(
        self, one: _Member, generation: int, told: int, model: CommittedModel, offset: int, answer: Message
    ) -> None:
        code = answer["topics"][0]["partitions"][0]["error_code"]
        if code == ErrorCode.NONE:
            self._group.accepted("a commit", generation, told)
            model.acknowledged(offset)
        elif self._joins_again(code):
            model.refused(offset)
        else:
            model.failed(offset)
        self._refused(one, "a commit", code)
