"""Migration of groups from the classic protocol to the consumer protocol, and back (KIP-848). Pure.

A classic group of consumers is converted when the first member joins with the consumer protocol. When the last such
member leaves, the remaining ones form a classic group again, which rebalances.
"""

from typing import NamedTuple

from duramen.base.errors import GroupNotFound, InconsistentProtocol, RequestInvalid
from duramen.codec.kafka.membership import decode_assignment, encode_assignment
from duramen.groups.consumer_classic import CONSUMERS, names_of, places_of, subscription_of
from duramen.groups.consumer_table import ConsumerTable
from duramen.groups.consumer_values import ClassicSide, ConsumerMember
from duramen.groups.group import Group
from duramen.groups.topics import TopicCatalogue
from duramen.groups.values import GroupSnapshot, MemberSnapshot

__all__ = ["MigrationPolicy", "downgraded", "upgraded"]


class MigrationPolicy(NamedTuple):
    """Which ways are open (`group.consumer.migration.policy`)."""

    upgrade: bool
    downgrade: bool

    @classmethod
    def named(cls, name: str) -> "MigrationPolicy":
        """The policy of that name."""
        return cls(name in ("bidirectional", "upgrade"), name in ("bidirectional", "downgrade"))


def upgraded(group: Group, topics: TopicCatalogue, max_size: int) -> ConsumerTable:
    """A classic group with members as one of the consumer protocol, in the epoch of its generation.

    Raises GroupNotFound if it cannot be converted, as in Kafka; `group` is not changed.
    """
    if group.protocol_type != CONSUMERS:
        raise GroupNotFound(f"group {group.id} is a classic one of {group.protocol_type}, not of consumers")
    if len(group.members) > max_size:
        raise GroupNotFound(f"group {group.id} has {len(group.members)} members, more than one of consumers may have")
    table = ConsumerTable(group.id)
    for member in group.members:
        protocols = tuple((name, bytes(metadata)) for name, metadata in member.protocols)
        try:
            wanted = subscription_of(protocols)
            assigned = places_of(topics, decode_assignment(member.assignment))
        except (InconsistentProtocol, RequestInvalid) as error:
            raise GroupNotFound(f"group {group.id} cannot go over to the consumer protocol: {error}") from None
        table.put(
            ConsumerMember(
                member.id, member.instance_id, wanted.rack_id, member.client_id, member.client_host, wanted.topics,
                None, member.rebalance_timeout_ms, None, ClassicSide(member.session_timeout_ms, protocols),
                group.generation, group.generation, assigned=assigned,
            )
        )  # fmt: skip
        table.set_target(member.id, assigned)
    table.set_epoch(group.generation, 0)
    table.set_target_epoch(group.generation)
    return table


def downgraded(
    table: ConsumerTable, topics: TopicCatalogue, now_ms: int, *, initial_delay_ms: int, max_size: int
) -> tuple[Group, GroupSnapshot]:
    """The classic group of members that are all of the classic protocol, which rebalances; and its records.

    Its generation is the epoch that its members are in, or are moving to: a member in it is only asked to join again,
    and may commit its offsets until then. (The table's own epoch may be higher: a member that just left raised it, and
    no member has received it.) It is stored without a leader: so it rebalances after a restart too.
    """
    sides = {member.id: member.classic for member in table.members.values() if member.classic is not None}
    protocol = _common(list(sides.values()))
    members = tuple(
        MemberSnapshot(
            member.id, member.instance_id, member.client_id, member.client_host, sides[member.id].session_timeout_ms,
            member.rebalance_timeout_ms, dict(sides[member.id].protocols)[protocol],
            encode_assignment(names_of(topics, member.assigned)),
        )
        for member in table.members.values()
    )  # fmt: skip
    snapshot = GroupSnapshot(table.target_epoch, CONSUMERS, protocol, None, members)
    group = Group.restore(table.group_id, snapshot, now_ms, initial_delay_ms=initial_delay_ms, max_size=max_size)
    for restored in group.members:
        restored.protocols = list(sides[restored.id].protocols)
    return group, snapshot


def _common(sides: list[ClassicSide]) -> str:
    """The first protocol that every member knows."""
    known = [{name for name, _ in side.protocols} for side in sides]
    return next(name for name, _ in sides[0].protocols if all(name in names for names in known))
