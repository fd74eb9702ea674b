"""Three client libraries in one consumer group, coming and going while records flow."""

import threading
from collections import defaultdict
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until
from tests.doors.kafka.members import MEMBERS, Member

from duramen.node.process import NodeProcess

_PARTITIONS = 6


class _Flow:
    """Records, produced until it is told to stop."""

    def __init__(self, address: str, stream: str) -> None:
        self.produced = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address, stream))
        self._thread.start()

    def _run(self, address: str, stream: str) -> None:
        producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        while not self._stop.wait(0.01):
            for _ in range(20):
                producer.produce(stream, b"%d" % self.produced, partition=self.produced % _PARTITIONS)
                self.produced += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.produced


def _shared(*members: Member) -> bool:
    """Whether every member reads, and every partition is read by one of them."""
    shares = [member.assigned for member in members]
    return all(shares) and sorted(index for share in shares for index in share) == list(range(_PARTITIONS))


def test_three_libraries_in_one_group_see_every_record(node: NodeProcess, stream_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for future in admin.create_topics([NewTopic(stream_name, _PARTITIONS, 1)]).values():
        future.result(60)
    flow = _Flow(node.kafka, stream_name)
    everyone: list[Member] = []

    def join(library: str) -> Member:
        member = MEMBERS[library](node.kafka, stream_name, stream_name).start()
        everyone.append(member)
        return member

    try:
        first = {library: join(library) for library in MEMBERS}
        until(lambda: _shared(*first.values()))
        for library, member in first.items():
            staying = [other for other in first.values() if other is not member]
            member.leave()
            until(partial(_shared, *staying))
            first[library] = join(library)
            until(lambda: _shared(*first.values()))
        last = first.pop("aiokafka")
        for member in first.values():
            member.leave()
        until(lambda: _shared(last))
        count = flow.stop()
        wanted = {b"%d" % number for number in range(count)}
        until(lambda: {value for member in everyone for _, value in list(member.seen)} >= wanted)
    finally:
        flow.stop()
        for member in everyone:
            member.leave()
    by_place: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    for member in everyone:
        for place, value in member.seen:
            by_place[place].add(value)
    # Every record was seen, each place holds one record, and they are dense.
    assert all(len(values) == 1 for values in by_place.values())
    assert len(by_place) == count
    for index in range(_PARTITIONS):
        offsets = sorted(offset for partition, offset in by_place if partition == index)
        assert offsets == list(range(len(offsets)))
    # What was committed is the end of everything.
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    committed = consumer.committed([TopicPartition(stream_name, index) for index in range(_PARTITIONS)], timeout=60)
    consumer.close()
    assert sum(one.offset for one in committed) == count
