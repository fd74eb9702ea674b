"""Nodes that form a cluster, on a network where what was said may arrive at any time, any number of times, or never.

Only an answer dies with the process that asked. A disk has what was persisted. A crash comes before any Persist, and so
after everything that came before it; what is said after it and does not arrive stands for a crash behind it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from duramen.raft.forming.machine import Forming
from duramen.raft.forming.values import (
    Belongs,
    ClusterProposal,
    Effect,
    FormationDiskState,
    FormationHello,
    FormationReply,
    Message,
    PersistFormation,
    SendFormationMessage,
)
from duramen.raft.voters import ReplicaId


class Flying(NamedTuple):
    """Something said: a question for the seed at `to`, or the answer of the seed at `about` for it."""

    to: str
    sender: str
    message: Message
    answers: bool = False


class Node(NamedTuple):
    """All that a node knows and keeps, as a value."""

    me: ReplicaId
    seeds: tuple[str, ...]
    kept: FormationDiskState
    proposal: ClusterProposal | None = None
    heard: tuple[tuple[str, FormationHello], ...] = ()


class State(NamedTuple):
    """A world as a value."""

    nodes: tuple[tuple[str, Node], ...]
    flying: frozenset[Flying] = frozenset()
    crashes: int = 0


Action = tuple[str, object]


def directory(number: int) -> str:
    return str(UUID(int=number))


def begin(node_ids: dict[str, int], seeds: dict[str, tuple[str, ...]] | None = None) -> State:
    """Nodes by their addresses, with empty directories, as they have just begun; `seeds` where lists differ."""
    nodes = {}
    flying: frozenset[Flying] = frozenset()
    for address, node_id in node_ids.items():
        listed = (seeds or {}).get(address, tuple(node_ids))
        me = ReplicaId(node_id, directory(sum(map(ord, address)) * 10))
        nodes[address], said = start(address, me, FormationDiskState(), listed)
        flying |= said
    return State(tuple(sorted(nodes.items())), flying)


def start(
    address: str, me: ReplicaId, kept: FormationDiskState, seeds: tuple[str, ...]
) -> tuple[Node, frozenset[Flying]]:
    """A process begins with what is on its disk."""
    forming = Forming(me, kept, seeds)
    forming.itself(address)
    node, said = settle(address, Node(me, tuple(seeds), kept), forming, forming.take())
    return node, frozenset(said)


def revive(node: Node) -> Forming:
    """The machine of a value."""
    forming = Forming(node.me, node.kept, node.seeds)
    forming.take()
    forming.kept = node.kept
    forming.proposal = node.proposal
    forming.heard = dict(node.heard)
    return forming


def settle(address: str, node: Node, forming: Forming, effects: Sequence[Effect]) -> tuple[Node, list[Flying]]:
    """Do what is to be done."""
    said = [flying for effect in effects for flying in _flying(address, effect)]
    kept = next((effect.kept for effect in reversed(effects) if isinstance(effect, PersistFormation)), node.kept)
    heard = tuple(sorted(forming.heard.items()))
    return node._replace(kept=kept, proposal=forming.proposal, heard=heard), said


def _flying(address: str, effect: Effect) -> Iterator[Flying]:
    match effect:
        case SendFormationMessage(to, message):
            assert to != address
            yield Flying(to, address, message)
        case FormationReply(request, hello):
            yield Flying(str(request), address, hello, answers=True)
        case PersistFormation() | Belongs():
            pass


def perform(state: State, action: Action) -> list[tuple[State, int]]:
    """The states that an action may lead to, with the number of crashes that each takes."""
    kind, what = action
    nodes = dict(state.nodes)
    if kind == "crash":
        return [(_crashed(state, str(what), nodes[str(what)].kept), 1)]
    address = what.to if isinstance(what, Flying) else str(what)
    node = nodes.get(address)
    if node is None:
        return []
    forming = revive(node)
    if not isinstance(what, Flying):
        forming.tick()
    elif what.answers:
        assert isinstance(what.message, FormationHello)
        forming.answered(what.sender, what.message)
    else:
        forming.asked(what.message, what.sender)
    effects = forming.take()
    after, said = settle(address, node, forming, effects)
    nodes[address] = after
    outcomes = [(state._replace(nodes=tuple(sorted(nodes.items())), flying=state.flying | set(said)), 0)]
    kept, before = node.kept, set(state.flying)
    for effect in effects:
        if isinstance(effect, PersistFormation):
            outcomes.append((_crashed(state._replace(flying=frozenset(before)), address, kept), 1))
            kept = effect.kept
        before |= set(_flying(address, effect))
    return outcomes


def _crashed(state: State, address: str, kept: FormationDiskState) -> State:
    nodes = dict(state.nodes)
    node = nodes[address]
    nodes[address], said = start(address, node.me, kept, node.seeds)
    return State(tuple(sorted(nodes.items())), _without_answers(state.flying, address) | said, state.crashes + 1)


def _without_answers(flying: frozenset[Flying], to: str) -> frozenset[Flying]:
    return frozenset(one for one in flying if not one.answers or one.to != to)


def replaced(state: State, address: str, *, number: int, seeds: tuple[str, ...] | None = None) -> State:
    """The node with an empty directory, or with `number` 0 with its own, and with these seeds."""
    nodes = dict(state.nodes)
    node = nodes[address]
    me = ReplicaId(node.me.node_id, directory(number)) if number else node.me
    nodes[address], said = start(address, me, FormationDiskState() if number else node.kept, seeds or node.seeds)
    return state._replace(nodes=tuple(sorted(nodes.items())), flying=_without_answers(state.flying, address) | said)


def actions(state: State) -> list[Action]:
    """What may happen next, crashes apart."""
    ticks: list[Action] = [("tick", address) for address, _ in state.nodes]
    return [*ticks, *(("deliver", flying) for flying in sorted(state.flying, key=repr))]


def fairly(state: State, rounds: int = 12) -> State:
    """Everybody is up, and what is said arrives once and soon."""
    for _ in range(rounds):
        for address, _node in state.nodes:
            before = state.flying
            state = perform(state._replace(flying=frozenset()), ("tick", address))[0][0]
            while state.flying:
                flying = min(state.flying, key=repr)
                rest = state.flying - {flying}
                after = perform(state._replace(flying=frozenset()), ("deliver", flying))
                state = after[0][0]._replace(flying=rest | after[0][0].flying) if after else state._replace(flying=rest)
            state = state._replace(flying=before)
    return state


def clusters(state: State) -> set[UUID]:
    """The ids on disks."""
    return {node.kept.cluster_id for _, node in state.nodes if node.kept.cluster_id is not None}


def check(state: State) -> None:
    """There is one cluster at most, with one set of first voters, and each of these is bound to it or lost its disk."""
    kept = {node.me: node.kept for _, node in state.nodes}
    assert len(clusters(state)) <= 1
    formed = {(one.cluster_id, one.voters) for one in kept.values() if len(one.voters)}
    assert len(formed) <= 1
    for cluster_id, voters in formed:
        for one in [kept[voter] for voter in voters.ids if voter in kept]:
            assert one.cluster_id == cluster_id or (one.promise and one.promise.attempt.cluster_id == cluster_id)
