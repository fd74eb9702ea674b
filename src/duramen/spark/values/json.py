"""JSON objects to Arrow columns, many at a time.

Each value is first checked separately, so that the text parsed together is exactly one object per value: two values
must not complete each other. Types follow from the first values of a field; a value that does not fit them is bad. Once
the columns are known, badness depends only on them and the values.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import types

from duramen.spark.values.decoded import MAGIC, PREFIX_BYTES, Decoded, joined, placed
from duramen.spark.values.fields import fitted, usable, wider, widest
from duramen.spark.values.parser import adapted, converted, has_map, large, parse, parsed_fields
from duramen.spark.values.rows import RowReader, Unfit, read_json, without_large_numbers

__all__ = ["JsonDecoder"]

_MOST_BYTES: Final = 16 << 20
_LEAST: Final = -(1 << 63)
_Whole: Final = Annotated[int, msgspec.Meta(ge=_LEAST, le=(1 << 63) - 1)]
_SAMPLE: Final = 16
_WINDOW: Final = 256
"""The window in which bad rows are searched, so that many bad ones do not require parsing all rows for each."""

_ROW: Final = re.compile(r" in row (\d+)$")
_PREFIX: Final = bytes([MAGIC])

_Rows = Sequence[int]
_Piece = tuple[_Rows, pa.RecordBatch]
_Divided = tuple[list[_Piece], list[int]]
"""The parsed rows, and the numbers of the others."""
_Adapt = Callable[[Sequence[bytes]], Sequence[pa.Field]]
_Judged = tuple[_Rows, "pa.RecordBatch | str"]
"""Some rows as columns; or a bad row, and the reason."""


class _Object(msgspec.Struct):
    """Any JSON object."""


_check: Final = msgspec.json.Decoder(_Object).decode


class JsonDecoder:
    """Decodes JSON objects. With `grows`, new fields become columns after the others."""

    def __init__(
        self, fields: Sequence[pa.Field] = (), *, grows: bool = True, taken: Iterable[str] = (), zone: str = "UTC"
    ) -> None:
        """`taken` are names that no new column may have; `zone` is the time zone of times without one.

        Raises OptionInvalid for a type that JSON cannot be converted to.
        """
        parsed_fields(fields)
        self._zone = zone
        self._taken = frozenset(taken)
        self._grows = grows
        self._fields: list[pa.Field] = []
        self._set([pa.field(field.name, widest(field.type)) for field in fields])

    def _set(self, fields: list[pa.Field]) -> None:
        self._fields = fields
        self._parsed = parsed_fields(fields)
        self._maps = {field.name for field in fields if has_map(field.type)}
        self._reader = RowReader(fields, self._zone, taken=self._taken)
        self._map_reader = RowReader([field for field in fields if field.name in self._maps], self._zone)

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
            chunk = texts[begin:end]
            for some, found in self._grown(chunk) if self._grows else self._judged(chunk):
                if isinstance(found, pa.RecordBatch):
                    pieces.append(found)
                    good += [rows[begin + row] for row in some]
                else:
                    errors[rows[begin + some[0]]] = found
        schema = pa.schema(self._fields)
        columns = joined([fitted(piece, schema) for piece in pieces], schema)
        return Decoded(placed(columns, good, len(values)), pa.array(errors, pa.string()))

    def learn(self, values: pa.Array) -> None:
        """Make columns of all fields of `values`, even if all numbers of a field are too large for any column."""
        self.decode(values)
        odd = [without_large_numbers(text) for text in _checked(values)[0] if self._reader.beyond(text) is not None]
        self._add({}, _pieces(odd, [])[0])

    def _grown(self, texts: list[bytes]) -> Sequence[_Judged]:
        """New fields become columns before bad rows are determined."""
        before = self._fields
        pieces, doubtful = self._inferred(texts)
        found: dict[str, pa.Field] = {}
        self._add(found, pieces)
        types = {field.name: field.type for field in self._parsed}
        # With new columns the parsed rows are discarded: Arrow makes broken lists of nulls before a type is known. And
        # rows that are bad because of fields without columns may be good.
        if (
            before == self._fields
            and not (doubtful or self._maps)
            and all(
                types.get(field.name, field.type).equals(field.type) for _, piece in pieces for field in piece.schema
            )
        ):
            return self._finished(pieces, texts)
        beyond = {row: unfit.reason for row in doubtful if (unfit := self._reader.beyond(texts[row])) is not None}
        others = [self._reader.others(texts[row]) for row in doubtful if row not in beyond]
        self._add(found, _pieces([text for text in others if text is not None], [])[0])
        rest = [row for row in range(len(texts)) if row not in beyond]
        judged = self._judged([texts[row] for row in rest])
        return [
            *(([rest[row] for row in rows], piece) for rows, piece in judged),
            *(([row], reason) for row, reason in beyond.items()),
        ]

    def _add(self, found: dict[str, pa.Field], pieces: Iterable[_Piece]) -> None:
        """Fields in pieces that are not among those `found` before become columns."""
        for field in (field for _, piece in pieces for field in piece.schema if field.name not in self._maps):
            there = found.get(field.name)
            kind = field.type if there is None else wider(there.type, field.type, numbers=True)
            if kind is not None:
                found[field.name] = pa.field(field.name, kind)
        fields = usable(found.values(), self._fields, taken=self._taken, texts=True)
        if fields != self._fields:
            self._set(fields)

    def _inferred(self, texts: list[bytes]) -> _Divided:
        """`texts` in pieces that show their fields; and the rows that were excluded, or perhaps should be.

        A number too large for any column makes no column: it would be DOUBLE for all.
        """
        pieces, refused = _pieces(texts, self._known(), self._adapted)
        doubtful = [*refused, *(rows[row] for rows, piece in pieces for row in large(piece))]
        beyond = {row for row in doubtful if self._reader.beyond(texts[row]) is not None}
        if beyond:
            rest = [row for row in range(len(texts)) if row not in beyond]
            pieces, refused = _pieces([texts[row] for row in rest], self._known())
            doubtful += [rest[row] for row in refused]
        return pieces, list(dict.fromkeys(doubtful))

    def _known(self) -> Sequence[pa.Field]:
        """The parsed fields of the columns, without maps."""
        return [field for field in self._parsed if field.name not in self._maps]

    def _adapted(self, texts: Sequence[bytes]) -> Sequence[pa.Field]:
        """The same, adapted to the content of `texts`."""
        objects = []
        for text in texts[:_SAMPLE]:
            with suppress(Unfit):
                objects.append(read_json(text))
        self._parsed = adapted(self._fields, objects)
        return self._known()

    def _judged(self, texts: list[bytes]) -> list[_Judged]:
        """`texts` as columns; whether one is bad follows from itself and the columns alone."""
        pieces, others = _together(texts, self._known(), self._adapted)
        return [*self._finished(pieces, texts), *self._one_by_one(texts, others)]

    def _finished(self, pieces: Sequence[_Piece], texts: list[bytes]) -> list[_Judged]:
        """Parsed pieces with the types of the columns, and with maps, which Arrow does not parse."""
        schema = pa.schema(self._known())
        plain = [field for field in self._fields if field.name not in self._maps]
        done: list[_Judged] = []
        for rows, piece in pieces:
            columns, odd = converted(fitted(piece, schema), plain, self._zone)
            kept = rows
            if odd:
                done += self._one_by_one(texts, [rows[row] for row in odd])
                left = sorted(set(range(len(rows))).difference(odd))
                kept, columns = [rows[row] for row in left], columns.take(pa.array(left, pa.int64()))
            done += self._with_maps(columns, kept, texts) if self._maps else [(kept, columns)]
        return done

    def _with_maps(self, columns: pa.RecordBatch, rows: _Rows, texts: list[bytes]) -> list[_Judged]:
        places, maps, done = _read_each(self._map_reader, texts, rows)
        if len(places) < len(rows):
            columns = columns.take(pa.array(places, pa.int64()))
        arrays = dict(zip([*columns.schema.names, *maps.schema.names], [*columns.columns, *maps.columns], strict=True))
        schema = pa.schema(self._fields)
        whole = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
        return [*done, ([rows[place] for place in places], whole)]

    def _one_by_one(self, texts: list[bytes], rows: _Rows) -> list[_Judged]:
        places, columns, done = _read_each(self._reader, texts, rows)
        return [*done, ([rows[place] for place in places], columns)]


def _read_each(reader: RowReader, texts: list[bytes], rows: _Rows) -> tuple[list[int], pa.RecordBatch, list[_Judged]]:
    """The good ones of `rows`, by their index there, as columns; and the bad ones."""
    places: list[int] = []
    values: list[dict[str, object]] = []
    bad: list[_Judged] = []
    for place, row in enumerate(rows):
        try:
            values.append(reader.read(texts[row]))
            places.append(place)
        except Unfit as unfit:
            bad.append(([row], unfit.reason))
    schema = pa.schema(reader.fields)
    if not reader.fields:
        return places, fitted(pa.record_batch({"": pa.nulls(len(places))}), schema), bad
    array = pa.array(values, pa.struct(reader.fields))
    return places, pa.RecordBatch.from_arrays(array.flatten(), schema=schema), bad


def _checked(values: pa.Array) -> tuple[list[bytes], list[int], list[str | None]]:
    """The `values` that are one JSON object of UTF-8 each, their row numbers; and the errors of the others."""
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
        # Outside strings, where it is only white space; inside one it would have been refused.
        texts.append(text.replace(b"\n", b" ") if b"\n" in text else text)
        rows.append(row)
    return texts, rows, errors


def _chunks(texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    if texts and sum(map(len, texts)) + len(texts) < _MOST_BYTES:
        yield 0, len(texts)
        return
    begin = size = 0
    for index, text in enumerate(texts):
        size += len(text) + 1
        if size >= _MOST_BYTES:
            yield begin, index + 1
            begin, size = index + 1, 0
    if begin < len(texts):
        yield begin, len(texts)


def _together(texts: list[bytes], fields: Sequence[pa.Field], adapt: _Adapt) -> _Divided:
    """The rows that Arrow's parser accepts, parsed together if possible; and the others."""
    return _divided(texts, fields, "ignore", adapt, lambda _, rows, __: ([], list(rows)))


