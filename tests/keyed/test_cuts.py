"""Snapshots over several partitions: each transaction wholly or not at all."""

from random import Random

from duramen.base.cuts import EndedAt, MarkedUpTo
from duramen.keyed.cuts import Aims, cut


def test_no_transaction_is_cut_in_two() -> None:
    for seed in range(300):
        chance = Random(seed)
        partitions = range(chance.randint(1, 4))
        ends, markers = dict.fromkeys(partitions, 0), {at: list[EndedAt]() for at in partitions}
        for sequence in range(chance.randint(0, 8)):
            for at in chance.sample(partitions, chance.randint(1, len(partitions))):
                first = ends[at]
                ends[at] += chance.randint(2, 5)
                markers[at].append(EndedAt(ends[at] - 1, sequence, first, sequence, commit=True))
        high = {at: chance.randint(0, end) for at, end in ends.items()}
        marked = {at: MarkedUpTo(ends[at], [], markers[at]) for at in partitions}
        found = cut(dict.fromkeys(partitions, 0), high, marked)
        assert all(0 <= found[at] <= high[at] for at in partitions)
        sides: dict[int, set[bool]] = {}
        for at in partitions:
            for one in markers[at]:
                sides.setdefault(one.sequence, set()).add(one.offset < found[at])
        assert all(len(side) == 1 for side in sides.values())
        # What is whole as it was wanted is left alone.
        below = [{one.sequence for one in markers[at] if one.offset < high[at]} for at in partitions]
        behind = [{one.sequence for one in markers[at] if one.offset >= high[at]} for at in partitions]
        if not set().union(*below) & set().union(*behind):
            assert found == high


def test_what_may_have_another_marker_to_come_waits() -> None:
    marked = {"a": MarkedUpTo(10, [], [EndedAt(5, 1, 0, 7, commit=True)]), "b": MarkedUpTo(4, [(1, 2)], [])}
    assert cut({"a": 0, "b": 0}, {"a": 10, "b": 4}, marked) == {"a": 5, "b": 4}
    marked["b"] = MarkedUpTo(9, [], [EndedAt(8, 1, 2, 7, commit=True)])
    assert cut({"a": 0, "b": 0}, {"a": 10, "b": 9}, marked) == {"a": 10, "b": 9}


def test_a_vector_that_views_come_to_is_found_however_far_they_are_behind() -> None:
    for seed in range(12):
        chance = Random(seed)
        aims, taken, reached, last = Aims(), list[list[int]](), [0, 0], [-1, -1]
        end, lag, now_ms = [0, 0], chance.choice((3, 40, 400)), 0
        for step in range(1500):
            end = [at + chance.randrange(3) for at in end]
            taken.append(list(end))
            now_ms += chance.choice((1, 60, 200))
            aims.add(now_ms, end)
            reached = [max(at, taken[max(0, step - lag)][one] - chance.randrange(2)) for one, at in enumerate(reached)]
            found = aims.newest([0, 0], reached)
            if found is not None:
                assert list(found) in taken
                assert all(at <= position for at, position in zip(found, reached, strict=True))
                assert all(at >= before for at, before in zip(found, last, strict=True))
                last = list(found)
        assert last > [0, 0]
        assert taken.index(last) > 1490 - 2 * lag
        assert aims.newest([last[0] + 1, 0], reached) is None
