"""The state of a group of the consumer protocol: members, target, current assignments, and their records.

Every change produces the record that stores it; a table that applies another's records in any order is equal to it.
"""

from typing import Final

from duramen.groups.consumer_records import (
    Key,
    RecordKind,
    decode_assignment,
    decode_key,
    decode_member,
    decode_metadata,
    decode_pattern,
    decode_places,
    decode_target_epoch,
    encode_assignment,
    encode_key,
    encode_member,
    encode_metadata,
    encode_pattern,
    encode_places,
    encode_target_epoch,
)
from duramen.groups.consumer_values import ConsumerMember
from duramen.groups.topics import TopicPartition

__all__ = ["ConsumerTable", "Record"]

Record = tuple[bytes, bytes | None]
"""A record's key and value; None is a tombstone."""

_SUBSCRIPTION: Final = slice(
    0, ConsumerMember._fields.index("epoch")
)  # the fields of the record of a member's subscription
_ASSIGNMENT: Final = slice(_SUBSCRIPTION.stop, None)  # the fields of the record of its assignment
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()
_MEMBER_BYTES: Final = 1024
_PLACE_BYTES: Final = 200


class ConsumerTable:
    """The state; `take_records` returns the changes since the last call."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, frozenset[TopicPartition]] = {}
        self.patterns: dict[str, frozenset[str]] = {}  # the topics that each regular expression matches
        self._static: dict[str, str] = {}  # member ids by group.instance.id
        self._owner: dict[TopicPartition, str] = {}  # the member that has a partition, or has not revoked it yet
        self._records: dict[bytes, bytes | None] = {}

    # -- asking -------------------------------------------------------------------------------------

    def static(self, instance_id: str | None) -> ConsumerMember | None:
        """The static member of that instance id."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def owner(self, place: TopicPartition) -> str | None:
        """The member that has a partition."""
        return self._owner.get(place)

    def target_of(self, member_id: str) -> frozenset[TopicPartition]:
        """A member's target."""
        return self.target.get(member_id, _NOTHING)

    def subscribed(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member wants."""
        if member.pattern is None:
            return member.topics
        return member.topics | self.patterns.get(member.pattern, frozenset())

    def held_bytes(self) -> int:
        """Its approximate memory."""
        size = 0
        for member in self.members.values():
            places = len(member.assigned) + len(member.revoking) + len(self.target_of(member.id))
            size += _MEMBER_BYTES + _PLACE_BYTES * places + sum(map(len, member.topics)) + len(member.pattern or "")
        return size + sum(len(name) for names in self.patterns.values() for name in names)

    def take_records(self) -> list[Record]:
        """The records of the changes; once."""
        records, self._records = self._records, {}
        return list(records.items())

    def every_key(self) -> list[bytes]:
        """The keys of all records there may be."""
        named = [
            *(
                Key(kind, self.group_id, one)
                for one in self.members
                for kind in (RecordKind.ASSIGNMENT, RecordKind.MEMBER)
            ),
            *(Key(RecordKind.TARGET, self.group_id, one) for one in self.target),
            *(Key(RecordKind.PATTERN, self.group_id, one) for one in self.patterns),
        ]
        alone = [Key(kind, self.group_id) for kind in (RecordKind.TARGET_EPOCH, RecordKind.GROUP)]
        return [encode_key(key) for key in (*named, *alone)]

    # -- changing -----------------------------------------------------------------------------------

    def _note(self, kind: RecordKind, value: bytes | None, name: str = "") -> None:
        key = encode_key(Key(kind, self.group_id, name))
        self._records.pop(key, None)
        self._records[key] = value

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        old = self.members.get(member.id)
        if old == member:
            return
        if old is None or old[_SUBSCRIPTION] != member[_SUBSCRIPTION]:
            self._note(RecordKind.MEMBER, encode_member(member), member.id)
        if old is None or old[_ASSIGNMENT] != member[_ASSIGNMENT]:
            self._note(RecordKind.ASSIGNMENT, encode_assignment(member), member.id)
        self._set(old, member)

    def _set(self, old: ConsumerMember | None, member: ConsumerMember) -> None:
        if old is not None:
            self._release(old)
        self.members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        for place in member.assigned | member.revoking:
            self._owner[place] = member.id

    def _release(self, member: ConsumerMember) -> None:
        for place in member.assigned | member.revoking:
            if self._owner.get(place) == member.id:
                del self._owner[place]
        if member.instance_id is not None and self._static.get(member.instance_id) == member.id:
            del self._static[member.instance_id]

    def remove(self, member_id: str) -> None:
        """Remove a member with its assignment and its target."""
        self._release(self.members.pop(member_id))
        self._note(RecordKind.ASSIGNMENT, None, member_id)
        if self.target.pop(member_id, None) is not None:
            self._note(RecordKind.TARGET, None, member_id)
        self._note(RecordKind.MEMBER, None, member_id)

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The group is in another epoch, reached with the topics of that hash."""
        self.epoch, self.metadata_hash = epoch, metadata_hash
        self._note(RecordKind.GROUP, encode_metadata(epoch, metadata_hash))

    def set_target(self, member_id: str, places: frozenset[TopicPartition]) -> None:
        """A member's target."""
        if self.target.get(member_id) != places:
            self.target[member_id] = places
            self._note(RecordKind.TARGET, encode_places(places), member_id)

    def set_target_epoch(self, epoch: int) -> None:
        """The target is that of this epoch of the group."""
        self.target_epoch = epoch
        self._note(RecordKind.TARGET_EPOCH, encode_target_epoch(epoch, 0))

    def set_pattern(self, pattern: str, topics: frozenset[str] | None) -> None:
        """A regular expression matches these topics; None: it is unused."""
        if topics is None:
            del self.patterns[pattern]
            self._note(RecordKind.PATTERN, None, pattern)
        elif self.patterns.get(pattern) != topics:
            self.patterns[pattern] = topics
            self._note(RecordKind.PATTERN, encode_pattern(topics, 0), pattern)

    # -- after a restart ----------------------------------------------------------------------------

    def replay(self, record_key: bytes, value: bytes) -> None:
        """Apply a stored record. Raises BatchCorrupt."""
        key = decode_key(record_key)
        match key.kind if key is not None else None:
            case RecordKind.GROUP:
                self.epoch, self.metadata_hash = decode_metadata(value)
            case RecordKind.TARGET_EPOCH:
                self.target_epoch = decode_target_epoch(value)
            case RecordKind.TARGET if key is not None:
                self.target[key.name] = decode_places(value)
            case RecordKind.PATTERN if key is not None:
                self.patterns[key.name] = decode_pattern(value)
            case RecordKind.MEMBER if key is not None:
                old = self.members.get(key.name)
                member = decode_member(key.name, value)
                self._set(old, member if old is None else member.holding(old))
            case RecordKind.ASSIGNMENT if key is not None:
                known = self.members.get(key.name)
                self._set(known, decode_assignment(known or ConsumerMember(key.name), value))
            case _:
                pass
