"""Applies the events of a shard's log to its rows. Pure."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Final

import msgspec

from duramen.base.catalogue.inventory import NAMESPACE, TENANT
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.inventory import events
from duramen.inventory.events import InventoryEvent, decode_event, encode_event
from duramen.inventory.ids import durability_of_sequence
from duramen.inventory.name_rows import GONE, changed_row, is_topic, name_blocks, values_by_name
from duramen.inventory.packing import unpack_names
from duramen.inventory.rows import (
    FENCE_KEY,
    NEXT_IDS_KEY,
    NEXT_KEYS,
    SEQUENCE_BYTES,
    TOTAL,
    Block,
    alias_end,
    alias_key,
    block_key,
    block_reference,
    block_value,
    body_key,
    body_value,
    count_key,
    dropped_key,
    name_key,
    namespace_key,
    next_ids_value,
    pending_key,
    place_key,
    place_value,
    policies_key,
    read_next_ids,
    tenant_key,
    topic_policies_key,
)

__all__ = ["changes"]

_BLOCKS: Final = b"b"


def _sequence_values(first: int, count: int) -> list[bytes]:
    data = struct.pack(f">{count}Q", *range(first, first + count))
    return [data[end - SEQUENCE_BYTES : end] for end in range(8, len(data) + 8, 8)]


class _Rows(StateRows):
    """Rows with the changes of this step."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._blocks: dict[bytes, bytes | None] = {}  # those of `changes`: they may be searched for many names
        self.changes: dict[bytes, bytes | None] = {}

    def put_block(self, key: bytes, value: bytes | None) -> None:
        self.changes[key] = self._blocks[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self.changes[key] if key in self.changes else self._rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        changes = self._blocks if first[:1] == _BLOCKS == end[:1] else self.changes
        some = sorted(key for key in changes if first <= key < end)
        if not some:
            return self._rows.scan(first, end)
        under = ((key, value) for key, value in self._rows.scan(first, end) if key not in changes)
        over = ((key, value) for key in some if (value := changes[key]) is not None)
        return merge(under, over, key=lambda row: row[0])


class _Step:
    def __init__(self, rows: StateRows) -> None:
        self._rows = _Rows(rows)
        self.changes = self._rows.changes

    def take(self, event: InventoryEvent) -> None:
        match event:
            case events.NameChanged():
                self._set_name(event)
            case events.NamesChanged():
                self._set_names(event)
            case _:
                self._take_other(event)

    def _take_other(self, event: InventoryEvent) -> None:
        match event:
            case events.TopicsCreated():
                self._create(event)
            case events.TopicPlaced():
                self._place(event)
            case events.AliasChanged(sequence, namespace, name, there):
                self.changes[alias_key(sequence, namespace, name)] = b"" if there else None
            case events.NamespaceDropped(namespace):
                self.changes[dropped_key(namespace)] = b""
            case events.NamesRemoved(namespace, last):
                self._remove_names(namespace, last)
            case events.ChangesFenced(token):
                self.changes[FENCE_KEY] = token.to_bytes(8, "big")
            case events.NamespaceSwept(namespace):
                self.changes[namespace_key(namespace)] = None
                self.changes[policies_key(NAMESPACE, number=namespace)] = None
            case events.TopicPoliciesPut(sequence, policies, _, _):
                own = msgspec.msgpack.encode(policies) if policies else None
                self.changes[topic_policies_key(sequence)] = own
            case events.Renamed():
                pass  # its neighbour determines the rows
            case _:
                self._take_of_directory(event)

    def _create(self, event: events.TopicsCreated) -> None:
        names, first, namespace = unpack_names(event.body), event.first, event.namespace
        last, body = first + len(names) - 1, event.body
        if event.alone:
            block = Block(first, len(names), body)
            self._rows.put_block(block_key(namespace, names[-1]), block_value(block))
            body = block_reference(names[-1])
        else:
            values = _sequence_values(first, len(names))
            self.changes.update(zip(map(name_key(namespace, b"").__add__, names), values, strict=True))
        self.changes[body_key(last)] = body_value(namespace, len(names), body)
        self.changes[NEXT_KEYS[durability_of_sequence(first)]] = (last + 1).to_bytes(SEQUENCE_BYTES, "big")
        self._count(namespace, len(names))

    def _set_name(self, event: events.NameChanged) -> None:
        namespace, name = event.namespace, event.name
        self.changes[name_key(namespace, name)], more = changed_row(self._rows, namespace, name, event.value)
        self.changes[pending_key(namespace, name)] = event.pending
        if more:
            self._count(namespace, more)

    def _set_names(self, event: events.NamesChanged) -> None:
        for namespace, name, value, pending in event.rows:
            self.changes[name_key(namespace, name)] = value
            self.changes[pending_key(namespace, name)] = pending
        for namespace, more in event.counts:
            self._count(namespace, more)

    def _remove_names(self, namespace: int, last: bytes) -> None:
        """Remove the rows of names up to this one; names in a block that continues after it are marked as gone."""
        end, first = last + b"\x00", b""
        names = list(values_by_name(self._rows, namespace, first, end))
        self._count(namespace, -sum(is_topic(value) for _, value in names))
        for key, _ in list(self._rows.scan(name_key(namespace, first), name_key(namespace, end))):
            self.changes[key] = None
        for behind, block in list(name_blocks(self._rows, namespace, first)):
            if behind <= last:
                self._rows.put_block(block_key(namespace, behind), None)
                continue
            for name in unpack_names(block.body):
                if name <= last:
                    self.changes[name_key(namespace, name)] = GONE
            break

    def _count(self, namespace: int, more: int) -> None:
        for key in (count_key(namespace), count_key(TOTAL)):
            count = int.from_bytes(self._rows.get(key) or b"", "big") + more
            self.changes[key] = count.to_bytes(8, "big") if count else None

    def _place(self, event: events.TopicPlaced) -> None:
        if event.name is None:
            self.changes[place_key(event.sequence)] = place_value(0, b"")
            self.changes[topic_policies_key(event.sequence)] = None
            for key, _ in list(self._rows.scan(alias_key(event.sequence), alias_end(event.sequence))):
                self.changes[key] = None
            return
        self.changes[place_key(event.sequence)] = place_value(event.namespace, event.name)
        if event.alias is not None:
            self.changes[alias_key(event.sequence, event.alias_namespace, event.alias)] = b""

    def _take_of_directory(self, event: InventoryEvent) -> None:
        tenant, namespace = read_next_ids(self._rows.get(NEXT_IDS_KEY))
        match event:
            case events.TenantPut():
                self.changes[tenant_key(event.id)] = encode_event(event)
                self.changes[NEXT_IDS_KEY] = next_ids_value(max(tenant, event.id + 1), namespace)
            case events.NamespacePut():
                self.changes[namespace_key(event.id)] = encode_event(event)
                self.changes[NEXT_IDS_KEY] = next_ids_value(tenant, max(namespace, event.id + 1))
            case events.PoliciesPut():
                own = encode_event(event) if event.policies else None
                self.changes[policies_key(event.level, event.account, event.id)] = own
            case events.TenantRemoved(removed):
                self.changes[policies_key(TENANT, number=removed)] = None
                self.changes[tenant_key(removed)] = None  # a namespace without a tenant counts as removed
            case events.NamespaceRemoved(removed):
                self.changes[policies_key(NAMESPACE, number=removed)] = None
                self.changes[namespace_key(removed)] = encode_event(event)
            case _:
                raise AssertionError(event)


def changes(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    """The changes of rows, which have all earlier records, by records. Raises BatchCorrupt."""
    step = _Step(rows)
    for record in found:
        step.take(decode_event(record))
    return step.changes
