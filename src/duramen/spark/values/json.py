"""JSON objects to Arrow columns, many at a time.

Each value is first checked by itself, so that what is parsed together is one object a value and nothing else: two
values must not make up for each other. Types follow from the first values of a field; a value that does not go with
them is bad. Which values are bad depends on them and the columns alone once these are known.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from duramen.base.errors import OptionInvalid
from duramen.spark.values.decoded import MAGIC, PREFIX_BYTES, Decoded, joined, placed
from duramen.spark.values.fields import fitted, usable, wider, widest
from duramen.spark.values.fitting import decoder_of

__all__ = ["JsonDecoder"]

_MOST_BYTES: Final = 16 << 20
_WINDOW: Final = 256
"""Rows among which bad ones are looked for, so that many bad ones do not have all rows parsed for each."""

_ROW: Final = re.compile(r" in row (\d+)$")
_PREFIX: Final = bytes([MAGIC])


class _Object(msgspec.Struct):
    """Any JSON object."""


_check: Final = msgspec.json.Decoder(_Object).decode


class JsonDecoder:
    """Decodes JSON objects. With `grows` fields that are not columns yet become columns behind the others."""

    def __init__(self, fields: Sequence[pa.Field] = (), *, grows: bool = True, taken: Iterable[str] = ()) -> None:
        """`taken` are names that no new column may have. Raises OptionInvalid for a type that JSON cannot become."""
        self._fields = [pa.field(field.name, widest(field.type)) for field in fields]
        self._grows = grows
        self._taken = frozenset(taken)
        try:
            _read([b"{}"], self._fields, "ignore")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OptionInvalid(f"these columns cannot be made of JSON: {error}") from None

    @property
    def fields(self) -> Sequence[pa.Field]:
        """The columns so far."""
        return self._fields

    def decode(self, values: pa.Array) -> Decoded:
        """See `Decoder`."""
        texts, rows, errors = _checked(values)
        pieces: list[pa.RecordBatch] = []
        good: list[int] = []
        for begin, end in _chunks(texts):
            for some, found in self._parsed(texts[begin:end]):
                if isinstance(found, pa.RecordBatch):
                    pieces.append(found)
                    good += [rows[begin + row] for row in some]
                else:
                    errors[rows[begin + some[0]]] = found
        schema = pa.schema(self._fields)
        columns = joined([fitted(piece, schema) for piece in pieces], schema)
        return Decoded(placed(columns, good, len(values)), pa.array(errors, pa.string()))

    def _parsed(self, texts: list[bytes]) -> "list[_Piece]":
        """`texts` in pieces; new fields have become columns before it is judged what is bad."""
        if not self._grows:
            return list(_pieces(texts, self._fields, "ignore"))
        pieces = list(_pieces(texts, self._fields, "infer"))
        found: dict[str, pa.Field] = {}
        known = {field.name for field in self._fields}
        for _, piece in pieces:
            if isinstance(piece, pa.RecordBatch):
                for field in piece.schema:
                    if field.name in known:
                        found[field.name] = field
                        continue
                    there = found.get(field.name)
                    kind = field.type if there is None else wider(there.type, field.type, numbers=True)
                    found[field.name] = pa.field(field.name, kind) if kind is not None else found[field.name]
        before, self._fields = self._fields, usable(found.values(), self._fields, taken=self._taken, texts=True)
        types = {field.name: field.type for field in self._fields}
        # Where columns are new, what was parsed is not used: Arrow makes broken lists of nulls before a type is known.
        # And what is bad beside fields that are no columns need not be.
        as_they_are = before == self._fields and all(
            isinstance(piece, pa.RecordBatch)
            and all(types.get(field.name, field.type).equals(field.type) for field in piece.schema)
            for _, piece in pieces
        )
        return pieces if as_they_are else list(_pieces(texts, self._fields, "ignore"))


_Piece = tuple[Sequence[int], "pa.RecordBatch | str"]
"""Some rows, parsed; or a bad one, and the reason."""


def _checked(values: pa.Array) -> tuple[list[bytes], list[int], list[str | None]]:
    """What of `values` is one JSON object of UTF-8 each, the numbers of their rows; and the errors of the others."""
    found = values.to_pylist()
    errors: list[str | None] = [None] * len(found)
    texts: list[bytes] = []
    rows: list[int] = []
    for row, value in enumerate(found):
        if value is None:
            continue
        text = value[PREFIX_BYTES:] if value[:1] == _PREFIX else value
        try:
            _check(text)
            if not text.isascii():
                text.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            errors[row] = f"not a JSON object: {error}"
            continue
        # Outside of strings, where it is only white space; inside it would not have passed.
        texts.append(text.replace(b"\n", b" ") if b"\n" in text else text)
        rows.append(row)
    return texts, rows, errors


def _chunks(texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    begin = size = 0
    for index, text in enumerate(texts):
        size += len(text) + 1
        if size >= _MOST_BYTES:
            yield begin, index + 1
            begin, size = index + 1, 0
    if begin < len(texts):
        yield begin, len(texts)


def _pieces(texts: list[bytes], fields: Sequence[pa.Field], unexpected: str) -> Iterator[_Piece]:
    """All at once where that goes, else without the rows that cannot be parsed."""
    try:
        yield range(len(texts)), _read(texts, fields, unexpected)
    except pa.ArrowException:
        fits = decoder_of(fields)
        rows: list[int] = []
        for row, text in enumerate(texts):
            try:
                fits(text)
                rows.append(row)
            except msgspec.MsgspecError as error:
                yield [row], f"does not fit the columns: {error}"
        good = [texts[row] for row in rows]
        try:
            yield rows, _read(good, fields, unexpected)
        except pa.ArrowException:
            for begin in range(0, len(good), _WINDOW):
                window = slice(begin, begin + _WINDOW)
                yield from _around(good[window], rows[window], fields, unexpected)


def _around(texts: list[bytes], rows: list[int], fields: Sequence[pa.Field], unexpected: str) -> Iterator[_Piece]:
    while texts:
        try:
            yield rows, _read(texts, fields, unexpected)
        except pa.ArrowException as error:
            named = _ROW.search(str(error))
            is_found = named is not None or len(texts) == 1
            odd = min(int(named.group(1)), len(texts) - 1) if named else len(texts) // 2
            yield from _around(texts[:odd], rows[:odd], fields, unexpected)
            if is_found:
                yield [rows[odd]], _reason(error)
            texts, rows = texts[odd + is_found :], rows[odd + is_found :]
        else:
            return


def _read(texts: list[bytes], fields: Sequence[pa.Field], unexpected: str) -> pa.RecordBatch:
    """One row for each text. Raises ArrowException."""
    data = b"\n".join(texts)
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior=unexpected),
    )
    if not table.num_columns:
        return fitted(pa.record_batch({"": pa.nulls(len(texts))}), pa.schema([]))
    batches = table.to_batches()
    if len(batches) != 1 or table.num_rows != len(texts):
        raise pa.ArrowInvalid(f"{len(texts)} values are {table.num_rows} rows in {len(batches)} batches")
    return batches[0]


def _reason(error: Exception) -> str:
    text = _ROW.sub("", " ".join(str(error).split())).removeprefix("JSON parse error: ")
    return f"does not fit the columns: {text}"
