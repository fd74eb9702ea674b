"""Batches of Spark while the node that coordinates their query ends in the middle, at every step."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinators.transaction.cluster.driving import Run
from tests.coordinators.transaction.cluster.reading import committed, undecided
from tests.coordinators.transaction.cluster.world import World
from tests.examples import examples

from duramen.base.errors import AttemptLost, BatchDiffers, ProducerFenced, ProducerIdUnknown, QueryFenced
from duramen.coordinators.transaction.batch_decisions import Won

TIMEOUT_MS = 60_000
SWEEP_MS = 10_000
REFUSED = (AttemptLost, BatchDiffers, ProducerFenced, ProducerIdUnknown, QueryFenced)


def settled(world: World) -> list[list[bytes | None]]:
    """What is committed in each partition in the end, when nothing is undecided any more."""
    world.calm()
    world.advance(SWEEP_MS + 5_000)
    for index in range(3):
        assert not undecided(world, "a", index)
    return [committed(world, "a", index) for index in range(3)]


def began(seed: int | None = None) -> tuple[World, Run]:
    world = World(seed=seed)
    world.create("a", 3)
    run = Run(world, "r1")
    assert not run.begin(0)
    return world, run


def test_what_has_won_is_committed_and_what_has_not_is_aborted() -> None:
    world, run = began()
    run.write(0, 0, 1, b"lost")
    won = [run.write(0, index, 2, b"won") for index in range(3)]
    run.decide(0, *won)
    assert settled(world) == [[b"won"]] * 3
    node, _ = world.led(*run.place)
    assert node.broker.transactions.listing((), (), -1) == []


def test_an_undecided_batch_times_out_and_a_decided_one_does_not() -> None:
    world, run = began()
    late = run.write(0, 0, 1, b"late")
    world.advance(TIMEOUT_MS + 2 * SWEEP_MS)
    with pytest.raises(AttemptLost):
        run.decide(0, late)
    run.decide(0, run.write(0, 0, 2, b"again"))
    world.advance(TIMEOUT_MS + 2 * SWEEP_MS)
    assert settled(world) == [[b"again"], [], []]


def survives(step: int, seed: int | None) -> None:
    """The coordinator ends at that step behind the wish to decide; then the driver asks again, or is another."""
    world, run = began(seed)
    run.write(0, 0, 1, b"lost")
    won = [run.write(0, index, 2, b"won") for index in range(3)]

    def kill() -> None:
        leader = world.leader(*run.place)
        if leader is not None:
            world.kill(leader, None if seed is None else random.Random(seed))

    world.at(step, kill)
    run.decide(0, *won)
    assert settled(world) == [[b"won"]] * 3
    again = Run(world, "r2")
    assert again.begin(0)
    again.decide(0)
    assert settled(world) == [[b"won"]] * 3


@pytest.mark.parametrize("step", range(0, 60, 2))
def test_a_decision_survives_its_coordinator_at_any_step(step: int) -> None:
    survives(step, None)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 120), st.integers(1, 10_000))
def test_a_decision_survives_in_any_order_of_steps(step: int, seed: int) -> None:
    survives(step, seed)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(1, 10_000), st.integers(0, 150), st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["write", "decide", "time"])), max_size=12),
)  # fmt: skip
def test_two_drivers_write_every_batch_once(seed: int, step: int, new_run: bool, steps: list[tuple[int, str]]) -> None:
    world, run = began(seed)
    drivers = [run, Run(world, "r2")]
    won: list[dict[int, tuple[bytes, Won]]] = [{}, {}]
    expected: list[bytes] = []
    batch = made = 0

    def kill() -> None:
        leader = world.leader(*run.place)
        if leader is not None:
            world.kill(leader, random.Random(seed))

    world.at(step, kill)
    for who, what in steps:
        driver = drivers[who]
        try:
            if what == "time":
                world.advance(TIMEOUT_MS + 2 * SWEEP_MS)
                continue
            if driver.number < 0 or (new_run and what == "write"):
                assert not driver.begin(batch)
            made += 1
            if what == "write":
                value = b"%d" % made
                won[who][made % 3] = value, driver.write(batch, made % 3, made, value)
            else:
                chosen, won[who] = won[who], {}
                driver.decide(batch, *[one for _, one in chosen.values()])
                expected += [value for value, _ in chosen.values()]
                batch += 1
                won = [{}, {}]
        except REFUSED:
            continue
    last = Run(world, "last")
    last.begin(batch)
    assert sorted(value or b"" for values in settled(world) for value in values) == sorted(expected)
