"""Short stories of light queues: each goes well as it is, and badly with one of the planted bugs."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.coordinators.queue.spaces import Space

from duramen.codec.batch import BatchInput, encode
from duramen.queues.machine import Delete, Edit, Empty, Replace
from duramen.queues.operations import NewEntry
from duramen.service.queue_topics import QueueTopics
from duramen.sim.broker import CallbackResult

__all__ = ["QUEUE_STORIES"]

_QUEUE: Final = b"user-1"


def power_goes_before_entries_are_on_disk() -> None:
    space, answer = Space(), CallbackResult[Any]()
    space.put((_QUEUE, b"first"))
    space.requests.enqueue(space.stream, [(_QUEUE, NewEntry(b"second"))], answer)
    space.hand.worker.run_soon()
    answered = answer.there
    space.hand.crash()
    assert space.values(_QUEUE) == [b"first", *([b"second"] if answered else [])]


def entries_of_a_run_are_edited_one_after_the_other() -> None:
    space = Space()
    positions = space.put(*((_QUEUE, b"%d" % number) for number in range(4)))
    for at in positions[:2]:
        space.submit(_QUEUE, Edit, [(at, None, b"edited")])
    assert space.values(_QUEUE) == [b"edited", b"edited", b"2", b"3"]


def the_last_entry_is_acknowledged_first() -> None:
    space = Space()
    space.put(*((_QUEUE, b"%d" % number) for number in range(3)))
    space.ack(space.lease(_QUEUE)[2])
    assert space.values(_QUEUE) == [b"0", b"1"]


def several_runs_are_taken_back() -> None:
    space = Space()
    first, *_ = [space.put((_QUEUE, b"%d" % number))[0] for number in range(3)]
    space.submit(_QUEUE, Replace, first, [NewEntry(b"new")])
    assert space.values(_QUEUE) == [b"new"]


def a_request_comes_twice() -> None:
    space = Space()
    first, again = (space.put((_QUEUE, b"once"), request="an id") for _ in range(2))
    assert first == again
    assert space.values(_QUEUE) == [b"once"]


def a_producer_sends_again_after_a_start() -> None:
    space = Space(queue_topic_prefix="topic.")
    batch, answers = (
        encode([BatchInput(1, None, b"once")], producer_id=7, producer_epoch=0, base_sequence=0),
        list[Any](),
    )
    for _ in range(2):
        topic, answer = QueueTopics(space.hand.broker).find(f"topic.{_QUEUE.decode()}"), CallbackResult[Any]()
        assert topic is not None
        topic.append(memoryview(batch), answer, all_replicas=True)
        space.hand.settle()
        answers.append(answer.value)
        space.hand.restart()
    assert answers[0] == answers[1]
    assert space.values(_QUEUE) == [b"once"]


def rows_are_damaged_after_the_log_was_cut() -> None:
    space = Space(checkpoint_records=5, segment_bytes=1024, queue_log_retention_ms=0)
    for number in range(60):
        space.put((_QUEUE, b"%d" % number + bytes(100)))
    space.hand.rows.damage(checkpoints=1)
    space.hand.crash()
    space.hand.advance(1)
    assert len(space.values(_QUEUE)) == 60


def two_lease_from_one_queue() -> None:
    space = Space()
    space.put((_QUEUE, b"0"), (_QUEUE, b"1"))
    offsets = [space.lease(_QUEUE, most=1)[0].entry.position.offset for _ in range(2)]
    assert len(set(offsets)) == 2


def the_node_starts_again_under_a_lease() -> None:
    space = Space()
    space.put((_QUEUE, b"0"))
    (leased,) = space.lease(_QUEUE)
    space.hand.restart()
    assert space.ack(leased) == {}
    assert space.values(_QUEUE) == []


def the_node_starts_again_in_a_delay() -> None:
    space = Space()
    (at,) = space.put((_QUEUE, b"0"))
    space.ack(*space.lease(_QUEUE), release_ms=60_000)
    space.hand.restart()
    assert space.lease(_QUEUE) == []
    space.submit(_QUEUE, Delete, [(at, None)])


def an_entry_is_delayed() -> None:
    space = Space()
    space.put((_QUEUE, NewEntry(b"later", delay_ms=1_000)), (_QUEUE, b"now"))
    assert space.values(_QUEUE) == [b"now"]


def an_entry_expires() -> None:
    space = Space()
    space.put((_QUEUE, NewEntry(b"short", ttl_ms=1_000)), (_QUEUE, b"long"))
    space.hand.clock.advance(1_000)  # nobody has been told
    assert [one.entry.value for one in space.lease(_QUEUE)] == [b"long"]


def a_delay_ends_behind_a_lease() -> None:
    space = Space()
    space.put((_QUEUE, NewEntry(b"later", delay_ms=1_000)), (_QUEUE, b"now"))
    space.lease(_QUEUE, lease_ms=60_000)
    space.hand.advance(2_000)
    assert [one.entry.value for one in space.lease(_QUEUE)] == [b"later"]


def two_entries_are_dead() -> None:
    space = Space(queue_dead_letter_queue="dead", queue_delivery_count_limit=1)
    space.put((_QUEUE, b"0"), (_QUEUE, b"1"))
    space.lease(_QUEUE, lease_ms=1)
    space.hand.advance(2_000)
    assert space.lease(_QUEUE) == []
    assert space.values(_QUEUE) == []
    assert space.values(b"dead") == [b"0", b"1"]


def an_entry_comes_back_several_times() -> None:
    space = Space()
    space.put((_QUEUE, b"0"))
    for deliveries in (1, 2, 3):
        (leased,) = space.lease(_QUEUE)
        assert leased.deliveries == deliveries
        space.ack(leased, release_ms=0)
        space.hand.restart()


def rows_are_made_anew_after_a_purge() -> None:
    space = Space()
    space.put((_QUEUE, b"0"))
    space.submit(_QUEUE, Empty, "purge")
    space.hand.rows.clear()
    space.hand.restart()
    space.hand.advance(1)
    assert space.values(_QUEUE) == []


def a_queue_is_dropped() -> None:
    space = Space()
    space.put((_QUEUE, b"0"))
    space.submit(_QUEUE, Empty, "drop")
    assert space.names() == []


def entries_are_young() -> None:
    space = Space(retention_ms=10_000)
    space.put((_QUEUE, b"0"))
    space.hand.advance(6_000)
    assert space.values(_QUEUE) == [b"0"]


def entries_are_deleted_where_few_are_kept() -> None:
    space = Space(retention_records=3)
    first, *_ = space.put(*((_QUEUE, b"%d" % number) for number in range(3)))
    assert len(space.values(_QUEUE)) == 3
    space.submit(_QUEUE, Delete, [(first, None)])
    space.put((_QUEUE, b"3"))
    assert space.values(_QUEUE) == [b"1", b"2", b"3"]


QUEUE_STORIES: Final[Mapping[str, Callable[[], None]]] = {
    "queue-answered-early": power_goes_before_entries_are_on_disk,
    "queue-overlay-dropped": entries_of_a_run_are_edited_one_after_the_other,
    "queue-head-too-far": the_last_entry_is_acknowledged_first,
    "queue-half-replaced": several_runs_are_taken_back,
    "queue-request-twice": a_request_comes_twice,
    "queue-producer-forgotten": a_producer_sends_again_after_a_start,
    "queue-log-cut-early": rows_are_damaged_after_the_log_was_cut,
    "queue-leased-twice": two_lease_from_one_queue,
    "queue-ack-lost": the_node_starts_again_under_a_lease,
    "queue-shown-early": an_entry_is_delayed,
    "queue-expired-leased": an_entry_expires,
    "queue-delayed-stuck": a_delay_ends_behind_a_lease,
    "queue-dead-letter-lost": two_entries_are_dead,
    "queue-deliveries-lost": an_entry_comes_back_several_times,
    "queue-purge-undone": rows_are_made_anew_after_a_purge,
    "queue-dropped-listed": a_queue_is_dropped,
    "queue-trimmed-young": entries_are_young,
    "queue-trimmed-few": entries_are_deleted_where_few_are_kept,
    "queue-delay-lost": the_node_starts_again_in_a_delay,
}
