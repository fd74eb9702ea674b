"""Snapshots over several partitions: each transaction wholly or not at all."""

from random import Random

from duramen.keyed.cuts import Aims, Commits, cut


def test_what_was_decided_is_in_and_nothing_else() -> None:
    whole = none = 0
    for seed in range(300):
        chance = Random(seed)
        partitions, ends = range(chance.randint(1, 4)), dict[int, int]()
        decided, markers = chance.randint(0, 8), {at: list[tuple[int, int]]() for at in range(4)}
        order = list(range(8))
        if chance.random() < 0.7:
            order = chance.sample(range(decided), decided) + chance.sample(range(decided, 8), 8 - decided)
        else:
            chance.shuffle(order)
        for at in partitions:
            offset = chance.randint(0, 3)
            for sequence in order:
                if chance.random() < 0.7:
                    markers[at].append((offset, sequence))
                    offset += chance.randint(1, 4)
            ends[at] = offset
        found = cut({at: Commits(ends[at], markers[at]) for at in partitions}, decided.__gt__)
        if found is None:
            none += 1
            assert any(
                one < decided <= other for at in partitions for _, other in markers[at] for _, one in markers[at]
            )
            continue
        whole += 1
        for at in partitions:
            assert found[at] <= ends[at]
            inside = [sequence for offset, sequence in markers[at] if offset < found[at]]
            assert inside == [sequence for _, sequence in markers[at] if sequence < decided]
            if not any(sequence >= decided for _, sequence in markers[at]):
                assert found[at] == ends[at]
    assert min(whole, none) > 20


def test_a_marker_that_says_nothing_ends_the_snapshot_before_it() -> None:
    partitions = {"a": Commits(10, [(5, -1)]), "b": Commits(4, [])}
    assert cut(partitions, lambda sequence: sequence >= 0) == {"a": 5, "b": 4}


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
