"""What a partition's leader does for coordinators: markers that come late or again, and who may join."""

from collections.abc import Sequence

import pytest
from tests.coordinators.transaction.cluster.reading import committed, undecided
from tests.coordinators.transaction.cluster.world import World
from tests.coordinators.transaction.cluster.writing import Writer

from duramen.base.errors import DuramenError, NotEnoughReplicas, TransactionAbortable
from duramen.coordinators.transaction.cluster.requests import WRITE_MARKERS, WriteMarkers, WriteMarkersResponse
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
from duramen.metadata.partitions import PartitionId
from duramen.rpc.errors import Refused
from duramen.rpc.server import RpcServer
from duramen.service.methods import wires_by
from duramen.sim.broker import CallbackResult


def coordinator_epoch(world: World, writer: Writer) -> int:
    name, index = writer.coordinator
    state = world.state.partitions.get(PartitionId(world.state.streams[name].id, index))
    assert state is not None
    return state.leader_epoch


def mark(world: World, writer: Writer, epoch: int, coordinator: int, version: int) -> Sequence[Refused | None]:
    """Ask the leader of partition 0 of `a` for a marker that aborts, as a coordinator of that epoch."""
    node, _ = world.led("a", 0)
    request = WriteMarkers(
        writer.coordinator[1], coordinator, writer.identity.producer_id, epoch, False, version,
        ((world.state.streams["a"].id.bytes, 0),),
    )  # fmt: skip
    answer: CallbackResult[WriteMarkersResponse | DuramenError] = CallbackResult()
    world.node(node.node_id % 3 + 1).broker.caller.call(node.node_id, WRITE_MARKERS, request, answer)
    world.settle()
    assert isinstance(answer.value, WriteMarkersResponse)
    return answer.value.results


def test_a_marker_of_an_earlier_coordinator_is_refused_though_its_epoch_would_fit(world: World) -> None:
    writer = Writer(world, "t", 0)
    epoch = coordinator_epoch(world, writer)
    others = [node_id for node_id in (1, 2, 3) if node_id != world.leader(*writer.coordinator)]
    world.lead(TRANSACTIONS_STREAM, writer.coordinator[1], others[0])
    world.advance(1_000)
    writer.write("a", 0, b"one")
    (refused,) = mark(world, writer, writer.identity.epoch, epoch, 0)
    assert refused is not None
    assert refused.id == "not-coordinator"
    assert undecided(world, "a", 0)
    writer.end(commit=True)
    world.advance(1_000)
    assert committed(world, "a", 0) == [b"one"]


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(world: World) -> None:
    writer = Writer(world, "t", 2)
    writer.write("a", 0, b"one")
    writer.end(commit=True)
    writer.write("a", 0, b"two")
    _, partition = world.led("a", 0)
    end_offset = partition.log.end_offset
    assert mark(world, writer, writer.identity.epoch, coordinator_epoch(world, writer), 2) == (None,)
    assert partition.log.end_offset == end_offset
    writer.end(commit=True)
    world.advance(1_000)
    assert committed(world, "a", 0) == [b"one", b"two"]


def test_a_marker_where_nothing_is_open_refuses_what_comes_late(world: World) -> None:
    writer = Writer(world, "t", 2)
    assert mark(world, writer, writer.identity.epoch + 1, coordinator_epoch(world, writer), 2) == (None,)
    _, partition = world.led("a", 0)
    assert partition.log.producers.epoch(writer.identity.producer_id) == writer.identity.epoch + 1


def test_a_stream_that_is_deleted_does_not_hold_up_the_end(world: World) -> None:
    world.create("b", 1)
    writer = Writer(world, "t", 2)
    writer.write("a", 0, b"one")
    writer.write("b", 0, b"one")
    deleted: CallbackResult[None] = CallbackResult()
    world.nodes[0].broker.delete_stream("b", deleted)
    world.settle()
    assert deleted.value is None
    writer.end(commit=True)
    world.advance(5_000)
    assert committed(world, "a", 0) == [b"one"]


# -- joining ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_batches_that_come_while_the_coordinator_is_asked_keep_their_order(seed: int) -> None:
    world = World(seed=seed)
    world.create("a", 3)
    writer = Writer(world, "t", 2)
    node, partition = world.led("a", 0)
    answers: list[CallbackResult[int]] = [CallbackResult() for _ in range(4)]
    admit = node.broker.transactions.admission("t", joins=True)
    for sequence, answer in enumerate(answers):
        partition.append(writer.batch(sequence, b"%d" % sequence), answer, admit)
        for _ in range(seed):
            world._step()
    world.advance(2_000)
    assert [answer.value for answer in answers] == [0, 1, 2, 3]
    writer.end(commit=True)
    world.advance(1_000)
    assert committed(world, "a", 0) == [b"0", b"1", b"2", b"3"]


def test_while_the_coordinator_s_node_starts_a_batch_is_refused_so_that_it_is_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(world, "t", 2)
    coordinator = world.leader(*writer.coordinator)
    assert coordinator is not None
    index = next(index for index in range(3) if world.leader("a", index) != coordinator)
    node, partition = world.led("a", index)
    starting = RpcServer(wires_by(lambda: world.state))  # it has no handlers yet

    with monkeypatch.context() as patched:
        patched.setattr(world.node(coordinator).broker, "handle_request", starting.serve)
        answer: CallbackResult[int] = CallbackResult()
        partition.append(writer.batch(0, b"one"), answer, node.broker.transactions.admission("t", joins=True))
        world.settle()
        assert isinstance(answer.error, NotEnoughReplicas)
    writer.write("a", index, b"one")
    writer.end(commit=True)
    world.advance(1_000)
    assert committed(world, "a", index) == [b"one"]


def test_without_a_coordinator_in_reach_a_batch_is_refused_so_that_it_is_sent_again(world: World) -> None:
    writer = Writer(world, "t", 2)
    coordinator = world.leader(*writer.coordinator)
    index = next(index for index in range(3) if world.leader("a", index) != coordinator)
    assert coordinator is not None
    node, partition = world.led("a", index)
    answer: CallbackResult[int] = CallbackResult()
    partition.append(writer.batch(0, b"one"), answer, node.broker.transactions.admission("t", joins=True))
    world.kill(coordinator)
    third = next(one.node_id for one in world.nodes if one.node_id not in (coordinator, node.node_id))
    world.kill(third)
    world.settle()
    assert isinstance(answer.error, NotEnoughReplicas)
    world.node(third).start()
    world.advance(1_000)
    assert partition.log.end_offset == 0
    writer.write("a", index, b"one")
    writer.end(commit=True)
    world.advance(1_000)
    assert committed(world, "a", index) == [b"one"]


def test_what_has_not_joined_is_not_appended_for_older_clients(world: World) -> None:
    writer = Writer(world, "t", 0)
    node, partition = world.led("a", 1)
    answer: CallbackResult[int] = CallbackResult()
    partition.append(writer.batch(0, b"one"), answer, node.broker.transactions.admission("t", joins=False))
    world.settle()
    assert isinstance(answer.error, TransactionAbortable)
