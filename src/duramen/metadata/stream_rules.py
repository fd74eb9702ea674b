"""The configs of a stream about its replicas. Pure.

They come only from the metadata log, from the stream or from a change for every node, never from the file or
environment of one node: every node must use the same numbers, or an acknowledgement means two things.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.ids import StreamId
from duramen.base.insync import least_in_sync
from duramen.base.settings import Value, check
from duramen.metadata.features import MetadataFeature
from duramen.metadata.partitions import PartitionState
from duramen.metadata.state import ControllerState

__all__ = ["Loss", "ReplicationRules", "RulesOf", "rules_from", "rules_of"]

_MIN_INSYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
_DURABILITY: Final = "durability"


class Loss(Enum):
    """The records that a node may lack after its return."""

    NOTHING = "nothing"
    MEMORY = "what was in memory only"
    """Its process was replaced."""
    UNSYNCED = "what was not synced"
    """Its machine may have lost power."""
    DAMAGED = "records that were synced"
    """Damage was found on its disk."""
    ALL = "everything"
    """Its data directory was replaced."""


_PARTLY: Final = frozenset({(Loss.MEMORY, "memory"), (Loss.UNSYNCED, "memory"), (Loss.UNSYNCED, "os")})


class ReplicationRules(NamedTuple):
    """`min_insync_replicas` as configured, None if it depends on the number of replicas.

    `unclean`: a leader that may lack records may be elected now; `may_lose`: the stream's config allows that, once the
    most complete live replica is known. `durability` determines what a node still has of a partition after a restart.
    """

    min_insync_replicas: int | None = 1
    unclean: bool = False
    durability: str = "sync"
    may_lose: bool = False

    def least_in_sync(self, partition: PartitionState) -> int:
        """The number of in-sync replicas for the high watermark to rise: at most the partition's replicas.

        Replicas that a reassignment adds do not count before they are in sync.
        """
        return least_in_sync(self.min_insync_replicas, len(partition.replicas) - len(partition.adding))

    def loses(self, loss: Loss) -> bool:
        """Whether a node with that loss may lack records of a partition."""
        return loss in (Loss.ALL, Loss.DAMAGED) or (loss, self.durability) in _PARTLY


def rules_from(config: Mapping[str, str], defaults: Mapping[str, str], feature_level: int) -> ReplicationRules:
    """The rules by a stream's config, with the changes for every node."""

    def text(name: str) -> str | None:
        return config.get(name) or defaults.get(STREAM[name].broker_default)

    def value(name: str) -> Value:
        setting, found = STREAM[name], text(name)
        return setting.default if found is None else check(setting, found)

    follows = text(_MIN_INSYNC) is None and feature_level >= MetadataFeature.TWO_IN_SYNC
    least = None if follows else int(value(_MIN_INSYNC))
    return ReplicationRules(least, durability=str(value(_DURABILITY)), may_lose=bool(value(_UNCLEAN)))


def rules_of(state: ControllerState, stream_id: StreamId) -> ReplicationRules:
    """The rules of a stream; the default ones if it is unknown."""
    stream = state.stream_by_id(stream_id)
    config = {} if stream is None else stream.config
    return rules_from(config, state.node_configs.get(None, {}), state.feature_level)


class RulesOf:
    """The rules of streams, each computed once; valid while the state does not change."""

    __slots__ = ("_known", "_state")

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._known: dict[StreamId, ReplicationRules] = {}

    def __getitem__(self, stream_id: StreamId) -> ReplicationRules:
        rules = self._known.get(stream_id)
        if rules is None:
            rules = self._known[stream_id] = rules_of(self._state, stream_id)
        return rules
