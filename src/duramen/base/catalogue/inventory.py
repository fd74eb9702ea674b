"""The settings and the policies of the inventory of topics."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from duramen.base.settings import Setting

__all__ = [
    "ACCOUNT",
    "AUTO_CREATION",
    "BYTES_QUOTA",
    "CONSUMER_RATE",
    "DEFAULT_ACCOUNT",
    "DURABILITY",
    "LEVELS",
    "NAME",
    "NAMESPACE",
    "NODE_SETTINGS",
    "POLICIES",
    "PRODUCER_RATE",
    "TENANT",
    "TOPIC",
    "TOPIC_QUOTA",
    "Policy",
]

DEFAULT_ACCOUNT: Final = "default"
NAME: Final = "(?!__)[A-Za-z0-9_-]{1,63}"
"""The regular expression of names of accounts, tenants and namespaces."""
_NAME_EXAMPLE: Final = "1 to 63 of a-z, A-Z, 0-9, - and _, not beginning with __"
_MOST_SHARDS: Final = 1024
_NO_BOUND: Final = (1 << 63) - 1

ACCOUNT: Final = "account"
TENANT: Final = "tenant"
NAMESPACE: Final = "namespace"
TOPIC: Final = "topic"
LEVELS: Final = (ACCOUNT, TENANT, NAMESPACE, TOPIC)
_NOT_TOPIC: Final = LEVELS[:-1]

TOPIC_QUOTA: Final = "quota.topics"
BYTES_QUOTA: Final = "quota.bytes"
PRODUCER_RATE: Final = "producer_byte_rate"
CONSUMER_RATE: Final = "consumer_byte_rate"
AUTO_CREATION: Final = "auto.create.topics.enable"
DURABILITY: Final = "durability"


class Policy(NamedTuple):
    """A policy: its name, values and default, and where it may be set.

    A quota limits the total of everything below the entity on which it is set, and the quotas of all levels apply. For
    other policies the value of the nearest level applies.
    """

    setting: Setting
    levels: tuple[str, ...] = LEVELS
    quota: bool = False


# fmt: off
NODE_SETTINGS: Final = (
    Setting("inventory.account", "text", DEFAULT_ACCOUNT,
            "The account of requests that name none, and of the topics that Kafka clients name.",
            item=NAME, example=_NAME_EXAMPLE),
    Setting("inventory.metadata.namespace", "text", "",
            "TENANT/NAMESPACE: Kafka's Metadata lists the first 10,000 topics of this namespace beside the streams, so "
            "that consumers that match patterns themselves see them. Empty: none.",
            item=f"(?:{NAME}/{NAME})?", example=f"TENANT/NAMESPACE, each {_NAME_EXAMPLE}, or empty"),
    Setting("inventory.shards", "integer", 4,
            "The number of shards of the inventory of topics; fixed when the first tenant is created.",
            minimum=1, maximum=_MOST_SHARDS),
    Setting("inventory.queue.shards", "integer", 16,
            "The number of shards that hold the records of the inventory's topics; fixed when the first tenant is "
            "created. Topics with durability=os have as many of their own, fixed when the policy is first set.",
            minimum=1, maximum=_MOST_SHARDS),
)

_POLICIES: Final = (
    Policy(Setting(AUTO_CREATION, "flag", False,
                   "Whether Kafka clients create a topic of the namespace by requesting its metadata.", scope="stream"),
           _NOT_TOPIC),
    Policy(Setting(CONSUMER_RATE, "integer", _NO_BOUND,
                   "The bytes a second that Kafka clients may fetch, on average over the quota windows.",
                   scope="stream", minimum=1), quota=True),
    Policy(Setting(PRODUCER_RATE, "integer", _NO_BOUND,
                   "The bytes a second that Kafka clients and NATS publishers may write, on average over the quota "
                   "windows.",
                   scope="stream", minimum=1), quota=True),
    Policy(Setting(DURABILITY, "choice", "sync",
                   "What an acknowledgement means on topics that are created from now on, as on streams: `sync` or "
                   "`os`. A topic keeps it.",
                   scope="stream", choices=("sync", "os")),
           _NOT_TOPIC),
    Policy(Setting("retention.ms", "integer", -1,
                   "The time for which a topic keeps its records; without a bound if it is -1.",
                   scope="stream", unit="ms", minimum=-1)),
    Policy(Setting("retention.bytes", "integer", -1,
                   "The bytes of records that a topic keeps, the newest; without a bound if it is -1.",
                   scope="stream", unit="bytes", minimum=-1)),
    Policy(Setting("retention.records", "integer", -1,
                   "The number of records that a topic keeps, the newest; without a bound if it is -1.",
                   scope="stream", minimum=-1)),
    Policy(Setting(BYTES_QUOTA, "integer", _NO_BOUND,
                   "The bytes of records that the topics may store.", scope="stream", unit="bytes", minimum=0),
           _NOT_TOPIC, quota=True),
    Policy(Setting(TOPIC_QUOTA, "integer", _NO_BOUND,
                   "The maximum number of topics; aliases do not count.", scope="stream", minimum=0),
           _NOT_TOPIC, quota=True),
)
# fmt: on
POLICIES: Final[Mapping[str, Policy]] = {policy.setting.name: policy for policy in _POLICIES}
