"""Which producers a log may have forgotten, over every end of a process."""

import msgspec
import pytest

from duramen.base.errors import OutOfOrderSequence
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.checkpoint import checkpoint_numbers, read_checkpoint, write_checkpoint
from duramen.storage.log.log import LogConfig
from duramen.storage.log.producers import ANY_ID

ENDS = ["crash", "kill", "stop"]


def end(doubles: StoreOnDoubles, how: str) -> None:
    if how == "stop":
        assert doubles.stop() is None
        doubles.boot()
    else:
        getattr(doubles, how)()


def taken(doubles: StoreOnDoubles, producer_id: int, sequence: int) -> bool:
    """Whether a batch of that sequence is, of a producer that the log does not know."""
    append = doubles.append(doubles.log(), b"x", producer=(producer_id, 0, sequence))
    doubles.settle()
    assert append.acknowledged or isinstance(append.error, OutOfOrderSequence)
    return append.acknowledged


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_start_that_passes_their_batches(durability: str, how: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability=durability))
    for producer_id in (3, 5, 4):
        doubles.append(log, b"x", producer=(producer_id, 0, 0))
    doubles.settle()
    assert log.producers.forgotten_id == -1
    doubles.advance(1500)
    doubles.store.move_start(log, 2)
    doubles.settle()
    assert log.producers.forgotten_id == 5
    end(doubles, how)
    # A loss of power takes what was never synced, and with it what was known.
    expected = ANY_ID if (durability, how) == ("os", "crash") else 5
    assert doubles.log().producers.forgotten_id == expected
    assert taken(doubles, 1, 7)
    assert taken(doubles, 6, 7) == (expected == ANY_ID)


@pytest.mark.parametrize("how", ENDS)
def test_producers_that_expired(how: str) -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"x", producer=(3, 0, 0))
    doubles.settle()
    doubles.store.expire_producers(doubles.clock.wall_ms() + 1)
    doubles.advance(61_000)
    end(doubles, how)
    assert doubles.log().producers.forgotten_id == 3
    assert taken(doubles, 3, 7)
    assert not taken(doubles, 4, 7)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("when", ["before its first record", "later"])
def test_what_others_say_is_on_disk_before_what_comes_behind_it(when: str, how: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log()
    if when == "later":
        doubles.append(log, b"first")
    doubles.store.forget_producers(log, 9)
    append = doubles.append(log, b"x")
    doubles.settle()
    assert append.acknowledged
    end(doubles, how)
    assert doubles.log().producers.forgotten_id == 9


@pytest.mark.parametrize("how", ENDS)
def test_a_cut_forgets_nobody(how: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log()
    for producer_id in (3, 5):
        doubles.append(log, b"x", producer=(producer_id, 0, 0))
    doubles.settle()
    doubles.advance(1500)
    doubles.store.truncate(log, 1, doubles.store.node_epoch, lambda _: None)
    doubles.settle()
    end(doubles, how)
    assert doubles.log().producers.forgotten_id == -1
    assert not taken(doubles, 5, 1)
    assert taken(doubles, 5, 0)
    assert taken(doubles, 3, 1)


@pytest.mark.parametrize("how", ENDS)
def test_of_a_log_in_memory_nobody_knows(how: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability="memory"))
    doubles.append(log, b"x", producer=(3, 0, 0))
    doubles.settle()
    end(doubles, how)
    log = doubles.log()
    assert log.producers.forgotten_id == ANY_ID
    doubles.store.bound_forgotten(log, 10)
    assert log.producers.forgotten_id == 10
    doubles.store.bound_forgotten(log, 5)
    assert log.producers.forgotten_id == 10


def test_nobody_knows_where_no_checkpoint_is_left() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(), b"x", producer=(3, 0, 0))
    doubles.settle()
    doubles.advance(61_000)
    assert doubles.stop() is None
    for number in checkpoint_numbers(doubles.files):
        doubles.files.unlink(f"checkpoint-{number:012d}")
    doubles.boot()
    assert doubles.log().producers.forgotten_id == ANY_ID


def test_of_logs_of_an_older_version_nobody_knows_but_of_those_without_records() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(0), b"x", producer=(3, 0, 0))
    doubles.settle()
    assert doubles.stop() is None
    for number in checkpoint_numbers(doubles.files):
        found = read_checkpoint(doubles.files, number)
        assert found is not None
        older = [msgspec.Raw(msgspec.msgpack.encode(msgspec.msgpack.decode(log)[:17])) for log in found.logs]
        write_checkpoint(doubles.files, number, msgspec.structs.replace(found, logs=older))
    doubles.boot()
    assert doubles.log().producers.forgotten_id == ANY_ID
    assert doubles.log(1).producers.forgotten_id == -1
    assert taken(doubles, 3, 1)
