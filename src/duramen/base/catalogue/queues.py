"""The settings of queue spaces, and the configs of a stream that conflict with them."""

import re
from collections.abc import Mapping
from typing import Final

from duramen.base.settings import Setting, Value, entries

__all__ = [
    "DEAD_LETTER_QUEUE",
    "DELIVERY_COUNT_LIMIT",
    "KIND",
    "LOG_RETENTION_MS",
    "QUEUES",
    "QUEUE_RETENTION",
    "QUEUE_VALUES",
    "SHARD_MAX_BYTES",
    "SHARD_MAX_ENTRIES",
    "STREAM_SETTINGS",
    "TOPIC_PREFIX",
    "queues_problem",
]

KIND: Final = "kind"
QUEUES: Final = "queues"
LOG_RETENTION_MS: Final = "queue.log.retention.ms"
DEAD_LETTER_QUEUE: Final = "queue.dead.letter.queue"
DELIVERY_COUNT_LIMIT: Final = "queue.delivery.count.limit"
TOPIC_PREFIX: Final = "queue.topic.prefix"
SHARD_MAX_ENTRIES: Final = "queue.shard.max.entries"
SHARD_MAX_BYTES: Final = "queue.shard.max.bytes"
_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_HOUR_MS: Final = 3_600_000
_LONGEST_NAME_BYTES: Final = 255

QUEUE_VALUES: Final[Mapping[str, Value]] = {
    "cleanup.policy": "delete", "durability": "sync",
}  # fmt: skip
"""What these configs are for every queue space."""
QUEUE_RETENTION: Final = ("retention.ms", "retention.bytes", "retention.records")
"""The configs of a queue space that limit each queue; the defaults keep everything."""

# fmt: off
STREAM_SETTINGS: Final = (
    Setting(KIND, "choice", "log",
            "The kind of the stream: `log`, or `queues` for a queue space, whose partitions are shards of queues. It "
            "is fixed at creation.",
            scope="stream", choices=("log", QUEUES)),
    Setting(LOG_RETENTION_MS, "integer", _HOUR_MS,
            "The minimum time for which operations on a queue space can be consumed from its log. It does not affect "
            "entries of queues.",
            scope="stream", dynamic=True, unit="ms", minimum=0),
    Setting(DEAD_LETTER_QUEUE, "text", "",
            "The queue of the space for dead letters: an entry that was delivered `queue.delivery.count.limit` times "
            "without an acknowledgement moves there. Empty: such entries are delivered without limit.",
            scope="stream", dynamic=True),
    Setting(DELIVERY_COUNT_LIMIT, "integer", 5,
            "The number of deliveries after which an entry of a queue moves to `queue.dead.letter.queue`.",
            scope="stream", dynamic=True, minimum=1, maximum=1000),
    Setting(TOPIC_PREFIX, "text", "",
            "The prefix of the Kafka topics of a queue space's queues: with `mail.` the queue `alice` is the topic "
            "`mail.alice`. Without a prefix queues have no topics. The name of a stream may not begin with it.",
            scope="stream", dynamic=True),
    Setting(SHARD_MAX_ENTRIES, "integer", -1,
            "The maximum number of entries in all queues of a shard of a queue space; -1 means no limit. New entries "
            "beyond it are refused (`queue-space-full`). Requests in progress at the same time may exceed it together.",
            scope="stream", dynamic=True, minimum=-1),
    Setting(SHARD_MAX_BYTES, "integer", -1,
            "The size of all queues of a shard of a queue space, as `duramen queue stats` counts it, from which on new "
            "entries are refused (`queue-space-full`); -1 means no limit. Requests in progress at the same time may "
            "exceed it together.",
            scope="stream", dynamic=True, unit="bytes", minimum=-1),
)
# fmt: on


def queues_problem(values: Mapping[str, Value], *, internal: bool = False) -> str | None:
    """The reason why a stream with these configs (possibly incomplete) cannot be a queue space; None if it can.

    The broker's own spaces may have the durability `os` too.
    """
    prefix = str(values.get(TOPIC_PREFIX, ""))
    if values.get(KIND) != QUEUES:
        limits = [name for name in (SHARD_MAX_ENTRIES, SHARD_MAX_BYTES) if int(values.get(name, -1)) >= 0]
        found = [TOPIC_PREFIX] if prefix else limits
        return f"{found[0]} is for streams of kind={QUEUES}" if found else None
    if prefix and (not _PREFIX.fullmatch(prefix) or prefix.startswith("__")):
        return (
            f"{TOPIC_PREFIX}={prefix[:120]} does not fit: 1 to 100 of the characters a-z, A-Z, 0-9, '.', '_' and '-',"
            " not beginning with __"
        )
    if values.get("keyed"):
        return "kind=queues and keyed=true exclude each other"
    if len(str(values.get(DEAD_LETTER_QUEUE, "")).encode()) > _LONGEST_NAME_BYTES:
        return f"{DEAD_LETTER_QUEUE} is the name of a queue, with at most {_LONGEST_NAME_BYTES} bytes"
    if str(values.get("table.upsert.by", "none")) != "none":
        return "kind=queues takes no table.upsert.by: its records are operations, and their key is the queue's name"
    for name, value in QUEUE_VALUES.items():
        given = values.get(name, value)
        same = entries(str(given)) == [value] if name == "cleanup.policy" else given == value
        same = same or (internal and name == "durability" and given == "os")
        if not same:
            if name == "durability":
                return f"kind=queues needs {name}={value}, not {given}: operations are answered when they are on disk"
            return (
                f"kind=queues needs {name}={value}, not {given}: retention.ms, retention.bytes and retention.records"
                f" say what is kept of each queue, and {LOG_RETENTION_MS} how long operations can be consumed"
            )
    return None
