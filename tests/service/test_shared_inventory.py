"""Share groups on topics of the inventory: state follows the topic through renames and moves, and ends with it."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.coordinators.inventory.node import at
from tests.coordinators.inventory.several import SeveralInventories
from tests.coordinators.share.keeping import partitions_of, states
from tests.service.inventory import ACCOUNT, InventoryTopics
from tests.service.test_cluster_names import admitted, known
from tests.service.test_shared_queues import LIMITS, acquired

from duramen.base.errors import BatchCorrupt, DuramenError, GroupNotFound, StreamNotFound
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.group.topics import LASTING
from duramen.coordinators.inventory.shard import queue_space_of
from duramen.coordinators.share.fetch import ShareFetched
from duramen.coordinators.share.partition import ACCEPT, RELEASE, Acknowledged
from duramen.coordinators.share.resets import ShareStarts
from duramen.coordinators.share.shares import ShareOffset
from duramen.coordinators.share.state import SHARE_STATE_STREAM
from duramen.groups.records import OffsetKey, partition_for
from duramen.groups.share_group import ShareHeartbeat, ShareHeartbeatResult
from duramen.groups.share_group_records import encode_places_key
from duramen.groups.share_records import ShareKey, state_partition_for
from duramen.inventory.directory import DeleteNamespace
from duramen.service.broker import Broker
from duramen.service.light_topics import LightTopic
from duramen.sim.broker import CallbackResult

GROUP = "g"
TOPIC = "acme/prod/orders"


class SharedInventory(InventoryTopics):
    """A group that reads topics from their start, each step settled."""

    def __init__(self, *paths: str) -> None:
        super().__init__()
        assert self.topics.names is not None  # groups know the names from here on
        self.do(self.broker.internal_streams.ensure_shares)
        self.do(self.broker.group_configs.change, GROUP, {"share.auto.offset.reset": "earliest"})
        for path in paths:
            self.create(path)

    @property
    def broker(self) -> Broker:
        return self.hand.broker

    def restart(self) -> None:
        self.hand.restart()
        assert self.topics.names is not None

    def beat(self, *paths: str, epoch: int = 0, member: str = "m") -> ShareHeartbeatResult:
        answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
        names = [path.replace("/", ".") for path in paths] or None
        self.broker.share_groups.heartbeat(GROUP, ShareHeartbeat(member, epoch, None, names, "c", "/h"), answer)
        self.hand.settle()
        return answer.value

    def key(self, path: str) -> ShareKey:
        return ShareKey(GROUP, self.topic(path).shared_as, 0)

    def take(self, key: ShareKey, owner: str = "m") -> dict[int, tuple[int, bytes | None]]:
        answer: CallbackResult[list[ShareFetched]] = CallbackResult()
        self.broker.sharing.fetch([key], owner, LIMITS, answer)
        self.hand.settle()
        return acquired(answer.value[0])

    def say(self, key: ShareKey, *said: tuple[int, int], owner: str = "m") -> None:
        spoken = [Acknowledged(offset, offset, [type_]) for offset, type_ in said]
        self.do(self.broker.sharing.acknowledge, key, owner, spoken)

    def offset(self, key: ShareKey) -> ShareOffset | None:
        answer: CallbackResult[ShareOffset | None] = CallbackResult()
        self.broker.sharing.offset(key, answer)
        self.hand.settle()
        return answer.value


@pytest.mark.parametrize("to", ["acme/prod/invoices", "bolt/dev/orders"])
def test_state_follows_a_topic_that_is_renamed_or_moved(to: str) -> None:
    shop = SharedInventory(TOPIC)
    shop.beat(TOPIC)
    shop.put(TOPIC, b"1", b"2", b"3")
    key = shop.key(TOPIC)
    first, second, third = shop.take(key)
    shop.say(key, (first, ACCEPT), (second, RELEASE))
    shop.move(TOPIC, to)
    assert shop.key(to) == key
    assert shop.topic(to).id != key.topic_id
    assert shop.take(key) == {second: (2, b"2")}
    shop.say(key, (third, ACCEPT))  # acquired under the old name
    shop.restart()
    shop.put(to, b"4")
    assert partitions_of(shop.broker, GROUP) == {to.replace("/", "."): [0]}
    assert [value for _, value in shop.take(key).values()] == [b"2", b"4"]
    offset = shop.offset(key)
    assert offset is not None
    assert (offset.start_offset, offset.lag) == (second, 2)


def test_members_are_assigned_what_their_names_lead_to_now() -> None:
    shop = SharedInventory(TOPIC)
    joined = shop.beat(TOPIC)
    assert joined.assignment == frozenset({(shop.topic(TOPIC).id, 0)})
    shop.move(TOPIC, "acme/prod/new", keep_alias=True)
    assert shop.beat(epoch=joined.epoch).assignment is None  # the alias leads to the same topic
    shop.delete(TOPIC)
    shop.delete("acme/prod/new")
    gone = shop.beat(epoch=joined.epoch)
    assert gone.assignment == frozenset()
    shop.create(TOPIC)
    again = shop.beat(epoch=gone.epoch)
    assert again.assignment == frozenset({(shop.topic(TOPIC).id, 0)}) != joined.assignment


@pytest.mark.parametrize("crashes", [False, True])
def test_the_state_ends_with_the_topic(crashes: bool) -> None:
    shop = SharedInventory(TOPIC, "acme/prod/kept")
    shop.beat(TOPIC, "acme/prod/kept")
    kept, key = shop.key("acme/prod/kept"), shop.key(TOPIC)
    shop.put(TOPIC, b"1")
    assert len(shop.take(key)) == 1
    assert states(shop.broker).keys() == {key, kept}
    shop.delete(TOPIC)
    if crashes:
        shop.restart()
        assert states(shop.broker).keys() == {key, kept}  # found by the next check
        shop.broker.share_nodes.tidy()
        shop.hand.settle()
    else:
        shop.hand.advance(1000)
    assert states(shop.broker).keys() == {kept}
    assert [one.topic_id for one in shop.broker.share_groups.keys(GROUP)] == [kept.topic_id]
    assert shop.offset(key) is None
    shop.broker.share_nodes.tidy()
    shop.hand.advance(20_000)
    assert states(shop.broker).keys() == {kept}


def test_the_state_ends_with_the_namespace() -> None:
    shop = SharedInventory(TOPIC)
    shop.beat(TOPIC)
    assert len(states(shop.broker)) == 1
    dropped = shop.inventory.namespace(ACCOUNT, "acme", "prod").id
    shop.do(shop.inventory.change, DeleteNamespace(dropped))
    shop.hand.advance(60_000)
    shop.broker.share_nodes.tidy()
    shop.hand.advance(1000)
    assert not states(shop.broker)
    assert not shop.broker.share_groups.has(GROUP)


class RenamedTopic:
    """A topic that is renamed and moved while two members of a group read it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.shop = SharedInventory(TOPIC)
        self.shop.beat(TOPIC)
        self.key = self.shop.key(TOPIC)
        self.names = [TOPIC]
        self.sent = list[bytes]()
        self.accepted = set[bytes | None]()
        self.held: dict[int, tuple[str, bytes | None]] = {}

    def run(self, steps: int) -> None:
        acts = (self.put, self.take, self.take, self.say, self.say, self.rename, self.restart)
        for _ in range(steps):
            self.chance.choices(acts, (4, 3, 3, 4, 4, 2, 1))[0]()
        while len(self.accepted) < len(self.sent):
            self.shop.hand.advance(31_000)  # locks end
            self.held.clear()
            self.take()
            assert self.held
            for offset in list(self.held):
                self.tell(offset, ACCEPT)
        assert self.accepted == {*self.sent}
        assert self.shop.take(self.key) == {}

    def put(self) -> None:
        self.sent.append(b"%d" % len(self.sent))
        assert self.shop.put(self.chance.choice(self.names), self.sent[-1]) is None

    def take(self) -> None:
        owner = self.chance.choice("mn")
        for offset, (_, value) in self.shop.take(self.key, owner).items():
            assert value not in self.accepted
            assert offset not in self.held
            self.held[offset] = owner, value

    def say(self) -> None:
        if self.held:
            self.tell(self.chance.choice(list(self.held)), self.chance.choice([ACCEPT, ACCEPT, RELEASE]))

    def tell(self, offset: int, type_: int) -> None:
        owner, value = self.held.pop(offset)
        self.shop.say(self.key, (offset, type_), owner=owner)
        if type_ == ACCEPT:
            self.accepted.add(value)

    def rename(self) -> None:
        to = self.chance.choice(["acme/dev", "acme/prod", "bolt/prod"]) + f"/t{self.chance.getrandbits(40)}"
        keep_alias = self.chance.random() < 0.5
        self.shop.move(self.names[0], to, keep_alias=keep_alias)
        self.names = [to, *self.names[0 if keep_alias else 1 :]]
        assert all(self.shop.key(name) == self.key for name in self.names)

    def restart(self) -> None:
        self.shop.restart()
        self.held.clear()


