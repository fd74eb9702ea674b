"""Checkpoints of views: lost, behind, ahead, damaged; two generations on a disk that may fail."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keyed.model import SECRET

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import FileSystem
from duramen.codec.batch import BatchInput, encode
from duramen.host.files import HostFileSystem
from duramen.keyed import checkpoint
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.pagefiles import PageFiles, begin_checkpoint, end_checkpoint, read_checkpoints
from duramen.keyed.plain import PLAIN
from duramen.keyed.prev import MemoryPages
from duramen.keyed.view import KeyedView
from duramen.sim.machine.disk import MemoryFileSystem

HASH = PLAIN.hash_id


def log_facts(start: int = 0, end: int = 1000, epoch_at: Callable[[int], int] = lambda _: 4) -> LogPositions:
    return LogPositions(b"i" * 16, 0, start, end, epoch_at)


def small_view() -> KeyedView:
    view = KeyedView(PLAIN, 0, SECRET, MemoryPages(), page_records=4)
    for offset in range(10):
        view.apply(bytes(encode([BatchInput(1, b"%d" % (offset % 3), None)], base_offset=offset)))
        view.sample(offset)
    return view


def encoded(view: KeyedView, log: LogPositions, generation: int) -> bytes:
    return b"".join(checkpoint.encode(view, log, generation))


def save(files: FileSystem, view: KeyedView, generation: int) -> None:
    file = begin_checkpoint(files, "view", checkpoint.encode(view, log_facts(), generation), generation)
    end_checkpoint(files, "view", file, generation)


def taken(content: bytes, log: LogPositions, hash_id: int = HASH) -> tuple[bool, str]:
    found, wrong = checkpoint.newest([content], log, hash_id)
    return found is not None, "".join(wrong)


def test_a_checkpoint_beside_its_log_is_taken() -> None:
    content = encoded(small_view(), log_facts(), 1)
    assert taken(content, log_facts()) == (True, "")
    assert taken(content, log_facts(end=10)) == (True, "")
    assert taken(content, log_facts(start=10, epoch_at=lambda _: 9)) == (True, "")


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (log_facts(end=9), "it stands at 10, and the log ends at 9"),
        (log_facts(start=11), "it stands at 10, and the log begins at 11"),
        (log_facts(epoch_at=lambda offset: 5 if offset == 9 else 4), "it stands at 10 of a history that was cut"),
        (LogPositions(b"j" * 16, 0, 0, 10, lambda _: 4), "it is another stream's"),
        (LogPositions(b"i" * 16, 1, 0, 10, lambda _: 4), "it is another stream's"),
    ],
)
def test_a_checkpoint_of_another_log_is_discarded(log: LogPositions, why: str) -> None:
    content = encoded(small_view(), log_facts(), 1)
    assert taken(content, log) == (False, f"the checkpoint of a view is not used: {why}")


def test_a_checkpoint_with_another_hash_is_discarded() -> None:
    content = encoded(small_view(), log_facts(), 1)
    assert taken(content, log_facts(), HASH + 1)[1].endswith("it was made with another hash")


def test_of_two_generations_the_newer_one_that_is_sound_is_taken() -> None:
    files, view, log = MemoryFileSystem(), small_view(), log_facts()
    files.make_directory("view")
    for generation in (6, 7):
        save(files, view, generation)
        found, wrong = checkpoint.newest(read_checkpoints(files, "view"), log, HASH)
        assert found is not None
        assert (found.generation, wrong) == (generation, [])
    files.open("view/view.1").truncate(100)
    found, wrong = checkpoint.newest(read_checkpoints(files, "view"), log, HASH)
    assert found is not None
    assert (found.generation, wrong) == (6, ["the checkpoint of a view does not match its checksum"])
    files.open("view/view.0").truncate(8)
    assert checkpoint.newest(read_checkpoints(files, "view"), log, HASH)[0] is None


@pytest.mark.parametrize("generation", [0, 1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32])
def test_the_start_of_a_checkpoint_says_its_generation(generation: int) -> None:
    content = encoded(small_view(), log_facts(), generation)
    assert checkpoint.generation_of(content[: checkpoint.HEAD_BYTES]) == generation
    assert checkpoint.decode(content).generation == generation
    assert checkpoint.generation_of(b"DURKEY01") == -1


def test_pieces_are_what_an_encoder_makes_of_the_whole() -> None:
    content = encoded(small_view(), log_facts(), 3)
    found = checkpoint.decode(content)
    whole = msgspec.msgpack.encode(found)
    assert msgspec.msgpack.decode(content[checkpoint.CRC_END :]) == msgspec.msgpack.decode(whole)


@given(st.integers(0, 1 << 30), st.integers(0, 7), st.booleans())
@settings(max_examples=examples(60))
def test_damage_is_found(at: int, bit: int, cut: bool) -> None:
    content = bytearray(encoded(small_view(), log_facts(), 1))
    at %= len(content)
    if cut:
        del content[at:]
    else:
        content[at] ^= 1 << bit
    with pytest.raises(CheckpointInvalid):
        checkpoint.decode(content)


def test_what_goes_on_from_a_checkpoint_is_the_same() -> None:
    pages = MemoryPages()
    view = KeyedView(PLAIN, 0, SECRET, pages, page_records=4)
    chance = Random(5)
    batches = [
        bytes(encode([BatchInput(1, b"%d" % chance.randrange(9), b"v")] * 2, base_offset=2 * at)) for at in range(40)
    ]
    for batch in batches[:20]:
        view.apply(batch)
    found = checkpoint.decode(encoded(view, log_facts(), 1))
    other = checkpoint.restore(found, PLAIN, pages, page_records=4)
    for batch in batches[20:]:
        view.apply(batch)
        other.apply(batch)
    for at in range(81):
        assert view.snapshot(at, 0, at) == other.snapshot(at, 0, at)
        assert view.changes(at // 2, at) == other.changes(at // 2, at)


@pytest.fixture(params=["host", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: object) -> FileSystem:
    return MemoryFileSystem() if request.param == "memory" else HostFileSystem(str(tmp_path))


def test_a_view_lies_in_files(files: FileSystem) -> None:
    assert list(read_checkpoints(files, "view")) == []
    store = PageFiles(files, "view")
    view = KeyedView(PLAIN, 0, SECRET, store, page_records=4)
    for generation in range(1, 4):
        for _ in range(10):
            at = view.position
            view.apply(bytes(encode([BatchInput(1, b"%d" % (at % 3), b"v")], base_offset=at)))
        store.write()
        save(files, view, generation)
    view.raise_s0(9)
    found, wrong = checkpoint.newest(read_checkpoints(files, "view"), log_facts(), HASH)
    assert found is not None
    assert (found.generation, wrong) == (3, [])
    again = PageFiles(files, "view")
    again.put(found.next_page, b"a page of later that no checkpoint names")
    again.write()
    again.sweep(found.pages[2].number, found.next_page)
    restored = checkpoint.restore(found, PLAIN, again, page_records=4)
    restored.raise_s0(9)
    for at in range(9, 31):
        assert view.snapshot(at, 0, at) == restored.snapshot(at, 0, at)
    names = [name for name in files.names("view") if name.startswith("prev-")]
    assert [int(name[5:]) for name in names] == [page.number for page in found.pages[2:]]


def test_a_page_that_is_damaged_or_gone_is_said_to_be(files: FileSystem) -> None:
    store = PageFiles(files, "view")
    view = KeyedView(PLAIN, 0, SECRET, store, page_records=4)
    for at in range(12):
        view.apply(bytes(encode([BatchInput(1, b"k", b"v")], base_offset=at)))
    store.write()
    name = next(name for name in files.names("view") if name.startswith("prev-"))
    files.open(f"view/{name}").write([b"\xff"], 30)
    with pytest.raises(CheckpointInvalid, match="does not match its checksum"):
        view.snapshot(2, 0, 2)
    files.unlink(f"view/{name}")
    with pytest.raises(CheckpointInvalid, match="is gone"):
        view.snapshot(2, 0, 2)