def _pieces(texts: list[bytes], fields: Sequence[pa.Field], adapt: _Adapt | None = None) -> _Divided:
    """The same with fields that are not columns yet, without leaving out rows that fit the earlier ones."""
    return _divided(texts, fields, "infer", adapt, _around)


def _around(texts: list[bytes], rows: _Rows, fields: Sequence[pa.Field]) -> _Divided:
    """The rows before, between and after those that Arrow's parser refuses."""
    pieces: list[_Piece] = []
    refused: list[int] = []
    while texts:
        try:
            return [*pieces, (rows, parse(texts, fields, "infer"))], refused
        except pa.ArrowException as error:
            named = _ROW.search(str(error))
            is_found = named is not None or len(texts) == 1
            odd = min(int(named.group(1)), len(texts) - 1) if named else len(texts) // 2
        some, others = _around(texts[:odd], rows[:odd], fields)
        pieces += some
        refused += [*others, *rows[odd : odd + is_found]]
        texts, rows = texts[odd + is_found :], rows[odd + is_found :]
    return pieces, refused


def _divided(
    texts: list[bytes],
    fields: Sequence[pa.Field],
    unexpected: str,
    adapt: _Adapt | None,
    divide: Callable[[list[bytes], _Rows, Sequence[pa.Field]], _Divided],
) -> _Divided:
    """Parse all at once if possible, else without the rows of other types, else `divide` each failing window."""
    if not texts:
        return [], []
    try:
        return [(range(len(texts)), parse(texts, fields, unexpected))], []
    except pa.ArrowException:
        fields = fields if adapt is None else adapt(texts)
        rows, refused = _fitting(texts, fields)
    good = [texts[row] for row in rows]
    try:
        return [(rows, parse(good, fields, unexpected))], refused
    except pa.ArrowException:
        pieces: list[_Piece] = []
    for begin in range(0, len(good), _WINDOW):
        window = slice(begin, begin + _WINDOW)
        try:
            pieces.append((rows[window], parse(good[window], fields, unexpected)))
        except pa.ArrowException:
            some, others = divide(good[window], rows[window], fields)
            pieces += some
            refused += others
    return pieces, refused


