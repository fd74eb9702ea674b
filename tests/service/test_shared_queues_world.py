"""Share groups on a queue of three brokers, whatever happens to them: see `coordinators/share/shared_world.py`."""

from collections.abc import Callable

import pytest
from tests.coordinators.share.shared_world import SharedWorld
from tests.coordinators.share.test_cluster import GROUP, Shares
from tests.service.test_shared_queues_cluster import SPACE, TOPIC

from duramen.base.errors import DuramenError
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.share.state import SHARE_STATE_STREAM
from duramen.groups.share_records import ShareKey, state_partition_for
from duramen.metadata.decisions import Definition
from duramen.queues.topics import SharedRead
from duramen.service.queue_topics import QueueTopic, QueueTopics
from duramen.sim.broker import CallbackResult

STEPS = 200


class QueueShares(Shares):
    """The group reads a queue, between whose entries are those of another queue."""

    def __init__(self) -> None:
        super().__init__()
        self.do(1, self.several.broker(1).create_stream, Definition("mail", 1, SPACE))
        self.topics = {node: QueueTopics(self.several.broker(node)) for node in self.several.hands}
        shard = self.several.place("mail")
        self.key = ShareKey(GROUP, self.topic(3).id, 0)
        self.owners = (
            shard, self.several.place(SHARE_STATE_STREAM, state_partition_for(self.key, 2)), self.owners[2],
        )  # fmt: skip
        for place, node in zip(self.owners, (1, 2, 3), strict=True):
            self.several.elect(place, node)
        self.several.advance(1000)

    def topic(self, node: int, name: str = TOPIC) -> QueueTopic:
        found = self.topics[node].shared(name)
        assert found is not None
        return found

    def restarted(self, node: int) -> None:
        self.topics[node] = QueueTopics(self.several.broker(node))

    def append(self, answer: CallbackResult[int], *values: bytes) -> None:
        leader = self.leaders[0]
        assert leader is not None
        batch = encode([BatchInput(1, None, value) for value in values])

        def appended(offset: int, error: DuramenError | None) -> None:
            answer(offset, error)

        self.topic(leader, "mail.bob").append(memoryview(batch), lambda *_: None, all_replicas=True)
        self.topic(leader).append(memoryview(batch), appended, all_replicas=True)

    def reset(self, start: int) -> None:
        self.do(0, self.coordinator.share_groups.alter_offsets, GROUP, [((self.key.topic_id, 0), start)])


@pytest.mark.variants(3)
@pytest.mark.parametrize("seed", range(1, 21))
def test_what_was_acknowledged_does_not_come_again_and_counts_hold(seed: int) -> None:
    assert SharedWorld(seed, QueueShares).run(STEPS)["delivered"]


def test_a_read_that_tells_of_gaps_beyond_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = QueueTopic.read_shared

    def planted(
        topic: QueueTopic, offset: int, wanted: Callable[[int], int | None], most: int, max_bytes: int
    ) -> SharedRead:
        found = read(topic, offset, wanted, most, max_bytes)
        return found._replace(end=found.end + 4)

    monkeypatch.setattr(QueueTopic, "read_shared", planted)

    def run() -> None:
        for seed in range(1, 21):
            SharedWorld(seed, QueueShares).run(STEPS)

    with pytest.raises(AssertionError, match="do not come"):
        run()
