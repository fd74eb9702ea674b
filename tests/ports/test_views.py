"""The conformance suite of the ViewStore port: RocksDB, and the sorted map in memory."""

import re
import shutil
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import StateDamaged, StorageFailed
from duramen.base.ports import StateStore, ViewStore
from duramen.host.rocksdb import RocksStateStore, RocksViewStore
from duramen.sim.machine.views import MemoryStateStore, MemoryViewStore


@pytest.fixture(params=["rocksdb", "memory"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ViewStore]:
    store: ViewStore = RocksViewStore(str(tmp_path / "view")) if request.param == "rocksdb" else MemoryViewStore()
    yield store
    store.close()


def test_rows_are_put_read_and_deleted(view: ViewStore) -> None:
    view.write([(b"a", b"1"), (b"b", b"2")], [])
    assert view.get(b"a") == b"1"
    assert view.get(b"c") is None
    view.write([(b"a", b"3"), (b"c", b"4")], [b"b", b"nothing"])
    assert [view.get(key) for key in (b"a", b"b", b"c")] == [b"3", None, b"4"]


def test_an_empty_value_is_not_an_absent_one(view: ViewStore) -> None:
    view.write([(b"a", b"")], [])
    assert view.get(b"a") == b""


def test_deletes_of_a_batch_come_after_its_puts(view: ViewStore) -> None:
    view.write([(b"a", b"1")], [b"a"])
    assert view.get(b"a") is None


def test_many_rows_are_read_in_the_order_of_the_keys(view: ViewStore) -> None:
    keys = [b"%d" % number for number in range(1201)]
    view.write([(key, b"v" + key) for key in keys[::2]], [])
    view.write([(b"empty", b"")], [])
    wanted = [*reversed(keys), b"empty", b"0", b"0"]
    assert view.get_many(wanted) == [view.get(key) for key in wanted]
    assert view.get_many([]) == []


def test_a_scan_is_ordered_and_half_open(view: ViewStore) -> None:
    view.write([(bytes([number]), b"%d" % number) for number in (9, 3, 7, 1, 5)], [])
    assert [key for key, _ in view.scan(bytes([3]), bytes([9]))] == [b"\x03", b"\x05", b"\x07"]
    assert list(view.scan(bytes([10]), bytes([20]))) == []


def test_ceilings_are_the_first_rows_of_scans(view: ViewStore) -> None:
    view.write([(b"%03d" % number, b"v%d" % number) for number in range(0, 300, 3)], [])
    keys = [b"%03d" % number for number in (150, 7, 299, 0, 151, 296, 7, 152, 295)]
    keys.append(b"")
    for end in (b"200", b"298", b"~"):
        found = [next(view.scan(key, end), None) for key in keys]
        assert view.ceilings(keys, end) == found
        assert [view.ceiling(key, end) for key in keys] == found
    assert view.ceilings([], b"~") == []


def test_the_bound_of_a_scan_is_kept_as_long_as_the_scan(view: ViewStore) -> None:
    """RocksDB reads it where it lies: other bytes must not come to lie there."""
    keys = [b"%03d" % number + bytes(700) for number in range(100)]
    view.write([(key, b"") for key in keys], [])
    found, others = [], []
    for first, end in pairwise(keys):
        scan = view.scan(first, bytes(bytearray(end)))
        others += [bytearray(b"\xff") * size for size in range(600, 800, 8)]
        found.append([key for key, _ in scan])
    assert found == [[key] for key in keys[:-1]]


def test_a_scan_shows_the_rows_as_they_were_when_it_was_asked_for(view: ViewStore) -> None:
    view.write([(b"a", b"1"), (b"b", b"2")], [])
    begun = view.scan(b"a", b"z")
    view.write([(b"a", b"3"), (b"c", b"4")], [b"b"])
    assert list(begun) == [(b"a", b"1"), (b"b", b"2")]


def test_the_version_differs_after_each_batch(view: ViewStore) -> None:
    versions = [view.version()]
    view.write([(b"a", b"1")], [])
    versions.append(view.version())
    view.write([], [b"a"])
    versions.append(view.version())
    list(view.scan(b"a", b"z"))
    view.flush()
    assert view.version() == versions[-1]
    assert len(set(versions)) == 3


KEYS = st.binary(min_size=1, max_size=3)


@given(st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=4), max_size=4), st.sets(KEYS, max_size=2))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50), deadline=None)
def test_it_is_a_sorted_map(view: ViewStore, batches: list[tuple[dict[bytes, bytes], set[bytes]]]) -> None:
    view.write((), [key for key, _ in view.scan(b"\0", b"\xff" * 4)])
    model: dict[bytes, bytes] = {}
    for puts, deletes in batches:
        view.write(puts.items(), deletes)
        model.update(puts)
        for key in deletes:
            model.pop(key, None)
        assert list(view.scan(b"\0", b"\xff" * 4)) == sorted(model.items())


