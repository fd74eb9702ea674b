"""The settings of keyed streams, and the configs of a stream that conflict with them."""

from collections.abc import Mapping
from typing import Final

from duramen.base.settings import Setting, Value, entries

__all__ = ["CLEANUP_POLICY", "KEYED", "LIVE_TOPIC", "STREAM_SETTINGS", "keyed_problem"]

KEYED: Final = "keyed"
LIVE_TOPIC: Final = "keyed.live.topic"
CLEANUP_POLICY: Final = "cleanup.policy"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

# fmt: off
STREAM_SETTINGS: Final = (
    Setting(KEYED, "flag", False,
            "Whether the stream can be read as snapshots: each key once, at its newest record. It requires "
            "`cleanup.policy=compact`, which a new stream gets with it. Every record needs a key.",
            scope="stream", dynamic=True),
    Setting(LIVE_TOPIC, "text", "",
            "The name of a read-only topic that shows Kafka consumers the keyed stream without superseded records. "
            "Empty: none. It requires `keyed=true`.",
            scope="stream", dynamic=True),
    Setting("snapshot.retention.ms", "integer", _HOUR_MS,
            "The time for which a snapshot of a keyed stream can be read after its records were superseded; "
            "compaction keeps its records until then.",
            scope="stream", dynamic=True, unit="ms", minimum=0),
    Setting("snapshot.lease.ms", "integer", 10 * _MINUTE_MS,
            "The time for which a lease holds a snapshot of a keyed stream open unless it is renewed. Compaction "
            "keeps the snapshot's records meanwhile.",
            scope="stream", dynamic=True, unit="ms", minimum=1000, maximum=7 * 24 * 60 * _MINUTE_MS),
)
# fmt: on


def keyed_problem(values: Mapping[str, Value]) -> str | None:
    """The reason why a stream with these configs (possibly incomplete) cannot be keyed; None if it can."""
    if not values.get(KEYED):
        return f"{LIVE_TOPIC} needs keyed=true" if values.get(LIVE_TOPIC) else None
    policy = values.get(CLEANUP_POLICY)
    if policy is None or entries(str(policy)) != ["compact"]:
        if values.get("kind") == "queues":
            return "kind=queues and keyed=true exclude each other"
        given = "is not set for this stream" if policy is None else f"is {policy or 'empty'}"
        return f"keyed=true needs cleanup.policy=compact, and that {given}"
    if values.get("durability") == "memory":
        return "keyed=true needs records that outlive a restart, and durability is memory: set sync or os"
    return None
