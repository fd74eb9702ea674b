"""The effects of raising a cluster's feature level, and the highest possible level. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from duramen.broker.min_in_sync import min_in_sync
from duramen.metadata.features import LATEST_LEVEL
from duramen.metadata.state import ControllerState

__all__ = ["Upgrade", "UpgradeChange", "upgrade_of"]


class UpgradeChange(NamedTuple):
    """A stream whose default of `min.insync.replicas` changes."""

    stream: str
    before: int
    after: int


class Upgrade(NamedTuple):
    """From `level` to `highest_level`, which all nodes support.

    `older` are nodes that support less than this version.
    """

    level: int
    highest_level: int
    older: Sequence[int]
    changes: Sequence[UpgradeChange]


def upgrade_of(state: ControllerState) -> Upgrade:
    """The effects of an upgrade to the highest level that all registered nodes support."""
    latest = {node.id: node.latest_feature_level for node in state.registrations}
    highest = max(state.feature_level, min(latest.values(), default=state.feature_level))
    changes = []
    for stream in state.streams.values():
        before, after = (min_in_sync(state, stream, level) for level in (state.feature_level, highest))
        if before != after:
            changes.append(UpgradeChange(stream.name, before, after))
    older = sorted(node_id for node_id, level in latest.items() if level < LATEST_LEVEL)
    return Upgrade(state.feature_level, highest, older, sorted(changes))
