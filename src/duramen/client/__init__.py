"""A small blocking Kafka client over `codec.kafka`: plain sockets with timeouts, no threads, one owner at a time.

It speaks to Duramen and to Apache Kafka 3.1 and newer, picking versions by what the broker offers. Not thread-safe.
"""

from duramen.client.admin import Admin
from duramen.client.cluster import Cluster, Topic, TopicPartition
from duramen.client.consumer import Consumer
from duramen.client.fetched import Isolation
from duramen.client.group import Member
from duramen.client.producer import Producer

__all__ = ["Admin", "Cluster", "Consumer", "Isolation", "Member", "Producer", "Topic", "TopicPartition"]
