"""Offsets of many partitions as JSON: in options like Spark's Kafka source, and in checkpoints. Pure.

A checkpoint's offsets are the same JSON with the stream's id beside the partitions, so that a stream that was created
again under the same name is noticed, and with a format version: {"flights": {"0": 23, "1": 5, "id": "000006e8-…"},
"$version": 1}. Such a text may be given as `startingOffsets`; ids, version and floors (`splits`) are ignored then;
floors are stored beside the id while they matter: {"floor": {"0": 20}} for a named offset, {"whole": {"0": 20}}
otherwise. For a keyed stream read by snapshots there are the leader epochs of the records before the offsets, {"epoch":
{"0": 3}}, and the lease on the snapshot, {"lease": "…"}.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from duramen.base.errors import CheckpointInvalid, OptionInvalid
from duramen.client import TopicPartition
from duramen.spark.read.splits import Floors

__all__ = ["SourceOffsets", "listed", "parse_assignment", "parse_offsets"]

_ID: Final = "id"
_NAMED: Final = "floor"
_WHOLE: Final = "whole"
_EPOCH: Final = "epoch"
_LEASE: Final = "lease"
_BESIDE: Final = (_ID, _NAMED, _WHOLE, _EPOCH, _LEASE)
_VERSION_KEY: Final = "$version"  # no stream can have this name
_VERSION: Final = 1


class SourceOffsets(NamedTuple):
    """The offset of each partition, the ids of the streams, and the floors that still matter.

    For snapshots also the leader epochs of the records before the offsets, and the lease on each stream's snapshot.
    """

    at: Mapping[TopicPartition, int]
    ids: Mapping[str, str]
    floors: Floors = Floors()
    epochs: Mapping[TopicPartition, int] = {}
    leases: Mapping[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """The checkpoint's form; equal offsets give equal JSON."""
        topics: dict[str, dict[str, Any]] = {name: {} for name in sorted(self.ids)}
        for topic, partition in sorted(self.at):
            topics[topic][str(partition)] = self.at[TopicPartition(topic, partition)]
        for name, id_ in self.ids.items():
            topics[name][_ID] = id_
        for kind, floors in ((_NAMED, self.floors.named), (_WHOLE, self.floors.whole), (_EPOCH, self.epochs)):
            for at in sorted(floors):
                topics[at.topic].setdefault(kind, {})[str(at.partition)] = floors[at]
        for name, lease in self.leases.items():
            topics[name][_LEASE] = lease
        return {**topics, _VERSION_KEY: _VERSION}

    @staticmethod
    def from_json(document: object) -> "SourceOffsets":
        """The offsets of a `to_json` document. Raises CheckpointInvalid for anything else."""
        topics = _topics(document)
        try:
            at = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partitions in topics.items()
                for partition, offset in partitions.items()
                if partition not in _BESIDE
            }
            ids = {topic: str(partitions.get(_ID, "")) for topic, partitions in topics.items()}
            leases = {topic: str(partitions[_LEASE]) for topic, partitions in topics.items() if _LEASE in partitions}
            floors = Floors(_beside(topics, _NAMED), _beside(topics, _WHOLE))
            return SourceOffsets(at, ids, floors, _beside(topics, _EPOCH), leases)
        except (AttributeError, TypeError, ValueError):
            raise CheckpointInvalid(f"the checkpoint's offsets cannot be read: {json.dumps(document)[:200]}") from None


def _beside(topics: Mapping[str, Any], kind: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.get(kind, {}).items()
    }


def _topics(document: object) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise CheckpointInvalid(f"the checkpoint is of another source: it has {json.dumps(document)[:200]} for offsets")
    version = document.get(_VERSION_KEY)
    topics = {name: partitions for name, partitions in document.items() if name != _VERSION_KEY}
    if version != _VERSION:
        found = "no version" if version is None else f"the version {version}"
        raise CheckpointInvalid(
            f"the checkpoint's offsets have {found}, but version {_VERSION} is required: it is of another version of"
            f" Duramen or another source; to continue, use a new checkpoint and startingOffsets={json.dumps(topics)}"
        )
    return topics


def _mapping(option: str, text: str, example: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document:
        raise OptionInvalid(f"{option}: {text!r} does not fit; it must be JSON such as {example}")
    return {name: partitions for name, partitions in document.items() if name != _VERSION_KEY}


def parse_offsets(
    option: str, text: str, example: str = '{"flights": {"0": 23, "1": -2}}'
) -> dict[TopicPartition, int]:
    """A number for each partition. Raises OptionInvalid."""
    found = {}
    for topic, partitions in _mapping(option, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionInvalid(f"{option}: {partitions!r} does not fit; it must be JSON such as {example}")
        for partition, offset in partitions.items():
            if partition in _BESIDE:
                continue
            number = _index(option, partition, example)
            if isinstance(offset, bool) or not isinstance(offset, int) or not -(1 << 63) <= offset < 1 << 63:
                raise OptionInvalid(f"{option}: {offset!r} does not fit; it must be JSON such as {example}")
            found[TopicPartition(topic, number)] = offset
    return found


def parse_assignment(option: str, text: str) -> list[TopicPartition]:
    """The partitions in `assign`. Raises OptionInvalid."""
    example = '{"flights": [0, 1]}'
    found = []
    for topic, partitions in _mapping(option, text, example).items():
        if not isinstance(partitions, list):
            raise OptionInvalid(f"{option}: {partitions!r} does not fit; it must be JSON such as {example}")
        found += [TopicPartition(topic, _index(option, partition, example)) for partition in partitions]
    return found


def _index(option: str, partition: object, example: str) -> int:
    text = str(partition)
    if not (text.isascii() and text.isdigit()) or int(text) > 0x7FFFFFFF:
        raise OptionInvalid(f"{option}: partition {partition!r} does not fit; it must be JSON such as {example}")
    return int(text)


def listed(ats: Iterable[TopicPartition]) -> str:
    """Some partitions, for messages."""
    names = [str(at) for at in sorted(ats)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
