"""Names of topics of the inventory while it is unknown what there is: nobody is told that a topic does not exist."""

from typing import Any
from uuid import UUID

import pytest
from tests.coordinators.inventory.node import InventoryNode

from duramen.base.errors import CoordinatorLoading, DuramenError, NameNotResolved, StateDamaged, StreamNotFound
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.inventory.shard import INVENTORY_STREAM
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.coordinators.runtime.runtime import Runtime
from duramen.groups.values import JoinRequest, JoinResult, SyncRequest
from duramen.service.admission import Service
from duramen.service.light_topics import LastingId
from duramen.service.resolve import ResolvedTopics
from duramen.sim.broker import CallbackResult

NAMES = ("acme.dev.a", "acme.dev.none", "acme.none.a", "none.dev.a", "a.b", "a")


def found(topics: ResolvedTopics, keys: Any) -> list[type[DuramenError] | None]:
    """What is told of each key: nothing about those that there are."""
    return [None if topics.light(key) is not None else type(topics.error(key)) for key in keys]


@pytest.mark.parametrize("why", [CoordinatorLoading("it is loading"), StateDamaged("it is damaged")])
def test_a_name_is_unknown_while_rows_cannot_be_read(why: DuramenError) -> None:
    node = InventoryNode()
    node.create("acme/dev", "a")
    topic = node.inventory.lookup("default", "acme", "dev", ["a"])[0]
    assert topic is not None
    keys = (*NAMES, LastingId(int=topic.id.int), LastingId(int=5), UUID(int=9))
    service = Service(node.hand.broker)
    every = service.for_all
    assert every is not None
    there = [None, *[StreamNotFound] * 5, None, StreamNotFound, StreamNotFound]
    unknown = [*[NameNotResolved] * 4, *[StreamNotFound] * 2, *[NameNotResolved] * 2, StreamNotFound]
    assert found(every, keys) == found(every.looked_up(keys), keys) == there

    def refuse(_: object) -> Any:
        raise why

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InventoryShards, "rows", refuse)
        patch.setattr(InventoryShards, "directory", refuse)
        patch.setattr(InventoryShards, "position", lambda _: "elsewhere")  # nothing that was looked up before
        assert found(every, keys) == found(every.looked_up(keys), keys) == unknown
    assert found(every, keys) == there


def test_members_have_a_whole_session_however_long_the_rows_take_to_load() -> None:
    node = InventoryNode()
    node.create("acme/dev", "a")
    node.hand.broker.internal_streams.ensure_offsets(CallbackResult())
    node.hand.settle()
    joined: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest("", None, "m", False, "client", "/host", 10_000, 10_000, "consumer", [("range", b"")])
    node.hand.broker.groups.join("g", request, joined)
    node.hand.advance(100)
    member = CommitMember(joined.value.member_id, None, joined.value.generation)
    sync = SyncRequest(member.member_id, None, member.generation, None, None, [(member.member_id, b"all")])
    node.hand.broker.groups.sync("g", sync, CallbackResult())
    load = Runtime.when_loaded

    def load_slowly(runtime: Runtime, stream: str, done: Any) -> None:
        if stream == INVENTORY_STREAM:
            node.hand.clock.advance(60_000)
        load(runtime, stream, done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "when_loaded", load_slowly)
        node.hand.restart()
    node.hand.advance(1)
    known: CallbackResult[None] = CallbackResult()
    node.hand.broker.groups.heartbeat("g", member, known)
    node.hand.settle()
    assert known.value is None
