"""Names of tenants, namespaces and topics. Pure.

Kafka clients see a topic as `tenant.namespace.topic`, at most 249 characters. The three limits add up to that, so that
no rename or move makes a name too long. Topics may have names that Kafka cannot represent.
"""

import re
from collections.abc import Sequence
from itertools import pairwise, repeat, starmap
from operator import lt
from typing import Final, NamedTuple
from zlib import crc32

from duramen.base.catalogue.inventory import NAME
from duramen.base.errors import DuramenError, InventoryNameInvalid

__all__ = [
    "LONGEST_PART",
    "LONGEST_TOPIC_BYTES",
    "NamedProblem",
    "TopicPath",
    "by_shard",
    "check_account_name",
    "check_namespace_name",
    "check_tenant_name",
    "check_topic_name",
    "kafka_path",
    "shard_of",
    "sorted_names",
]

LONGEST_PART: Final = 63
LONGEST_TOPIC_BYTES: Final = 121
_PART: Final = re.compile(NAME)


class TopicPath(NamedTuple):
    """A topic by its names."""

    tenant: str
    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.topic}"

    @property
    def kafka_name(self) -> str:
        """Its Kafka name, valid if Kafka can represent the topic's name."""
        return ".".join(self)


def kafka_path(name: str) -> TopicPath | None:
    """The topic with Kafka's name `tenant.namespace.topic`; None for a name with fewer parts. A topic may have dots."""
    parts = name.split(".", 2)
    return TopicPath(*parts) if len(parts) == len(TopicPath._fields) else None


class NamedProblem(NamedTuple):
    """A name of a request, and its error."""

    name: str
    error: DuramenError


def _check_part(kind: str, name: str) -> str:
    if _PART.fullmatch(name) is None:
        raise InventoryNameInvalid(
            f"{name[:80]!r} is no name of {kind}: it must be 1 to {LONGEST_PART} of a-z, A-Z, 0-9, - and _, and not"
            " begin with __"
        )
    return name


def check_account_name(name: str) -> str:
    """The name of an account. Raises InventoryNameInvalid."""
    return _check_part("an account", name)


def check_tenant_name(name: str) -> str:
    """The name of a tenant. Raises InventoryNameInvalid."""
    return _check_part("a tenant", name)


def check_namespace_name(name: str) -> str:
    """The name of a namespace. Raises InventoryNameInvalid."""
    return _check_part("a namespace", name)


def check_topic_name(name: str) -> bytes:
    """The bytes of a topic's name. Raises InventoryNameInvalid."""
    if name and name.isprintable():
        encoded = name.encode()
        if len(encoded) <= LONGEST_TOPIC_BYTES:
            return encoded
    raise InventoryNameInvalid(
        f"{name[:140]!r} is no name of a topic: it must be 1 to {LONGEST_TOPIC_BYTES} bytes of UTF-8, all of them"
        " printable characters"
    )


def sorted_names(names: Sequence[str]) -> tuple[list[bytes], list[NamedProblem]]:
    """The valid topic names, without duplicates and in order of their bytes; and the others."""
    text = "".join(names)
    lengths = [*map(len, names)]
    if names and text.isprintable() and text.isascii() and min(lengths) and max(lengths) <= LONGEST_TOPIC_BYTES:
        found = "\n".join(names).encode().split(b"\n")
        ordered = all(starmap(lt, pairwise(found)))
        return found if ordered else sorted(set(found)), []
    good, bad = set[bytes](), list[NamedProblem]()
    for name in names:
        try:
            good.add(check_topic_name(name))
        except InventoryNameInvalid as error:
            bad.append(NamedProblem(name, error))
    return sorted(good), bad


def by_shard(namespace: int, names: Sequence[bytes], shards: int) -> list[list[bytes]]:
    """Names by the shards that they belong to, in the given order."""
    found = [list[bytes]() for _ in range(shards)]
    for name, digest in zip(names, map(crc32, names, repeat(namespace)), strict=False):  # as in `shard_of`
        found[digest % shards].append(name)
    return found


def shard_of(namespace: int, name: bytes, shards: int) -> int:
    """The shard of a topic's name."""
    return crc32(name, namespace) % shards
