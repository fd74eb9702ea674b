"""Read the stream `orders` from its beginning to its end with an unchanged Kafka client.

python examples/consume_kafka.py [127.0.0.1:9092]
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

consumer = Consumer(
    {
        "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092",
        "group.id": "example",
        "enable.auto.commit": False,
    }
)
consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
_, end = consumer.get_watermark_offsets(TopicPartition("orders", 0))
for message in consumer.consume(end, timeout=10):
    print(message.offset(), dict(message.headers())["Nats-Subject"].decode(), message.value().decode())
consumer.close()
