"""What does not pass, and why: it is shown on the page."""

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["KNOWN", "NOTES", "OPEN", "ORDER"]

KNOWN: Final[Mapping[tuple[str, str], str]] = {
    ("confluent-kafka-javascript", "keys"): "it hands an empty key over as null",
    ("confluent-kafka-javascript", "values"): "it hands an empty value over as null",
    ("franz-go", "topic re-created, consumer"): "it keeps to a topic's first id until its program purges the topic",
}
"""What clients cannot do although they have a call for it, by client and behaviour. One that passes is an error."""

OPEN: Final[Mapping[str, str]] = {}
"""What Duramen does not do yet, by behaviour. One that passes goes with the next change of this file."""

ORDER: Final[Sequence[str]] = (
    "confluent-kafka", "kafka-python", "aiokafka", "kcat", "kafka-clients 4.4.0", "kafka-clients 4.1.1", "franz-go",
    "sarama", "confluent-kafka-javascript", "kafkajs", "rust-rdkafka",
)  # fmt: skip
"""The clients in the order of the page; others come behind them."""

NOTES: Final[Sequence[str]] = (
    "## What differs from Apache Kafka",
    "",
    (
        "- Duramen trusts the largest timestamp of a batch of several records, unless it reads the records anyway "
        "(compaction, `message.timestamp.before.max.ms`, a time that would be too late) or the batch has a single "
        "uncompressed record. Kafka recomputes it. Reading 1,000 records takes 0.3 ms, twenty times the append of "
        "their batch. A wrong timestamp affects only searches by time and the retention of the producer's own records."
    ),
    (
        "- For the same reason compressed records are usually not decompressed at an append. If a batch has a valid "
        "checksum but corrupt compressed records, consumers notice. Kafka refuses such a batch with an unknown server "
        "error. No known client makes one."
    ),
    (
        "- kafkajs writes a wrong largest timestamp if timestamps have different numbers of digits. Searches by time "
        "do not find these records."
    ),
    (
        "- kafka-configs alters a node's loggers and the settings that can change at runtime, the defaults of streams. "
        "A node reads its other settings at the start."
    ),
    "- There are no ACLs. MirrorMaker 2 reports that it cannot copy them, unless `sync.topic.acls.enabled=false`.",
    "- There are no SCRAM users: `kafka-configs --entity-type users` shows quotas, and then reports that.",
    "- ListConfigResources of Kafka 4.1 is missing: tools of 4.1 cannot list configs of groups and client metrics.",
    "- No client may write to Kafka's internal topics, whatever its client id.",
)
"""What the page says at its end, in lines of Markdown."""
