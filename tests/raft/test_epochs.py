"""The table of epochs and the history of voters, against the entries themselves kept one by one."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.raft.epochs import NOTHING, EpochEnd, EpochTable
from duramen.raft.voters import ReplicaId, Voter, VoterHistory, Voters

Operation = tuple[str, int, int]

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "cut", "start", "restart"]), st.integers(0, 9), st.integers(1, 3))
)


class Entries:
    """The epoch of each entry from `start` on."""

    def __init__(self) -> None:
        self.start = NOTHING
        self.epochs: list[int] = []

    @property
    def end(self) -> EpochEnd:
        return EpochEnd(self.epoch_below(self.start.offset + len(self.epochs)), self.start.offset + len(self.epochs))

    def epoch_below(self, offset: int) -> int:
        before = offset - self.start.offset
        return self.epochs[before - 1] if before else self.start.epoch

    def end_of(self, epoch: int) -> EpochEnd:
        kept = [one for one in self.epochs if one <= epoch]
        return EpochEnd(kept[-1], self.start.offset + len(kept)) if kept else self.start


@given(OPERATIONS)
def test_epochs_are_those_of_the_entries(operations: list[Operation]) -> None:
    table, entries = EpochTable(), Entries()
    for name, number, more in operations:
        end = entries.end
        offset = entries.start.offset + number % (len(entries.epochs) + 1)
        match name:
            case "append":
                table.append(end.epoch + number % 3, more)
                entries.epochs += [end.epoch + number % 3] * more
            case "cut":
                table.cut(offset)
                del entries.epochs[offset - entries.start.offset :]
            case "start":
                table.start_at(offset)
                start = EpochEnd(entries.epoch_below(offset), offset)
                del entries.epochs[: offset - entries.start.offset]
                entries.start = start
            case _:
                entries.start, entries.epochs = EpochEnd(end.epoch + more, end.offset + more), []
                table.restart(entries.start)
        assert (table.start, table.end) == (entries.start, entries.end)
        for epoch in range(entries.start.epoch, entries.end.epoch + 2):
            assert table.end_of(epoch) == entries.end_of(epoch)
            for place in range(max(0, entries.start.offset - 1), entries.end.offset + 2):
                inside = entries.start.offset <= place <= entries.end.offset
                assert table.holds(EpochEnd(epoch, place)) == (inside and entries.epoch_below(place) == epoch)


EPOCHS = st.lists(st.integers(1, 6), max_size=8).map(sorted)


@given(EPOCHS, EPOCHS, EPOCHS, st.integers(0, 8))
def test_a_follower_ends_where_the_histories_part_or_needs_the_snapshot(
    shared: list[int], leaders: list[int], followers: list[int], start: int
) -> None:
    """What two leaders order behind a shared beginning is of different epochs: here even ones and odd ones."""
    base = shared[-1] if shared else 0
    leader, follower = EpochTable(), EpochTable()
    for table, more in ((leader, [2 * epoch for epoch in leaders]), (follower, [2 * epoch - 1 for epoch in followers])):
        for epoch in shared + [base + one for one in more]:
            table.append(epoch, 1)
    leader.start_at(min(start, leader.end.offset))
    while not leader.holds(follower.end):
        before = follower.end
        if not leader.knows(before):
            assert leader.start.offset > 0
            assert before.offset < leader.start.offset or leader.start.epoch > before.epoch
            return
        follower.cut(follower.meeting(leader.end_of(before.epoch)))
        assert len(shared) <= follower.end.offset < before.offset or leader.start.offset > len(shared)
        assert follower.end < before
    assert follower.end.offset == len(shared)


@given(st.lists(st.tuples(st.sampled_from(["append", "cut", "start"]), st.integers(0, 9))))
def test_voters_are_those_of_the_last_entry_that_names_them(operations: list[tuple[str, int]]) -> None:
    base, start, end = one_voter(0), 0, 0
    history = VoterHistory(base)
    named: dict[int, Voters] = {}
    for name, number in operations:
        place = start + number % (end - start + 1)
        match name:
            case "append":
                if number % 2:
                    named[end] = one_voter(end + 1)
                    history.append(end, named[end])
                end += 1
            case "cut":
                history.cut(place)
                end = place
                named = {offset: voters for offset, voters in named.items() if offset < place}
            case _:
                history.start_at(place)
                start = place
                base = next((named[offset] for offset in sorted(named, reverse=True) if offset < place), base)
                named = {offset: voters for offset, voters in named.items() if offset >= place}
        for offset in range(start, end + 1):
            last = max((at for at in named if at < offset), default=None)
            assert history.at(offset) == (base if last is None else named[last])
        assert history.latest == history.at(end)
        assert history.latest_offset == max(named, default=-1)


def one_voter(node_id: int) -> Voters:
    return Voters([Voter(ReplicaId(node_id, "a"))])