@pytest.mark.variants(3)
@pytest.mark.parametrize("seed", range(1, 31))
def test_nothing_acknowledged_comes_again_whatever_the_topic_is_called(seed: int) -> None:
    RenamedTopic(seed).run(80)


class SharedInventories(SeveralInventories):
    """Node 3 coordinates the group, node 2 has its state, and node 1 leads the queues of the topics."""

    def __init__(self) -> None:
        super().__init__()
        self.ensure_offsets()
        self.make(self.broker(1).internal_streams.ensure_shares)
        self.create(1, "acme/prod", "orders")
        self.key = ShareKey(GROUP, self.read(2, lambda inventory: inventory.find(ACCOUNT, at(TOPIC))).id, 0)
        queues = self.broker(1).streams.get(queue_space_of(self.key.topic_id))
        state = self.place(SHARE_STATE_STREAM, state_partition_for(self.key, 2))
        for place, node in (
            *((self.place(queues.name, shard), 1) for shard in range(queues.shards)), (state, 2),
            (self.place(OFFSETS_STREAM, partition_for(GROUP, 2)), 3),
        ):  # fmt: skip
            self.elect(place, node)
        self.advance(1000)

    def make(self, action: Callable[..., object], *args: Any) -> None:
        answer: CallbackResult[None] = CallbackResult()
        action(*args, answer)
        self.wait(answer)
        assert answer.error is None

    def topic(self, node: int, path: str) -> LightTopic | None:
        return admitted(self, node, path.replace("/", ".")).light(path.replace("/", "."))

    def beat(self, path: str | None, epoch: int = 0) -> ShareHeartbeatResult:
        answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
        names = None if path is None else [path.replace("/", ".")]
        self.broker(3).share_groups.heartbeat(GROUP, ShareHeartbeat("m", epoch, None, names, "c", "/h"), answer)
        self.wait(answer)
        return answer.value

    def put(self, path: str, *values: bytes) -> None:
        topic = self.topic(1, path)
        assert topic is not None
        answer: CallbackResult[object] = CallbackResult()
        topic.append(memoryview(encode([BatchInput(1, None, value) for value in values])), answer, all_replicas=True)
        self.wait(answer)
        assert answer.calls[0][1] is None

    def take(self, node: int = 1) -> dict[int, tuple[int, bytes | None]]:
        answer: CallbackResult[list[ShareFetched]] = CallbackResult()
        self.broker(node).sharing.fetch([self.key], "m", LIMITS, answer)
        self.wait(answer)
        return acquired(answer.value[0])

    def located(self, node: int) -> ShareOffset | DuramenError | None:
        answer: CallbackResult[Any] = CallbackResult()
        self.broker(node).share_nodes.locate([self.key], answer)
        self.wait(answer)
        found: ShareOffset | DuramenError | None = answer.value[self.key]
        return found


