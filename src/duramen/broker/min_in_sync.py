"""The effective `min.insync.replicas` of a stream, also if it is not set and follows the number of replicas."""

from typing import Final

from duramen.broker.stream_configs import ConfigEntry
from duramen.broker.streams import Stream
from duramen.metadata.state import ControllerState, StreamState
from duramen.metadata.stream_rules import rules_from

__all__ = ["MIN_IN_SYNC", "config_entries", "min_in_sync"]

MIN_IN_SYNC: Final = "min.insync.replicas"


def min_in_sync(state: ControllerState, stream: StreamState, feature_level: int) -> int:
    """The effective value of a stream at a feature level: the highest of its partitions."""
    rules = rules_from(stream.config, state.node_configs.get(None, {}), feature_level)
    partitions = state.partitions.of_stream(stream.id).values()
    return max((rules.least_in_sync(partition) for partition in partitions), default=1)


def config_entries(state: ControllerState, stream: Stream) -> list[ConfigEntry]:
    """Every config of a stream, in the order of the catalogue, as clients are shown it."""
    entries = stream.config.entries()
    for at, entry in enumerate(entries):
        if entry.setting.name == MIN_IN_SYNC and entry.source == "default":
            least = min_in_sync(state, stream.state, state.feature_level)
            synonyms = tuple((name, least, source) for name, _, source in entry.synonyms)
            entries[at] = entry._replace(value=least, synonyms=synonyms)
    return entries
