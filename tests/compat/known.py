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
        "- The largest timestamp of a batch of several records is believed as the producer wrote it, unless its "
        "records are looked at anyway (compaction, `message.timestamp.before.max.ms`, a time that would be too late) "
        "or there is only one, not compressed; Kafka works it out anew. Looking at 1,000 records takes 0.3 ms here, "
        "twenty times what appending their batch does; a producer that lies misleads those who look for its own "
        "records by time, and their retention."
    ),
    (
        "- What is compressed is not looked into when it is appended, unless for one of these reasons: where the "
        "checksum of a batch is right and its compressed records are damaged, its readers notice. Kafka refuses such a "
        "batch with an unknown server error; no client known makes one."
    ),
    "- kafkajs writes a wrong one where times differ in their number of digits: these records are not found by time.",
    (
        "- kafka-configs alters a node's loggers and those of its settings that can change while it runs, the defaults "
        "of streams; the others are read when it starts."
    ),
    "- There are no ACLs; MirrorMaker 2 says that it cannot copy them, unless `sync.topic.acls.enabled=false`.",
    "- There are no SCRAM users: `kafka-configs --entity-type users` shows quotas, then says so.",
    "- ListConfigResources came with Kafka 4.1: the tools of 4.1 cannot list the configs of groups and client metrics.",
    "- A client that writes to Kafka's internal topics is refused, whatever it calls itself.",
)
"""What the page says at its end, in lines of Markdown."""
