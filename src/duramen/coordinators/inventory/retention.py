"""Retention of the inventory's topics: that of their namespaces, and their own, which is stored with their records."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from duramen.base.catalogue.queues import QUEUE_RETENTION
from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.inventory.directory import Directory
from duramen.inventory.events import Policies
from duramen.inventory.ids import TopicKey
from duramen.inventory.policies import inherited, read_policies
from duramen.inventory.rows import sequence_of_policies, topic_policies_key
from duramen.queues.owned_sweep import OwnedKept
from duramen.queues.owners import NOT_SAID, OwnRetention
from duramen.queues.retention import ALL, Retention

__all__ = ["InventoryRetention", "own_retention", "says_retention"]

_AT_ONCE: Final = 100
_BOUNDS: Final = QUEUE_RETENTION[1:]


def own_retention(policies: Policies) -> OwnRetention:
    """The retention in a topic's own policies."""
    return OwnRetention(*(int(policies.get(name, NOT_SAID)) for name in QUEUE_RETENTION))


def says_retention(names: Iterable[str]) -> bool:
    """Whether some of these policies concern retention."""
    return any(name in QUEUE_RETENTION for name in names)


class InventoryRetention:
    """The retention of topics by the policies of their namespaces.

    Topics store a different retention with their records.
    """

    def __init__(self, shards: InventoryShards) -> None:
        self._shards = shards
        self._kept: OwnedKept | None = None
        self._loads: dict[int, int] = {}

    # -- policies of namespaces ---------------------------------------------------------------------

    def kept(self) -> OwnedKept | None:
        """The retention of each namespace, as known on this node; None: unknown yet."""
        directory = self._shards.known_directory()
        if directory is None:
            return None
        version = directory, directory.version
        if self._kept is None or self._kept.version != version:
            counts = any(map(directory.policies.sets, _BOUNDS))
            self._kept = OwnedKept(version, _Namespaces(directory).kept, counts)
        return self._kept

    def refresh(self, done: Done) -> None:
        """Look up the present policies of namespaces; `done` gets an error if that fails."""
        self._shards.read(self._shards.directory, done)

    # -- policies of topics -------------------------------------------------------------------------

    def tell(self, key: TopicKey, policies: Policies, done: Done) -> None:
        """Store a topic's own retention with its records. `done` gets None or an error."""

        def found(namespace: int | DuramenError) -> None:
            if isinstance(namespace, DuramenError):
                done(namespace)
            elif not namespace:
                done(None)  # the topic is deleted
            else:
                self._shards.own(key, namespace, own_retention(policies), told)

        def told(answer: object) -> None:
            done(answer if isinstance(answer, DuramenError) else None)

        self._shards.read(lambda: self._shards.rows().place(key).namespace, found)

    def resume(self) -> None:
        """Store the retention of topics in newly loaded shards again: a crash may have come before it was stored."""
        for shard in self._shards.loaded():
            if self._loads.get(shard.index) != shard.loads:
                self._loads[shard.index] = shard.loads
                self._tell_some(shard.index, shard.loads, 0)

    def _tell_some(self, shard: int, loads: int, first: int) -> None:
        """Store the retention of some topics from a sequence on; then of the next ones."""
        found = list[tuple[TopicKey, Policies]]()
        try:
            rows = self._shards.each_rows()[shard]
        except DuramenError:
            self._loads.pop(shard, None)  # the step is resumed later
            return
        for number, (key, value) in enumerate(rows.scan(topic_policies_key(first), b"p")):
            if number == _AT_ONCE:
                break
            first = sequence_of_policies(key) + 1
            found.append((TopicKey(shard, first - 1), read_policies(value)))
        self._tell_each(shard, loads, first, [one for one in found if says_retention(one[1])], len(found) == _AT_ONCE)

    def _tell_each(
        self, shard: int, loads: int, first: int, told: Sequence[tuple[TopicKey, Policies]], more: bool
    ) -> None:
        def all_told() -> None:
            if more and self._loads.get(shard) == loads:
                self._shards.later(0, partial(self._tell_some, shard, loads, first))

        parts = Countdown(all_told, len(told) + 1)

        def answered(answer: object) -> None:
            if isinstance(answer, DuramenError):
                self._loads.pop(shard, None)
            parts.count_down()

        for key, policies in told:
            self.tell(key, policies, answered)
        parts.count_down()


class _Namespaces:
    """The retention of namespaces by one state of the directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._kept: dict[int, Retention] = {}

    def kept(self, namespace: int) -> Retention:
        """The retention of a namespace. A deleted namespace keeps everything: nobody reads it."""
        found = self._kept.get(namespace)
        if found is None:
            chain = [own for _, own in self._directory.policies_of(namespace)]
            said = [inherited(name, chain) for name in QUEUE_RETENTION]
            found = Retention(*(-1 if value is None else int(value) for value in said))
            self._kept[namespace] = found = ALL if found == ALL else found
        return found
