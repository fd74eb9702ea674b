"""The start offsets of share groups, for resets of groups: see `duramen.coordinators.group.offset_resets`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.coordinators.group.topics import LASTING
from duramen.coordinators.share.groups import ShareGroups
from duramen.coordinators.share.nodes import ShareNodes
from duramen.coordinators.share.shares import ShareOffset
from duramen.groups.records import OffsetKey
from duramen.groups.share_records import ShareKey

__all__ = ["ShareStarts"]

Located = Mapping[ShareKey, ShareOffset | DuramenError | None]


class ShareStarts:
    """The start offsets of the share groups that this node coordinates."""

    def __init__(self, groups: ShareGroups, nodes: ShareNodes) -> None:
        self._groups = groups
        self._nodes = nodes

    def stored(self, group_id: str) -> list[str]:
        """The key names of the topics of a group. Raises GroupNotFound."""
        names = (self._nodes.topics.key_name(key.topic_id) for key in self._groups.keys(group_id))
        return [*dict.fromkeys(name for name in names if name is not None)]

    def find(self, keys: Sequence[OffsetKey], done: Callable[[list[int | None] | DuramenError], None]) -> None:
        """Where a group starts in partitions; None: it has read nothing of one."""
        try:
            wanted = [self._key(key) for key in keys]
            known = {*self._groups.keys(keys[0].group)} if keys else set()
        except DuramenError as error:
            done(error)
            return
        self._nodes.locate([key for key in wanted if key in known], partial(_located, wanted, done))

    def store(
        self, group_id: str, starts: Sequence[tuple[OffsetKey, int]], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Have a group without members start at these offsets; `done` is called once that is durable."""
        try:
            found = [((key.topic_id, key.partition), start) for key, start in ((self._key(k), at) for k, at in starts)]
        except DuramenError as error:
            done(error)
        else:
            self._groups.alter_offsets(group_id, found, done)

    def _key(self, key: OffsetKey) -> ShareKey:
        """Raises StreamNotFound."""
        if key.topic.startswith(LASTING):
            return ShareKey(key.group, UUID(key.topic.removeprefix(LASTING)), key.partition)
        found = self._nodes.topics.find(key.topic)
        if found is None:
            raise StreamNotFound(f"there is no topic {key.topic} that share groups read")
        return ShareKey(key.group, found[0], key.partition)


def _located(
    wanted: Sequence[ShareKey], done: Callable[[list[int | None] | DuramenError], None], found: Located
) -> None:  # fmt: skip
    starts = [found.get(key) for key in wanted]
    error = next((one for one in starts if isinstance(one, DuramenError)), None)
    done(error or [_start(one) for one in starts])


def _start(found: ShareOffset | DuramenError | None) -> int | None:
    return found.start_offset if isinstance(found, ShareOffset) and found.start_offset >= 0 else None
