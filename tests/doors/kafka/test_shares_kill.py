"""Share groups over restarts and kill -9, and locks that run out, with a node of the test's own."""

from collections.abc import Callable

from tests.doors.kafka.sharing import ACCEPT, REJECT, RELEASE, Given, RawShareConsumer
from tests.raw import batch_of, produce_bytes

from duramen.codec.kafka.errors import ErrorCode
from duramen.node.process import NodeProcess

LOCK_MS = 300
SETTINGS = {"group.share.record.lock.duration.ms": LOCK_MS, "group.share.delivery.count.limit": 3}


def consumer(node: NodeProcess, member_id: str = "one", group: str = "g") -> RawShareConsumer:
    made = RawShareConsumer(node, group, "s", member_id)
    made.configure(share_auto_offset_reset="earliest")
    made.join()
    return made


def write(one: RawShareConsumer, count: int) -> None:
    for index in range(count):
        assert produce_bytes(one.connection, "s", batch_of(b"%d" % index)).error_code == 0


def test_after_kill_nine_what_was_acknowledged_is_gone_and_everything_else_comes_again(
    new_node: Callable[..., NodeProcess],
) -> None:
    with new_node() as node:
        one = consumer(node)
        write(one, 20)
        assert len(one.fetch()) == 20
        acknowledged = {at for at in range(20) if at % 3 == 0}
        for at in sorted(acknowledged):
            assert one.say(Given(at, at, [ACCEPT if at % 2 else REJECT])) == {0: 0}
        assert one.say(Given(1, 1, [RELEASE])) == {0: 0}
        one.connection.close()
        node.kill()
        node.start()
        two = consumer(node, "two")
        got = {found.offset: found.deliveries for found in two.fetch()}
        assert set(got) == set(range(20)) - acknowledged
        assert got[1] == 2
        assert all(deliveries in (1, 2) for deliveries in got.values())
        assert two.say(Given(1, 1, [ACCEPT])) == {0: 0}
        two.connection.close()
        assert node.stop() == 0
        node.restart()
        three = consumer(node, "three")
        assert {found.offset for found in three.fetch()} == set(got) - {1}
        three.connection.close()


def test_a_lock_runs_out_until_the_record_is_given_up(new_node: Callable[..., NodeProcess]) -> None:
    with new_node(SETTINGS) as node:
        one, two = consumer(node, "one"), consumer(node, "two")
        write(one, 1)
        assert [found.deliveries for found in one.fetch()] == [1]
        assert [found.deliveries for found in two.fetch(wait_ms=20_000)] == [2]
        assert one.say(Given(0, 0, [ACCEPT])) == {0: ErrorCode.INVALID_RECORD_STATE}
        assert [found.deliveries for found in one.fetch(wait_ms=20_000)] == [3]
        write(two, 1)
        later = one.fetch(wait_ms=20_000) or one.fetch(wait_ms=20_000)
        assert [(found.offset, found.deliveries) for found in later] == [(1, 1)]
        for made in (one, two):
            made.connection.close()