def test_rocksdb_keeps_what_was_flushed_over_a_reopening(tmp_path: Path) -> None:
    first = RocksViewStore(str(tmp_path / "view"))
    first.write([(b"a", b"1")], [])
    first.close()
    second = RocksViewStore(str(tmp_path / "view"))
    assert second.get(b"a") == b"1"
    second.close()


def test_a_scan_that_has_not_ended_does_not_keep_rocksdb_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "view")
    store = RocksViewStore(path)
    store.write([(b"a", b"1"), (b"b", b"2")], [])
    begun, unread = store.scan(b"a", b"z"), store.scan(b"a", b"z")
    assert next(begun) == (b"a", b"1")
    store.close()
    again = RocksViewStore(path)
    for scan in (begun, unread):
        with pytest.raises(StorageFailed, match="closed"):
            next(scan)
    assert list(again.scan(b"a", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    again.close()


def flip(*tables: Path) -> None:
    """Flip bits in the middle of tables where they are: other links to them have it too."""
    for table in tables:
        size = table.stat().st_size
        with table.open("r+b") as file:
            file.seek(size * 2 // 5)
            found = file.read(size // 5)
            file.seek(size * 2 // 5)
            file.write(bytes(byte ^ 0x55 for byte in found))


def test_the_error_of_a_damaged_view_does_not_keep_rocksdb_locked(tmp_path: Path) -> None:
    path = tmp_path / "view"
    store = RocksViewStore(str(path))
    store.write([(b"%06d" % number, b"%0100d" % number) for number in range(5000)], [])
    store.close()
    flip(*path.glob("*.sst"))
    store = RocksViewStore(str(path))
    with pytest.raises(StateDamaged, match="damaged") as damaged:
        list(store.scan(b"0", b"1"))
    store.close()
    RocksViewStore(str(path)).close()
    assert damaged.value.__traceback__ is not None


def test_a_scan_in_an_empty_range_reads_none_of_its_neighbours_tombstones(tmp_path: Path) -> None:
    # Tombstones that a scan comes to behind its range are damaged, so one that reads them fails.
    path = tmp_path / "view"
    store = RocksViewStore(str(path))
    keys = [b"b%06d" % number for number in range(20_000)]
    store.write([(key, b"") for key in keys], [])
    store.flush()
    store.write([], keys)
    store.close()
    flip(*path.glob("*.sst"))
    store = RocksViewStore(str(path))
    assert list(store.scan(b"a", b"b")) == []
    with pytest.raises(StateDamaged):
        list(store.scan(b"b", b"c"))
    store.close()


def test_the_block_cache_of_an_existing_view_has_the_size_it_is_opened_with(tmp_path: Path) -> None:
    path = tmp_path / "view"
    RocksViewStore(str(path)).close()
    RocksViewStore(str(path), cache_bytes=3_000_000).close()
    assert re.findall(r"block_cache_options:\s+capacity : (\d+)", (path / "LOG").read_text()) == ["3000000"]


@pytest.fixture(params=["rocksdb", "memory"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    store: StateStore = RocksStateStore(str(tmp_path / "state")) if request.param == "rocksdb" else MemoryStateStore()
    yield store
    store.close()


def test_a_checkpoint_has_the_rows_as_they_were(state: StateStore) -> None:
    state.write([(b"a", b"1"), (b"b", b"2")], [])
    state.make_checkpoint("1")
    state.write([(b"a", b"3")], [b"b"])
    kept = state.open_checkpoint("1")
    assert list(kept.scan(b"", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    kept.close()
    assert state.get(b"a") == b"3"
    state.make_checkpoint("2")
    assert state.checkpoints() == ["1", "2"]
    state.remove_checkpoint("1")
    assert state.checkpoints() == ["2"]
    with pytest.raises(StateDamaged):
        state.open_checkpoint("1")


def test_rows_are_restored_from_a_checkpoint_and_it_stays_as_it_is(state: StateStore) -> None:
    state.write([(b"a", b"1"), (b"b", b"2")], [])
    state.make_checkpoint("1")
    for value in (b"3", b"4"):
        state.write([(b"a", value), (b"c", value)], [b"b"])
        state.restore("1")
        assert list(state.scan(b"", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    with pytest.raises(StateDamaged):
        state.restore("2")
    assert state.get(b"b") == b"2"


@pytest.mark.parametrize("how", ["reopen", "restore", "replace"])
def test_a_scan_fails_once_the_store_has_other_rows(state: StateStore, how: str) -> None:
    state.write([(b"a", b"1"), (b"b", b"2")], [])
    state.make_checkpoint("1")
    version = state.version()
    begun, ended = state.scan(b"a", b"z"), state.scan(b"a", b"z")
    assert next(begun) == (b"a", b"1")
    assert len(list(ended)) == 2
    if how == "replace":
        state.replace([(b"a", b"1"), (b"b", b"2")])
    elif how == "restore":
        state.restore("1")
    else:
        state.reopen()
    assert state.version() != version
    with pytest.raises(StorageFailed):
        next(begun)
    assert list(ended) == []
    assert list(state.scan(b"a", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    state.write([(b"c", b"3")], [])
    assert state.get(b"c") == b"3"


def test_rows_are_replaced_by_those_of_the_store_and_of_a_checkpoint(state: StateStore) -> None:
    state.write([(b"a", b"1"), (b"b", b"2")], [])
    state.make_checkpoint("1")
    state.write([(b"a", b"3")], [b"b"])
    kept = state.open_checkpoint("1")
    state.replace(chain(state.scan(b"a", b"b"), kept.scan(b"b", b"c")))
    kept.close()
    assert list(state.scan(b"", b"z")) == [(b"a", b"3"), (b"b", b"2")]
    state.reopen()
    assert list(state.scan(b"", b"z")) == [(b"a", b"3"), (b"b", b"2")]
    assert state.set_aside("1")
    assert not state.checkpoints()
    state.set_aside("1")


def test_checkpoints_outlive_the_rows_of_rocksdb(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    store = RocksStateStore(path)
    store.write([(b"%04d" % number, b"x" * 100) for number in range(1000)], [])
    store.make_checkpoint("1")
    assert any(file.stat().st_nlink > 1 for file in (tmp_path / "state").glob("*.sst"))
    store.close()
    shutil.rmtree(path)
    again = RocksStateStore(path)
    assert again.get(b"0500") is None
    again.restore("1")
    assert again.get(b"0500") == b"x" * 100
    again.close()


# -- damage -----------------------------------------------------------------------------------------


def filled(path: Path) -> RocksStateStore:
    """Two files, of the rows a… and b…, and a checkpoint with hard links to them."""
    store = RocksStateStore(str(path / "rows"))
    for first in (b"a", b"b"):
        store.write([(b"%b%04d" % (first, number), bytes(range(100))) for number in range(1000)], [])
        store.flush()
    store.make_checkpoint("1")
    return store


def test_damage_is_told_from_what_may_be_read_later_and_rows_beside_it_are_read(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    flip(min((tmp_path / "rows").glob("*.sst")))
    store = RocksStateStore(str(tmp_path / "rows"))
    for rows in (store, store.open_checkpoint("1")):
        with pytest.raises(StateDamaged, match=r"Corruption.*\.sst"):
            list(rows.scan(b"a", b"b"))
        assert len(list(rows.scan(b"b", b"c"))) == 1000
    with pytest.raises(StateDamaged):
        store.get_many([b"a%04d" % number for number in range(1000)])
    store.close()
    with pytest.raises(StorageFailed):
        store.get(b"b0001")


def test_damaged_rows_are_set_aside_and_the_first_and_the_newest_are_kept(tmp_path: Path) -> None:
    store = filled(tmp_path)
    table = min((tmp_path / "rows").glob("*.sst"))
    flip(table)
    kept = table.read_bytes()
    where = [Path(store.replace([(b"c", b"%d" % number)])) for number in range(4)]
    where.append(Path(store.set_aside("1")))
    assert [one.is_dir() for one in where] == [True, False, False, True, True]
    assert [(one / table.name).read_bytes() for one in (where[0], where[-1])] == [kept, kept]
    store.close()


def test_rows_that_miss_a_file_are_read_as_far_as_they_can_be_until_they_are_replaced(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    min((tmp_path / "rows").glob("*.sst")).unlink()
    store = RocksStateStore(str(tmp_path / "rows"))
    assert "No such file" in store.problem
    with pytest.raises(StateDamaged):
        list(store.scan(b"a", b"b"))
    with pytest.raises(StorageFailed):
        store.write([(b"a", b"1")], [])
    store.restore("1")
    assert not store.problem
    assert len(list(store.scan(b"a", b"c"))) == 2000
    store.close()
    for name in ("CURRENT", "MANIFEST"):
        (file,) = (tmp_path / "rows").glob(f"{name}*")
        file.write_bytes(b"nothing")
    store = RocksStateStore(str(tmp_path / "rows"))
    assert "moved to" in store.problem
    assert not list(store.scan(b"", b"z"))
    store.restore("1")
    assert len(list(store.scan(b"a", b"c"))) == 2000
    store.close()


def test_a_replacement_that_a_crash_interrupted_is_finished_or_forgotten(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    (tmp_path / "rows").rename(tmp_path / "rows.ready")
    store = RocksStateStore(str(tmp_path / "rows"))
    assert len(list(store.scan(b"a", b"c"))) == 2000
    store.close()
    shutil.copytree(tmp_path / "rows", tmp_path / "rows.ready")
    store = RocksStateStore(str(tmp_path / "rows"))
    store.write([(b"d", b"1")], [])
    store.restore("1")
    assert store.get(b"d") is None
    assert not (tmp_path / "rows.ready").exists()
    store.close()
