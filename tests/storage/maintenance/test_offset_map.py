"""The table of the newest offsets: the same as a dictionary, and never more than its size."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.storage.maintenance.offset_map import SLOT_BYTES, OffsetMap


@given(st.lists(st.binary(max_size=6), max_size=200), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_it_is_a_dictionary_until_it_is_full(keys: list[bytes], load_factor: float) -> None:
    table, model = OffsetMap(101 * SLOT_BYTES, load_factor), dict[bytes, int]()
    for offset, key in enumerate(keys):
        if key not in model and table.full:
            assert not table.put(key, offset)
            break
        assert table.put(key, offset)
        model[key] = offset
        assert table.latest == offset
    assert table.count == len(model) <= table.capacity < 101
    assert all(table.newest(key) == offset for key, offset in model.items())
    assert table.newest(b"never put") == -1


def test_its_size_is_what_it_was_given() -> None:
    table = OffsetMap(1 << 20, 0.9)
    slots = (1 << 20) // SLOT_BYTES
    assert 0.89 * slots < table.capacity <= 0.9 * slots
    for number in range(table.capacity):
        table.put(b"%d" % number, number)
    assert table.full
    assert all(table.newest(b"%d" % number) == number for number in range(0, table.capacity, 97))