def _fitting(texts: list[bytes], fields: Sequence[pa.Field]) -> tuple[list[int], list[int]]:
    """Rows whose values have the types that Arrow's parser expects, and the others."""
    fits = _decoder_of(fields)
    rows: list[int] = []
    others: list[int] = []
    for row, text in enumerate(texts):
        try:
            fits(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            others.append(row)
        else:
            rows.append(row)
    return rows, others


def _decoder_of(fields: Sequence[pa.Field]) -> Callable[[bytes], object]:
    """A function that raises msgspec.MsgspecError for an object whose field has another type than its column.

    Arrow's parser may still refuse an accepted object, and decides.
    """
    return _decoder(pa.schema(list(fields)))


@lru_cache(maxsize=64)
def _decoder(schema: pa.Schema) -> Callable[[bytes], object]:
    return msgspec.json.Decoder(_object(list(schema), 0)).decode


def _object(fields: Sequence[pa.Field], level: int) -> Any:
    names = {f"f{index}": field.name for index, field in enumerate(fields)}
    return msgspec.defstruct(
        f"Object{level}",
        [(name, _type(field.type, level + 1) | None, None) for name, field in zip(names, fields, strict=True)],
        rename=names,
    )


def _type(kind: pa.DataType, level: int) -> Any:
    if types.is_struct(kind):
        return _object(list(kind), level)
    if types.is_list(kind):
        return GenericAlias(list, (_type(kind.value_type, level + 1) | None,))
    for is_kind, found in ((types.is_int64, _Whole), (types.is_floating, float), (types.is_string, str)):
        if is_kind(kind):
            return found
    return bool if types.is_boolean(kind) else Any
