"""Share groups on queue topics on three brokers: the leader of the shard delivers, and its successor continues."""

from typing import Any

from tests.broker.several import Several
from tests.coordinators.share.keeping import partitions_of
from tests.service.test_shared_queues import GROUP, LIMITS, acquired

from duramen.base.errors import DuramenError, NotLeader
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.share.fetch import ShareFetched
from duramen.coordinators.share.partition import ACCEPT, RELEASE, Acknowledged
from duramen.coordinators.share.shares import ShareOffset
from duramen.coordinators.share.state import SHARE_STATE_STREAM
from duramen.groups.records import partition_for
from duramen.groups.share_group import ShareHeartbeat, ShareHeartbeatResult
from duramen.groups.share_records import ShareKey, state_partition_for
from duramen.metadata.decisions import Definition
from duramen.service.broker import Broker
from duramen.service.queue_topics import QueueTopics
from duramen.sim.broker import CallbackResult

TOPIC = "mail.ann"
SPACE = {"kind": "queues", "queue.topic.prefix": "mail."}


class SharedShard:
    """A group that reads a queue; node 1 leads the shard, 2 the state's partition, 3 the group."""

    def __init__(self) -> None:
        self.several = several = Several(3)
        several.ensure_offsets()
        self.do(several.broker(1).internal_streams.ensure_shares)
        self.do(several.broker(1).create_stream, Definition("mail", 1, SPACE))
        self.topics = {node: QueueTopics(several.broker(node)) for node in several.hands}
        topic = self.topics[1].shared(TOPIC)
        assert topic is not None
        self.key = ShareKey(GROUP, topic.id, 0)
        self.shard = several.place("mail")
        for place, node in (
            (self.shard, 1), (several.place(SHARE_STATE_STREAM, state_partition_for(self.key, 2)), 2),
            (several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), 3),
        ):  # fmt: skip
            several.elect(place, node)
        several.advance(1000)

    def do(self, action: Any, *args: Any) -> None:
        answer: CallbackResult[None] = CallbackResult()
        action(*args, answer)
        self.several.advance(1000)
        assert answer.there
        if answer.error is not None:
            raise answer.error

    def restart(self, node: int) -> None:
        self.several.restart(node)
        self.topics[node] = QueueTopics(self.several.broker(node))
        self.several.advance(1000)

    def broker(self, node: int) -> Broker:
        return self.several.broker(node)

    def beat(self, member: str, epoch: int = 0) -> ShareHeartbeatResult:
        answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
        heartbeat = ShareHeartbeat(member, epoch, None, [TOPIC], "c", "/h")
        self.broker(3).share_groups.heartbeat(GROUP, heartbeat, answer)
        self.several.advance(1000)
        return answer.value

    def reset(self, start: int) -> None:
        assert self.topics[3].shared(TOPIC) is not None  # a request has the name
        self.do(self.broker(3).share_groups.alter_offsets, GROUP, [((self.key.topic_id, 0), start)])

    def put(self, node: int, *values: bytes) -> int:
        topic = self.topics[node].shared(TOPIC)
        assert topic is not None
        answer: CallbackResult[object] = CallbackResult()
        batch = encode([BatchInput(1, b"key", value) for value in values])
        topic.append(memoryview(batch), answer, all_replicas=True)
        self.several.advance(1000)
        offset, error = answer.calls[0]
        assert error is None
        return int(offset)

    def take(self, node: int, owner: str) -> dict[int, tuple[int, bytes | None]]:
        answer: CallbackResult[list[ShareFetched]] = CallbackResult()
        self.broker(node).sharing.fetch([self.key], owner, LIMITS, answer)
        self.several.advance(2000)
        return acquired(answer.value[0])

    def say(self, node: int, owner: str, *said: tuple[int, int]) -> None:
        spoken = [Acknowledged(offset, offset, [type_]) for offset, type_ in said]
        self.do(self.broker(node).sharing.acknowledge, self.key, owner, spoken)

    def located(self, node: int) -> ShareOffset | DuramenError | None:
        answer: CallbackResult[Any] = CallbackResult()
        self.broker(node).share_nodes.locate([self.key], answer)
        self.several.advance(1000)
        found: ShareOffset | DuramenError | None = answer.value[self.key]
        return found


def test_the_leader_of_the_shard_delivers_and_its_successor_continues() -> None:
    shard = SharedShard()
    shard.reset(0)
    shard.put(1, b"1", b"2", b"3")
    assert shard.beat("m").assignment == frozenset({(shard.key.topic_id, 0)})
    assert shard.take(1, "m") == {0: (1, b"1"), 1: (1, b"2"), 2: (1, b"3")}
    shard.say(1, "m", (0, ACCEPT), (1, RELEASE))
    shard.several.elect(shard.shard, 2)
    shard.several.advance(2000)
    assert shard.take(2, "m") == {1: (2, b"2"), 2: (1, b"3")}
    try:
        shard.take(1, "m")
    except NotLeader:
        pass
    else:
        raise AssertionError("a deposed leader delivers")
    shard.say(2, "m", (1, ACCEPT))
    last = shard.put(2, b"4")
    assert shard.take(2, "n") == {last: (1, b"4")}


def test_a_coordinator_that_restarted_knows_the_queue_by_the_record_of_the_group() -> None:
    shard = SharedShard()
    shard.reset(0)
    shard.restart(3)
    shard.several.elect(shard.several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), 3)
    shard.several.advance(2000)
    assert shard.topics[3].name_of(shard.key.topic_id) is None  # a queue without entries is in no row
    assert partitions_of(shard.broker(3), GROUP) == {TOPIC: [0]}
    assert shard.located(3) == ShareOffset(0, 2, 0)
    shard.put(1, b"1", b"2")
    shard.beat("m")
    assert shard.take(1, "m") == {0: (1, b"1"), 1: (1, b"2")}
    shard.say(1, "m", (0, ACCEPT))
    assert shard.located(3) == ShareOffset(1, 2, 1)


def test_the_state_ends_with_the_space() -> None:
    shard = SharedShard()
    shard.reset(0)
    shard.do(shard.broker(3).delete_stream, "mail")
    shard.several.advance(1000)
    assert not shard.broker(3).share_groups.has(GROUP)
