"""A voter that has lost synced entries to damage costs the quorum nothing that was committed."""

from typing import Final

import pytest
from tests.raft.planted import VOTE_DAMAGED
from tests.raft.simulation import Simulation
from tests.raft.witness import Stuck
from tests.seeds import first_that_finds

from duramen.raft.ballots import Ballot
from duramen.raft.effects import Send
from duramen.raft.epochs import EpochEnd
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import EntryBatch, Fetch, FetchAnswer, Vote, VoteAnswer
from duramen.raft.replica import RaftDiskState
from duramen.raft.voters import ReplicaId, Voter, Voters

FOUND_BY: Final = 3
A_FEW: Final = 25
MANY: Final = 1_000
DAMAGED_EVERY_MS: Final = 300


class Damaged(Simulation):
    """As `Simulation`; disks lose the last of what was synced too, as long as whole voters are a majority."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self._again(DAMAGED_EVERY_MS, self._damage)

    def _damage(self) -> None:
        node = self._any()
        whole = self._whole() - {node.site.me}
        if any(one.voters.ids and not one.voters.majority(whole) for one in self._nodes.values()):
            return
        if node.machine is not None:
            self._crash(node)
        lost = self.random.choice((1, 2, 5))
        node.site.disk.lose(lost)
        self._say(f"{node.site.me} loses its last {lost} batches")
        self._start_later(node)

    def _whole(self) -> set[ReplicaId]:
        sites = [node.site for node in self._nodes.values()]
        return {site.me for site in sites if not (site.disk.damaged if site.machine is None else site.machine.damaged)}

    def _alive(self) -> set[ReplicaId]:
        return super()._alive() & self._whole()


@pytest.mark.parametrize("seed", range(A_FEW))
def test_nothing_that_was_committed_is_lost(seed: int) -> None:
    Damaged(seed).run()


@pytest.mark.long
def test_nothing_that_was_committed_is_lost_under_many_seeds() -> None:
    for seed in range(A_FEW, MANY):
        Damaged(seed).run()


def test_a_seed_finds_a_voter_that_is_counted_on_for_what_it_lost() -> None:
    assert first_that_finds(VOTE_DAMAGED, Damaged, range(FOUND_BY, FOUND_BY + 1), stuck=Stuck) == FOUND_BY


@pytest.mark.long
def test_it_is_found_within_a_thousand_seeds() -> None:
    assert first_that_finds(VOTE_DAMAGED, Damaged, range(MANY), stuck=Stuck) is not None


ME, LEADER, OTHER = (ReplicaId(number, "a") for number in (1, 2, 3))
VOTERS = Voters(Voter(one) for one in (ME, LEADER, OTHER))


def sent(machine: RaftMachine) -> list[object]:
    return [effect.message for effect in machine.take() if isinstance(effect, Send)]


def test_a_damaged_voter_votes_again_once_it_has_all_that_its_leader_had() -> None:
    kept = RaftDiskState(Ballot(4), voters=VOTERS, batches=[EntryBatch(4, 0, 2)], damaged=True)
    machine = RaftMachine(ME, kept, now_ms=0, chance=lambda _: 0)
    machine.take()
    machine.receive(Vote(OTHER, 5, ME, EpochEnd(5, 9), pre=False))
    answer = sent(machine)[-1]
    assert isinstance(answer, VoteAnswer)
    assert not answer.granted
    machine.tick(60_000)
    assert not any(isinstance(message, Vote) for message in sent(machine))  # it does not stand either
    machine.receive(FetchAnswer(LEADER, 6, Fetch(ME, 6, EpochEnd(4, 2), 0, 0, 0), 0))
    fetch = [message for message in sent(machine) if isinstance(message, Fetch)][-1]
    assert (fetch.end, fetch.synced_offset) == (EpochEnd(4, 2), 0)  # it acknowledges nothing
    machine.receive(FetchAnswer(LEADER, 6, fetch, 4, batches=(EntryBatch(4, 2, 2), EntryBatch(6, 4, 1))))
    machine.synced(EpochEnd(6, 5))
    fetch = [message for message in sent(machine) if isinstance(message, Fetch)][-1]
    assert (fetch.end, fetch.synced_offset) == (EpochEnd(6, 5), 0)
    machine.receive(FetchAnswer(LEADER, 6, fetch, 5))
    fetch = [message for message in sent(machine) if isinstance(message, Fetch)][-1]
    assert fetch.synced_offset == 5
    machine.receive(Vote(OTHER, 7, ME, EpochEnd(6, 5), pre=False))
    answer = [message for message in sent(machine) if isinstance(message, VoteAnswer)][-1]
    assert answer.granted


def test_a_voter_that_is_alone_goes_on_with_what_is_left() -> None:
    kept = RaftDiskState(Ballot(4), voters=Voters([Voter(ME)]), batches=[EntryBatch(4, 0, 2)], damaged=True)
    machine = RaftMachine(ME, kept, now_ms=0, chance=lambda _: 0)
    assert not machine.damaged
    assert machine.leader == ME
