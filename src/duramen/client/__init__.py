"""A small blocking Kafka client over `codec.kafka`: plain sockets with timeouts, no threads, one owner at a time.

It supports Duramen and Apache Kafka 3.1 and newer, and selects versions from the broker's ApiVersions. Not thread-safe.
"""

from duramen.client.admin import StreamAdmin
from duramen.client.cluster import BrokerCluster, TopicLeaders, TopicPartition
from duramen.client.consumer import Consumer
from duramen.client.fetch_result import Isolation
from duramen.client.group import GroupMembership
from duramen.client.producer import Producer

__all__ = [
    "BrokerCluster",
    "Consumer",
    "GroupMembership",
    "Isolation",
    "Producer",
    "StreamAdmin",
    "TopicLeaders",
    "TopicPartition",
]
