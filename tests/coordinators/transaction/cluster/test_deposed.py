"""A coordinator that another has followed, and that has not heard of it, refuses nothing for good."""

from typing import Any

import pytest
from tests.coordinators.transaction.cluster.driving import Run
from tests.coordinators.transaction.cluster.world import Node, World
from tests.coordinators.transaction.cluster.writing import RETRIED, Writer

from duramen.base.errors import ProducerFenced, ProducerIdUnknown, QueryFenced, TransactionStateInvalid
from duramen.coordinators.transaction.batch_decisions import DecisionRequest
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.sim.broker import CallbackResult
from duramen.transactions.values import ProducerIdentity

NAME = "t"
PLACE = TRANSACTIONS_STREAM, transaction_partition(NAME, 2)


def depose(world: World, place: tuple[str, int]) -> Node:
    """The leader of a partition, which does not hear that another leads it from here on."""
    node, _ = world.led(*place)
    world.cut_off(node.node_id)
    world.settle()
    return node


def refused(world: World, answer: CallbackResult[Any]) -> BaseException | None:
    """What is said once the node has heard of it; not a word before, or that it is to be asked again."""
    world.settle()
    assert not answer.there or isinstance(answer.error, RETRIED)
    world.deaf.clear()
    world.advance(5_000)
    assert answer.there
    return answer.error


def test_an_id_that_another_knows_is_not_unknown(world: World) -> None:
    deposed = depose(world, PLACE)
    writer = Writer(world, NAME, 2)
    answer: CallbackResult[ProducerIdentity] = CallbackResult()
    deposed.broker.transactions.end(NAME, writer.identity, commit=False, version=2, done=answer)
    assert isinstance(refused(world, answer), RETRIED)
    writer.end(commit=False)


def test_a_producer_that_another_let_go_on_is_not_fenced(world: World) -> None:
    writer = Writer(world, NAME, 2)
    deposed = depose(world, PLACE)
    writer.write("a", 0, b"one")
    writer.end(commit=True)
    answer: CallbackResult[ProducerIdentity] = CallbackResult()
    deposed.broker.transactions.end(NAME, writer.identity, commit=False, version=2, done=answer)
    assert isinstance(refused(world, answer), RETRIED)


@pytest.mark.parametrize("version", [0, 2])
def test_a_batch_is_not_refused_for_good_by_who_leads_and_coordinates_no_more(world: World, version: int) -> None:
    deposed = depose(world, PLACE)
    writer = Writer(world, NAME, version)
    led = next(one for one in deposed.broker.streams.get("a").partitions if one.leads)
    answer: CallbackResult[int] = CallbackResult()
    admit = deposed.broker.transactions.admission(NAME, joins=version == 2)
    led.append(writer.batch(0, b"one"), answer, admit)
    assert isinstance(refused(world, answer), RETRIED)


def test_a_query_that_another_knows_is_not_unknown(world: World) -> None:
    deposed = depose(world, Run(world, "r1").place)
    run = Run(world, "r1")
    run.begin(0)
    answer: CallbackResult[None] = CallbackResult()
    deposed.broker.transactions.decisions.decide(DecisionRequest("q", run.number, 0, b"", ()), answer)
    assert isinstance(refused(world, answer), RETRIED)
    run.decide(0)


def test_who_coordinates_refuses_what_it_has_to(world: World) -> None:
    first = Writer(world, NAME, 2)
    second = Writer(world, NAME, 2)
    with pytest.raises(ProducerFenced):
        first.end(commit=False)
    with pytest.raises(TransactionStateInvalid):
        Writer(world, NAME, 0).end(commit=True)
    second.identity = ProducerIdentity(999, 0)
    with pytest.raises(ProducerIdUnknown):
        second.end(commit=False)
    run = Run(world, "r1")
    with pytest.raises(QueryFenced):
        run.decide(0)
