"""Topics of an export as Arrow, beside what the rows of their shard say one by one."""

import random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.codec.batch import DecodedRecord
from duramen.codec.exports import FIRST_SEQUENCES, encode_topics_page, read_topics_page
from duramen.inventory.changes import changes
from duramen.inventory.events import (
    InventoryEvent,
    Policies,
    TopicPlaced,
    TopicPoliciesPut,
    TopicsCreated,
    encode_event,
)
from duramen.inventory.exporting import next_sequences, topics_page
from duramen.inventory.ids import TopicKey, topic_id
from duramen.inventory.packing import pack_names
from duramen.inventory.policies import read_policies
from duramen.inventory.rows import current_place, topic_policies_key
from duramen.sim.machine.views import MemoryViewStore
from duramen.spark.batches.inventory_topics import Namespaces, topics_of
from duramen.spark.columns import INVENTORY_COLUMNS

INVENTORY = UUID(int=7)
SHARD = 3
IDS = str(topic_id(INVENTORY, TopicKey(SHARD, 0)))[:26]
NAMESPACES: list[tuple[int, str, str, str, dict[str, str]]] = [
    (1, "dev", "acme", "default", {"quota.topics": "7"}),
    (2, "prod", "acme", "default", {}),
    (5, "zoë", "bolt", "other", {"producer_byte_rate": "1", "quota.topics": "9"}),
]  # 3, 4: gone


def shard(seed: int, events: int) -> MemoryViewStore:
    """The rows of a shard in which topics were made together, moved and deleted."""
    chance, rows = random.Random(seed), MemoryViewStore()
    for offset in range(events):
        ends = next_sequences(rows)
        durability = chance.choice(("sync", "sync", "os"))
        known, first = ends[durability], FIRST_SEQUENCES[durability]
        event: InventoryEvent
        if known == first or chance.random() < 0.5:
            some = {f"töpic-{offset}-{chance.randrange(10**6)}" for _ in range(chance.choice((1, 2, 5, 40)))}
            names = sorted(name.encode() for name in some)
            alone = chance.random() < 0.5
            event = TopicsCreated(chance.randint(1, 5), known, len(names), pack_names(names), alone)
        elif chance.random() < 0.3:
            rate: Policies = {} if chance.random() < 0.2 else {"producer_byte_rate": chance.randint(1, 99)}
            event = TopicPoliciesPut(chance.randrange(first, known), rate, 1, b"")
        else:
            name = None if chance.random() < 0.3 else b"moved-%d" % offset
            event = TopicPlaced(chance.randrange(first, known), chance.randint(1, 5), name)
        record = DecodedRecord(offset, 0, None, encode_event(event), ())
        found = changes([record], rows)
        puts = [(key, value) for key, value in found.items() if value is not None]
        rows.write(puts, [key for key, value in found.items() if value is None])
    return rows


def exported(rows: MemoryViewStore, edges: list[int], max_bytes: int) -> list[tuple[Any, ...]]:
    found, namespaces, ends = list[tuple[Any, ...]](), Namespaces.of(NAMESPACES), next_sequences(rows)
    ranges = [*zip([0, *edges], [*edges, ends["sync"]], strict=True), (FIRST_SEQUENCES["os"], ends["os"])]
    for low, end in ranges:
        first: int | None = low
        while first is not None:
            page = read_topics_page(encode_topics_page(topics_page(rows, first, end, max_bytes, policies=True)))
            first = None if page.after is None else page.after + 1
            if page.lasts:
                batch = topics_of(page, IDS, namespaces, INVENTORY_COLUMNS["topics"])
                found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 1000), st.integers(0, 40), st.sets(st.integers(1, 200), max_size=3), st.integers(1, 300))
def test_topics_are_those_that_their_shard_has(seed: int, events: int, edges: set[int], max_bytes: int) -> None:
    rows = shard(seed, events)
    names = {one[0]: one[1:] for one in NAMESPACES}
    expected = list[tuple[Any, ...]]()
    ends = next_sequences(rows)
    for sequence in (*range(ends["sync"]), *range(FIRST_SEQUENCES["os"], ends["os"])):
        place = current_place(rows, sequence)
        if place.namespace in names:
            namespace, tenant, account, policies = names[place.namespace]
            own = read_policies(rows.get(topic_policies_key(sequence)))
            policies = policies | {name: str(value) for name, value in own.items()}
            moved = rows.get(b"m" + sequence.to_bytes(5, "big")) is not None
            id_ = str(topic_id(INVENTORY, TopicKey(SHARD, sequence)))
            state = "moved" if moved else "created"
            durability = "os" if sequence >= FIRST_SEQUENCES["os"] else "sync"
            described = tenant, namespace, account, state, [*policies.items()], durability
            expected.append((id_, place.name.decode(), *described))
    nameless = topics_page(rows, 0, ends["os"], 1 << 30, names=False)
    if nameless.lasts:
        found = topics_of(nameless, IDS, Namespaces.of(NAMESPACES), ("tenant", "id")).to_pylist()
        assert [(row["id"], row["tenant"]) for row in found] == [(one[0], one[2]) for one in expected]
    within = sorted(edge for edge in edges if edge < ends["sync"])
    assert exported(rows, within, max_bytes) == expected