def test_on_a_cluster_a_group_goes_on_after_a_rename_and_its_state_ends_with_the_topic() -> None:
    several, after = SharedInventories(), "acme/prod/invoices"
    joined = several.beat(TOPIC)
    topic = several.topic(2, TOPIC)
    assert topic is not None
    assert joined.assignment == frozenset({(topic.id, 0)})
    several.put(TOPIC, b"0")
    assert several.take() == {}  # the group starts at the end
    several.put(TOPIC, b"1", b"2")
    (one, two) = several.take()
    several.make(several.broker(1).sharing.acknowledge, several.key, "m", [Acknowledged(one, one, [ACCEPT])])
    several.move(2, TOPIC, after)
    several.advance(5000)
    gone = several.beat(None, joined.epoch)
    assert gone.assignment == frozenset()
    renamed = several.topic(2, after)
    assert renamed is not None
    assert several.beat(after, gone.epoch).assignment == frozenset({(renamed.id, 0)})
    assert renamed.shared_as == topic.shared_as
    known(several, 3, renamed.stored_as)
    assert partitions_of(several.broker(3), GROUP) == {renamed.name: [0]}
    several.elect(renamed.partition.place, 2)
    several.advance(2000)
    assert several.take(2) == {two: (1, b"2")}  # locks end with the leader
    located = several.located(3)
    assert isinstance(located, ShareOffset)
    assert (located.start_offset, located.lag) == (two, 1)
    lags: CallbackResult[Any] = CallbackResult()
    several.broker(3).share_nodes.lags([GROUP, "other"], lags)
    several.wait(lags)
    assert lags.value == [1, None]
    several.cut.add(2)
    several.broker(3).share_nodes.lags([GROUP], silent := CallbackResult[Any]())
    several.advance(3000)
    assert silent.value == [None]
    several.cut.clear()
    several.delete(1, after)
    several.advance(2000)
    for node in several.hands:
        several.broker(node).share_nodes.tidy()
    several.advance(5000)
    assert not states(several.broker(2))
    assert not several.broker(3).share_groups.keys(GROUP)


