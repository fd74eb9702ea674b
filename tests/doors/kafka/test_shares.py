"""Share groups at the Kafka door, request by request."""

from tests.doors.kafka.sharing import ACCEPT, RELEASE, Given, RawShareConsumer
from tests.raw import batch_of, produce_bytes

from duramen.node.process import NodeProcess


def written(consumer: RawShareConsumer, *values: bytes, partition: int = 0) -> None:
    assert produce_bytes(consumer.connection, consumer.stream, batch_of(*values), partition=partition).error_code == 0


def test_two_consumers_share_a_partition(node: NodeProcess, stream_name: str) -> None:
    one = RawShareConsumer(node, f"{stream_name}-g", stream_name, "one")
    two = RawShareConsumer(node, f"{stream_name}-g", stream_name, "two")
    assert one.join() == [0]
    assert two.join() == [0]
    assert one.fetch() == []
    assert two.fetch() == []
    written(one, b"a", b"b")
    written(one, b"c")
    assert [(got.offset, got.deliveries, got.value) for got in one.fetch(most=1)] == [(0, 1, b"a"), (1, 1, b"b")]
    assert [(got.offset, got.deliveries, got.value) for got in two.fetch()] == [(2, 1, b"c")]
    assert one.say(Given(0, 1, [ACCEPT, RELEASE])) == {0: 0}
    assert [(got.offset, got.deliveries, got.value) for got in two.fetch()] == [(1, 2, b"b")]
    assert two.say(Given(1, 2, [ACCEPT])) == {0: 0}
    one.leave()
    two.leave()
