"""Worlds that live through a seed's choices: what arrives, who crashes, which disks are lost, which lists change."""

from random import Random

from tests.raft.forming.world import Action, State, actions, begin, check, fairly, perform, replaced

ABC = {"a": 1, "b": 2, "c": 3}
LISTS = (("a", "c"), ("b", "c"), ("a", "b", "c"))
"""No two of them without a node in common: two clusters cannot be what anybody wanted."""

_STEPS = 80


def with_crashes(seed: int, *, lose_disks: bool) -> State:
    """Three seeds. Raises AssertionError where `check` does."""
    random = Random(seed)
    state = begin(ABC)
    for step in range(_STEPS):
        if lose_disks and random.random() < 0.03:
            state = replaced(state, random.choice("abc"), number=1000 + step)
        else:
            state = _step(random, state)
        check(state)
    return state


def with_lists(seed: int) -> State:
    """Operators who change their minds about the seeds of each node. Raises AssertionError as above."""
    random = Random(seed)
    state = begin(ABC, {address: random.choice(_listing(address)) for address in ABC})
    for _ in range(_STEPS):
        if random.random() < 0.1:
            address = random.choice("abc")
            state = replaced(state, address, number=0, seeds=random.choice(_listing(address)))
        else:
            state = _step(random, state)
        check(state)
    return state


def _listing(address: str) -> list[tuple[str, ...]]:
    return [one for one in LISTS if address in one]


def _step(random: Random, state: State) -> State:
    if random.random() < 0.04:
        return fairly(state, rounds=1)
    chosen: Action = random.choice(actions(state))
    if random.random() < 0.05:
        chosen = ("crash", random.choice(state.nodes)[0])
    outcomes = perform(state, chosen)
    crashing = random.random() < 0.1
    after = [one for one, crashes in outcomes if bool(crashes) == crashing] or [one for one, _ in outcomes]
    return random.choice(after) if after else state
