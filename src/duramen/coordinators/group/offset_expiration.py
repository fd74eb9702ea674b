"""Removes committed offsets: those of deleted topics, and old ones of groups without members."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.coordinators.group.kinds import GroupKinds
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.group.rows import Key
from duramen.coordinators.group.topics import LASTING, GroupTopics
from duramen.groups.records import CommittedOffset, decode_key

__all__ = ["OffsetExpiration", "record_keys"]

_OFFSETS_AT_ONCE: Final = 1000


def record_keys(encoded: Sequence[bytes]) -> list[Key]:
    """The decoded keys of records of a group."""
    return [key for record_key in encoded if (key := decode_key(record_key)) is not None]


class OffsetExpiration:
    """Removes offsets of the groups that this node coordinates."""

    def __init__(
        self, offsets: GroupOffsets, kinds: GroupKinds, topics: GroupTopics, clock: Clock, deadlines: Deadlines,
        retention_ms: int,
    ) -> None:  # fmt: skip
        """`retention_ms` is how long a group without members keeps its offsets."""
        self._offsets = offsets
        self._kinds = kinds
        self._topics = topics
        self._clock = clock
        self._deadlines = deadlines
        self._retention_ms = retention_ms
        self._gone: dict[str, None] = {}
        self._forgetting = False

    def forget_topic(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for _ in self.forget_where(lambda known: known == topic):
            pass

    def forget_light_topic(self, stored: str) -> None:
        """Delete the committed offsets of a deleted topic of the inventory, step by step."""
        self._gone[stored] = None
        if not self._forgetting and self._offsets.ready:
            self._forgetting = True
            gone, self._gone = self._gone, {}
            self._step(self.forget_where(gone.__contains__))

    def _step(self, steps: Iterator[None]) -> None:
        if next(steps, steps) is not steps:
            self._deadlines.at(self._clock.monotonic_ms(), partial(self._step, steps))
            return
        self._forgetting = False
        if self._gone:
            self.forget_light_topic(self._gone.popitem()[0])

    def forget_where(self, gone: Callable[[str], bool], index: int | None = None) -> Iterator[None]:
        """Delete, step by step, the offsets of topics that are gone; in one partition, or in all (None)."""
        by_group: dict[str, list[Key]] = {}
        for at, key in enumerate(self._offsets.each_key(index), 1):
            if gone(key.topic):
                by_group.setdefault(key.group, []).append(key)
            if not at % _OFFSETS_AT_ONCE:
                yield
        self._remove_all(by_group)

    def _remove_all(self, by_group: dict[str, list[Key]]) -> None:
        for group_id, keys in by_group.items():
            self._offsets.remove(group_id, keys, lambda _: None)

    def expire(self) -> None:
        """Expire offsets of groups without members that are older than offsets.retention.minutes.

        An offset stays while an open transaction commits a newer one in its place: the tombstone would override that
        record.
        """
        before_ms = self._clock.wall_ms() - self._retention_ms
        expired: dict[str, list[Key]] = {}
        remaining: set[str] = set()
        light: dict[str, None] = {}
        for key, committed in self._offsets.each_offset():
            if key.topic.startswith(LASTING):
                light[key.topic] = None
            if self._idle_since(key.group, committed) < before_ms and not self._offsets.unstable(key):
                expired.setdefault(key.group, []).append(key)
            else:
                remaining.add(key.group)
        for groups in self._kinds:
            for listed in list(groups.listing()):
                empty_since_ms = groups.empty_since_ms(listed.group_id)
                if listed.group_id not in remaining and empty_since_ms is not None and empty_since_ms < before_ms:
                    expired.setdefault(listed.group_id, []).extend(record_keys(groups.remove(listed.group_id)))
        self._remove_all(expired)
        if light and not self._forgetting:
            self._forgetting = True
            self._topics.when_known(light, lambda _: self._step(self.forget_where(self._is_gone_light)))

    def _is_gone_light(self, topic: str) -> bool:
        """Whether a topic of the inventory no longer exists, for example because its namespace was deleted."""
        return topic.startswith(LASTING) and self._topics.is_gone(topic)

    def _idle_since(self, group_id: str, committed: CommittedOffset) -> int:
        """When the offset was last in use (ms); now while the group has members."""
        found = self._kinds.of(group_id)
        empty_since_ms = 0 if found is None else found.empty_since_ms(group_id)
        return self._clock.wall_ms() if empty_since_ms is None else max(empty_since_ms, committed.commit_ms)
