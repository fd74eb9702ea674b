"""Topics of the inventory from pages of an export, as Arrow; only moved topics take a step each."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duramen.codec.exports import FIRST_SEQUENCES, TopicsPage, joined_names
from duramen.spark.columns import arrow_schema

__all__ = ["Namespaces", "topics_of"]

_LINE_END: Final = 10
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_SEQUENCE_SHIFTS: Final = np.arange(36, -4, -4, dtype=np.int64)  # of the last ten digits of an id
_CREATED, _MOVED = "created", "moved"
_POLICIES: Final = arrow_schema(["policies"]).field(0).type

_FIRSTS: Final = np.array([*FIRST_SEQUENCES.values()], np.int64)

_Numbers = NDArray[np.int64]


class Namespaces(NamedTuple):
    """Names by numbers from 0, and the number of each namespace id: -1 if the namespace is deleted."""

    numbers: _Numbers
    names: pa.Array
    tenants: pa.Array
    accounts: pa.Array
    policies: pa.Array

    @classmethod
    def of(cls, found: Collection[tuple[int, str, str, str, Mapping[str, str]]]) -> "Namespaces":
        """Built from the ids, names, tenants, accounts and policies of namespaces."""
        numbers = np.full(max((one[0] for one in found), default=0) + 1, -1, np.int64)
        for number, one in enumerate(found):
            numbers[one[0]] = number
        names, tenants, accounts = (pa.array([one[field] for one in found], pa.string()) for field in (1, 2, 3))
        return cls(numbers, names, tenants, accounts, _maps([one[4] for one in found]))

    def number_of(self, ids: _Numbers) -> _Numbers:
        """The numbers of namespaces; -1 for deleted ones."""
        inside = (ids > 0) & (ids < len(self.numbers))
        return np.where(inside, self.numbers[np.where(inside, ids, 0)], -1)


def topics_of(page: TopicsPage, ids: str, namespaces: Namespaces, columns: Collection[str]) -> pa.RecordBatch:
    """The existing topics of a page, with these columns; `ids` is the prefix of their ids."""
    counts = np.array(page.counts, np.int64)
    first = np.array(page.lasts, np.int64) - counts + 1
    begun = np.cumsum(counts) - counts
    sequences = np.arange(int(counts.sum())) + np.repeat(first - begun, counts)
    namespace = np.repeat(np.array(page.namespaces, np.int64), counts)
    moved = np.searchsorted(sequences, np.array(page.moved, np.int64))
    namespace[moved] = page.moved_namespaces
    number = namespaces.number_of(namespace)
    kept = np.flatnonzero(number >= 0)
    whole = len(kept) == len(number)
    number = number if whole else number[kept]
    index = pa.array(number)

    def name() -> pa.Array:
        names = _names(page, moved)
        return names if whole else names.take(pa.array(kept))

    def state() -> pa.Array:
        is_moved = np.zeros(len(sequences), np.int64)
        is_moved[moved] = 1
        return pa.array([_CREATED, _MOVED], pa.string()).take(pa.array(is_moved[kept]))

    def policies() -> pa.Array:
        of_namespaces = namespaces.policies.take(index)
        places = np.searchsorted(sequences[kept], np.array(page.with_policies, np.int64))
        own = {
            int(place): dict(of_namespaces[int(place)].as_py()) | changed
            for place, sequence, changed in zip(places, page.with_policies, page.own_policies, strict=True)
            if place < len(kept) and sequences[kept[place]] == sequence
        }
        return _replaced(of_namespaces, np.array([*own], np.int64), _maps([*own.values()]))

    makers: Mapping[str, Any] = {
        "id": lambda: _ids(ids, sequences[kept]),
        "name": name,
        "tenant": lambda: namespaces.tenants.take(index),
        "namespace": lambda: namespaces.names.take(index),
        "account": lambda: namespaces.accounts.take(index),
        "state": state,
        "policies": policies,
        "durability": lambda: pa.array(FIRST_SEQUENCES.keys(), pa.string()).take(
            pa.array(np.searchsorted(_FIRSTS, sequences[kept], side="right") - 1)
        ),
    }
    return pa.RecordBatch.from_arrays([makers[column]() for column in columns], schema=arrow_schema([*columns]))


def _names(page: TopicsPage, moved: _Numbers) -> pa.Array:
    """The present names of topics."""
    text = b"\n".join(map(joined_names, page.bodies))
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_END)
    # Each line end between two names belongs to the name before it, and is cut off.
    edges = np.empty(2 * len(ends) + 2, np.int32)
    edges[0], edges[-1] = 0, len(text)
    edges[1:-1:2], edges[2:-1:2] = ends, ends + 1
    count = len(edges) - 1
    both = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(text)])
    names = both.take(pa.array(np.arange(0, count, 2, dtype=np.int32))).cast(pa.string())
    return _replaced(names, moved, pa.array([name.decode() for name in page.moved_names], pa.string()))


def _replaced(found: pa.Array, places: _Numbers, others: pa.Array) -> pa.Array:
    """An array with the values at some places replaced."""
    if not len(places):
        return found
    taken = np.arange(len(found))
    taken[places] = len(found) + np.arange(len(places))
    return pa.concat_arrays([found, others]).take(pa.array(taken))


def _maps(found: Sequence[Mapping[str, str]]) -> pa.Array:
    return pa.array([[*one.items()] for one in found], _POLICIES)


def _ids(begin: str, sequences: _Numbers) -> pa.Array:
    count, size = len(sequences), len(begin) + len(_SEQUENCE_SHIFTS)
    text = np.empty((count, size), np.uint8)
    text[:, : len(begin)] = np.frombuffer(begin.encode(), np.uint8)
    text[:, len(begin) :] = _DIGITS[(sequences[:, None] >> _SEQUENCE_SHIFTS) & 15]
    ends = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text.reshape(-1))])
