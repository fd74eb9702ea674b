"""A log that follows other nodes: its leader stands before the first batch of each, whatever a loss of power takes."""

from duramen.base.errors import DuramenError
from duramen.base.leader_epochs import Takeover
from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log


def follow(hand: StoreOnDoubles, log: Log, epoch: int, leader_id: int) -> None:
    answers: list[DuramenError | None] = []
    hand.store.follow(log, epoch, leader_id, answers.append)
    assert answers == [None]


def append(hand: StoreOnDoubles, log: Log, epoch: int, value: bytes) -> AppendOutcome:
    batch = encode([BatchInput(0, None, value)])
    appended = AppendOutcome((value,))
    hand.store.append(log, batch, check(batch), epoch, appended.done)
    return appended


def rows(log: Log) -> list[Takeover]:
    return list(log.takeovers)


def test_leaders_are_entered_before_their_batches_and_once() -> None:
    hand = StoreOnDoubles()
    log = hand.log()
    for epoch, leader_id in ((3, 2), (3, 2), (7, 5)):
        follow(hand, log, epoch, leader_id)
        append(hand, log, epoch, b"x")
    hand.settle()
    expected = [Takeover(3, 2, 0), Takeover(7, 5, 2)]
    assert rows(log) == expected
    hand.crash()
    assert rows(hand.log()) == expected
    assert hand.values(hand.log()) == [b"x", b"x", b"x"]


def test_what_is_appended_while_a_log_is_held_waits_behind_its_leader() -> None:
    hand = StoreOnDoubles()
    log = hand.log()
    append(hand, log, 1, b"a")
    hand.settle()
    cut: list[DuramenError | None] = []
    hand.store.truncate(log, 0, 2, cut.append)
    entered: list[DuramenError | None] = []
    hand.store.follow(log, 2, 9, entered.append)
    late = append(hand, log, 2, b"b")
    assert (cut, entered, late.decided) == ([], [], False)
    hand.settle()
    assert (cut, entered, late.acknowledged) == ([None], [None], True)
    assert rows(log) == [Takeover(2, 9, 0)]
    hand.crash()
    assert (rows(hand.log()), hand.values(hand.log())) == ([Takeover(2, 9, 0)], [b"b"])


def test_a_leadership_of_which_no_batch_came_gives_way_to_an_earlier_one() -> None:
    hand = StoreOnDoubles()
    log = hand.log()
    follow(hand, log, 3, 1)
    append(hand, log, 3, b"a")
    follow(hand, log, 9, 2)
    hand.settle()
    hand.crash()
    log = hand.log()
    assert rows(log)[-1] == Takeover(9, 2, 1)
    hand.store.drop_empty_leaderships(log)
    assert rows(log) == [Takeover(3, 1, 0)]
    follow(hand, log, 4, 3)
    append(hand, log, 4, b"b")
    hand.settle()
    for _ in range(2):
        assert rows(log) == [Takeover(3, 1, 0), Takeover(4, 3, 1)]
        assert hand.values(log) == [b"a", b"b"]
        hand.crash()
        log = hand.log()


def test_nothing_is_forgotten_where_each_leadership_has_a_batch() -> None:
    hand = StoreOnDoubles()
    log = hand.log()
    follow(hand, log, 3, 1)
    append(hand, log, 3, b"a")
    hand.settle()
    version = log.version
    hand.store.drop_empty_leaderships(log)
    assert (log.version, log.cut_again, rows(log)) == (version, False, [Takeover(3, 1, 0)])


def test_a_log_that_cannot_be_written_has_no_new_leader() -> None:
    hand = StoreOnDoubles()
    log = hand.log()
    stopped: list[OSError | None] = []
    hand.store.stop(stopped.append)
    answers: list[DuramenError | None] = []
    hand.store.follow(log, 3, 1, answers.append)
    hand.settle()
    assert [type(answer).__name__ for answer in answers] == ["NodeStopping"]
    assert rows(log) == []
