"""Values of plain batches are those that reading them record by record gives; what is not plain is left to that."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.codec.batch import BatchInput, encode, records
from duramen.codec.plain import plain_values

VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=200)


def batch_of(values: list[bytes]) -> bytes:
    return bytes(encode(BatchInput(7, None, value) for value in values))


@given(VALUES)
def test_a_plain_batch_is_read_as_record_by_record(values: list[bytes]) -> None:
    batch = batch_of(values)
    assert plain_values(batch) == [record.value for record in records(batch)] == values


@given(VALUES, st.data())
def test_no_damage_gives_other_values_than_reading_record_by_record(values: list[bytes], data: st.DataObject) -> None:
    batch = bytearray(batch_of(values))
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    found = plain_values(bytes(batch))
    if found is not None:
        assert found == [record.value for record in records(batch, verify=False)]


def test_what_is_cut_off_is_not_plain() -> None:
    batch = batch_of([b"first", b"second"])
    assert all(plain_values(batch[:end]) is None for end in range(61, len(batch)))


def test_what_has_more_than_values_is_not_plain() -> None:
    plain = BatchInput(7, None, b"value")
    others = [
        BatchInput(7, b"key", b"value"),
        BatchInput(7, None, None),
        BatchInput(8, None, b"value"),
        BatchInput(7, None, b"value", ((b"name", b"content"),)),
    ]
    assert [plain_values(bytes(encode([plain, other]))) for other in others] == [None] * 4
    assert plain_values(bytes(encode([plain, plain], codec=1))) is None