def test_starts_of_a_group_that_is_deleted_meanwhile_are_answered() -> None:
    shop = SharedInventory(TOPIC)
    starts = ShareStarts(shop.broker.share_groups, shop.broker.share_nodes)
    key = OffsetKey("gone", LASTING + shop.key(TOPIC).topic_id.hex, 0)
    for keys in ([key], [OffsetKey("gone", "none", 0)]):
        answer: CallbackResult[Any] = CallbackResult()
        starts.find(keys, answer)
        shop.hand.settle()
        assert isinstance(answer.error, GroupNotFound | StreamNotFound)


@pytest.mark.parametrize("group", ["a", "z"])  # before and after the other one
def test_a_damaged_record_affects_no_other_group(group: str) -> None:
    shop = SharedInventory(TOPIC, "acme/prod/kept")
    shop.hand.create("stream", durability="sync")
    shop.beat(TOPIC, "acme/prod/kept", "stream")
    kept = shop.key("acme/prod/kept")
    shop.do(shop.broker.offsets.store_records, group, [(encode_places_key(group), b"\0\0\xff\xff")])
    found = shop.do(partial(shop.broker.listing.everywhere, "", 10))
    assert [row.id for row in found.rows] == sorted([GROUP, group])
    shop.delete(TOPIC)
    shop.do(shop.broker.delete_stream, "stream")
    shop.hand.advance(60_000)
    shop.broker.share_nodes.tidy()
    shop.broker.share_groups.tidy(shop.broker.share_nodes.is_gone)
    shop.hand.settle()
    assert states(shop.broker).keys() == {kept}
    assert [*shop.broker.share_groups.keys(GROUP)] == [kept]
    answer: CallbackResult[None] = CallbackResult()
    shop.broker.share_groups.delete_offsets(group, kept.topic_id, answer)
    assert isinstance(answer.error, BatchCorrupt)
