"""Broker configs of Kafka without a counterpart in a node: most are stored and shown, some are refused.

Secrets are never stored, and a config that promises safety is refused if nothing enforces it.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.kafka_configs import KAFKA_BROKER_CONFIGS, KafkaType
from duramen.base.settings import Kind, Setting, Value

__all__ = ["LONGEST_VALUE", "refusal_of", "unused_setting"]

LONGEST_VALUE: Final = 4096
"""Characters of a value that is kept without being used."""

_KINDS: Final[Mapping[KafkaType, Kind]] = MappingProxyType(
    {
        "boolean": "flag", "double": "number", "int": "integer", "list": "list", "long": "integer",
        "short": "integer", "string": "text",
    }
)  # fmt: skip
_BITS: Final[Mapping[KafkaType, int]] = MappingProxyType({"short": 16, "int": 32, "long": 64})
_DEFAULTS: Final[Mapping[Kind, Value]] = MappingProxyType({"flag": False, "number": 0.0, "integer": 0})
_NUMERIC: Final = frozenset({"double", "int", "long", "short"})
_LISTENER: Final = re.compile(r"listener\.name\.[a-z0-9_-]+\.(?:(?:plain|gssapi|oauthbearer|scram-sha-[0-9]+)\.)?")
"""What stands before a config that is of one listener only (KIP-103), or of one mechanism there."""

# What a node is, and where it listens.
_OWN: Final = (
    r"(advertised|early\.start)\.listeners|listeners|(controller|inter\.broker)\.listener\.names?|broker\.id|node\.id"
    r"|process\.roles|(metadata\.)?log\.dirs?|controller\.quorum\.(voters|bootstrap\.servers)"
)
_REFUSED: Final[Mapping[re.Pattern[str], str]] = {
    re.compile(pattern): why
    for pattern, why in {
        r".*(password|passphrase|secret|jaas).*": "Duramen keeps no secrets of clients or listeners",
        r"ssl\..*": "Duramen's doors have no TLS: nothing would be encrypted",
        r"authorizer\..*|super\.users|allow\.everyone\.if\.no\.acl\.found": "there is no authorizer here",
        r"unclean\.leader\.election\..*": "an unclean leader is elected by ElectLeaders only, one partition at a time",
        r"security\..*|listener\.security\..*|connections\.max\.reauth\.ms|delegation\.token\..*":
            "Duramen's doors have no authentication: nothing would be secured",
        r".*\.min\.isr|.*\.(topic|log)\.replication\.factor":
            "`default.replication.factor` and `min.insync.replicas` are those of the broker's own streams too",
        r"delete\.topic\.enable|transaction\.(partition\.verification|two\.phase\.commit)\.enable":
            "Duramen would not keep to it",
        r"remote\.log\.storage\.system\.enable": "there is no tiered storage",
        _OWN: "it cannot be changed while a node runs",
    }.items()
}  # fmt: skip


def _named(name: str) -> str:
    """The name without its listener prefix."""
    return _LISTENER.sub("", name, count=1)


def refusal_of(name: str) -> str:
    """The reason to refuse a config of Kafka's brokers, as the end of a sentence; empty if it is not refused."""
    named = _named(name)
    for pattern, why in _REFUSED.items():
        if pattern.fullmatch(named):
            return why
    type_ = KAFKA_BROKER_CONFIGS.get(named)
    if type_ == "class":
        return "Duramen loads no Java classes"
    if named.startswith("sasl.") and type_ not in {None, *_NUMERIC}:
        return "Duramen's doors have no authentication: nobody would be asked who they are"
    return ""


def unused_setting(name: str) -> Setting | None:
    """A config that only Kafka's brokers have, as a setting without effect; None if it is not one."""
    type_ = KAFKA_BROKER_CONFIGS.get(_named(name))
    if type_ is None or name in BROKER or refusal_of(name):
        return None
    kind = _KINDS[type_]
    bits = _BITS.get(type_)
    return Setting(
        name, kind, _DEFAULTS.get(kind, ""), "A config of Apache Kafka's brokers, kept as it was set.",
        kafka=True, dynamic=True, without_effect="Duramen has nothing that it configures", item="[^,]*", example="text",
        minimum=None if bits is None else -(1 << bits - 1), maximum=None if bits is None else (1 << bits - 1) - 1,
    )  # fmt: skip
