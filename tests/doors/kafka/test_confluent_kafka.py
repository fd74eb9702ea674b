"""Unchanged librdkafka, through confluent-kafka."""

from confluent_kafka import Consumer, Producer

from duramen.node.process import NodeProcess


def test_produces_and_consumes(node: NodeProcess, stream_name: str) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(100):
        producer.produce(stream_name, value=b"%d" % number)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name, "auto.offset.reset": "earliest"})
    consumer.subscribe([stream_name])
    values: list[bytes | None] = []
    while len(values) < 100:
        values += [message.value() for message in consumer.consume(100, timeout=60)]
    consumer.close()
    assert values == [b"%d" % number for number in range(100)]
