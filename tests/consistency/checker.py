"""Judges a history of sends and polls. Pure. The names of what it finds are those of Jepsen's Kafka workload.

inconsistent-offsets   two values at one offset of a key
duplicate              one value at two offsets of a key
lost-write             an acknowledged value that nobody polled, although a later offset of its key was polled
unseen                 an acknowledged value that nobody polled, and nothing behind it either
delivered-not-stored   a value of which its client was told that it is stored, and which nobody polled where it is
G1a                    a polled value of an operation that failed: an aborted read
int-poll-skip, int-nonmonotonic-poll    within one operation, a key's values are left out or come again
poll-skip, nonmonotonic-poll            the same from one operation of a process to its next
int-send-skip          within one operation, others' values come between two sends to a key
int-nonmonotonic-send, nonmonotonic-send  a later send of the process lies before an earlier one
G0                     transactions whose writes precede each other in a circle
G1c                    transactions that read each other's writes in a circle

Sends of others may come between those of a transaction, and writes of transactions are not isolated from each other:
`int-send-skip` and `G0` are how Kafka is, and are told apart in `ALLOWED`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from tests.consistency.graph import cycles
from tests.consistency.history import Op, Poll, Send

__all__ = ["ALLOWED", "MOVING", "check", "faults"]

ALLOWED: Final = frozenset({"int-send-skip", "G0"})
"""What Kafka's model has everywhere."""

MOVING: Final = frozenset({"poll-skip", "nonmonotonic-poll"})
"""What subscribing consumers may see besides: a rebalance gives them positions that others committed."""

Found = dict[str, list[str]]


def faults(history: Sequence[Op], allowed: Iterable[str] = ALLOWED) -> Found:
    """What is wrong with a history, without what is allowed."""
    return {kind: found for kind, found in check(history).items() if kind not in set(allowed)}


def check(history: Sequence[Op]) -> Found:
    """Everything that there is to say about a history, by kind; nothing for a sound one."""
    found: Found = defaultdict(list)
    seen = _Seen(history)
    seen.contradictions(found)
    seen.losses(found)
    seen.deliveries(found)
    seen.aborted_reads(found)
    order = seen.order()
    for at, op in enumerate(history):
        _inside(at, op, order, found)
    _between(history, order, found)
    _circles(history, order, found)
    return dict(found)


# -- what is in the log -------------------------------------------------------------------------------


class _Seen:
    """What the history says of each key: who wrote what where, and what was polled."""

    def __init__(self, history: Sequence[Op]) -> None:
        self.sent: dict[tuple[int, int], int | None] = {}  # what was acknowledged: (key, value) to offset
        self.delivered: dict[tuple[int, int], int | None] = {}  # of each record on its own, as `sent`
        self.failed: set[tuple[int, int]] = set()
        self.polled: set[tuple[int, int]] = set()
        self.values: dict[tuple[int, int], set[int]] = defaultdict(set)  # by key and offset
        self.offsets: dict[tuple[int, int], set[int]] = defaultdict(set)  # by key and value
        for op in history:
            for part in op.parts:
                if isinstance(part, Poll):
                    for offset, value in part.records:
                        self.polled.add((part.key, value))
                        self._at(part.key, offset, value)
                    continue
                if part.delivered:
                    self.delivered[part.key, part.value] = part.offset
                if op.outcome == "fail":
                    self.failed.add((part.key, part.value))
                elif op.outcome == "ok":
                    self.sent[part.key, part.value] = part.offset
                    if part.offset is not None:
                        self._at(part.key, part.offset, part.value)

    def _at(self, key: int, offset: int, value: int) -> None:
        self.values[key, offset].add(value)
        self.offsets[key, value].add(offset)

    def contradictions(self, found: Found) -> None:
        for (key, offset), values in self.values.items():
            if len(values) > 1:
                found["inconsistent-offsets"].append(f"key {key} offset {offset}: {sorted(values)}")
        for (key, value), offsets in self.offsets.items():
            if len(offsets) > 1:
                found["duplicate"].append(f"key {key} value {value}: at {sorted(offsets)}")

    def losses(self, found: Found) -> None:
        furthest: dict[int, int] = {}
        for key, value in self.polled:
            furthest[key] = max(furthest.get(key, -1), *self.offsets[key, value])
        for (key, value), offset in self.sent.items():
            if (key, value) not in self.polled:
                kind = "lost-write" if offset is not None and offset < furthest.get(key, -1) else "unseen"
                found[kind].append(f"key {key} value {value}, acknowledged at {offset}")

    def deliveries(self, found: Found) -> None:
        for (key, value), offset in self.delivered.items():
            if (key, value) not in self.polled or (offset is not None and self.values[key, offset] != {value}):
                found["delivered-not-stored"].append(f"key {key} value {value}, delivered at {offset}")

    def aborted_reads(self, found: Found) -> None:
        for key, value in sorted(self.failed & self.polled):
            found["G1a"].append(f"key {key} value {value} was polled and its operation failed")

    def order(self) -> "_Order":
        """Each key's values in the order of their offsets; values nobody is to see are not in it."""
        keys: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (key, value), offsets in self.offsets.items():
            keys[key].append((min(offsets), value))
        values = {key: [value for _, value in sorted(places)] for key, places in keys.items()}
        return _Order(values)


class _Order:
    """Where each value stands among its key's."""

    def __init__(self, values: dict[int, list[int]]) -> None:
        self.values = values
        self._places = {(key, value): at for key, listed in values.items() for at, value in enumerate(listed)}

    def place(self, key: int, value: int) -> int | None:
        return self._places.get((key, value))

    def step(self, key: int, first: int, second: int) -> int:
        """How far `second` is behind `first`: 1 for neighbours; 1 too where one of them is not known."""
        one, other = self.place(key, first), self.place(key, second)
        return 1 if one is None or other is None else other - one


# -- the order of what a process does -----------------------------------------------------------------


def _values(op: Op, kind: type[Send] | type[Poll]) -> Iterator[tuple[int, int]]:
    """Keys and values that an operation sent, or polled, in its order."""
    for part in op.parts:
        if kind is Poll and isinstance(part, Poll):
            yield from ((part.key, value) for _, value in part.records)
        elif kind is Send and isinstance(part, Send):
            yield part.key, part.value


def _by_key(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    keys: dict[int, list[int]] = defaultdict(list)
    for key, value in pairs:
        keys[key].append(value)
    return keys


def _inside(at: int, op: Op, order: _Order, found: Found) -> None:
    for kind, what in ((Poll, "poll"), (Send, "send")):
        for key, values in _by_key(_values(op, kind)).items():
            for first, second in pairwise(values):
                _step(f"int-{what}-skip", f"int-nonmonotonic-{what}", (key, first, second), at, order, found)


def _step(skip: str, back: str, pair: tuple[int, int, int], at: int, order: _Order, found: Found) -> None:
    key, first, second = pair
    step = order.step(key, first, second)
    if step < 1:
        found[back].append(f"operation {at}, key {key}: {second} comes after {first}")
    elif step > 1 and skip:
        found[skip].append(f"operation {at}, key {key}: {step - 1} values between {first} and {second}")


def _between(history: Sequence[Op], order: _Order, found: Found) -> None:
    """From operation to operation of each process. What failed did not happen, but it has moved the consumer."""
    polled: dict[tuple[int, int], int] = {}
    sent: dict[tuple[int, int], int] = {}
    for at, op in enumerate(history):
        if op.moved or op.outcome != "ok":
            polled = {place: value for place, value in polled.items() if place[0] != op.process}
        if op.outcome == "ok":
            for key, values in _by_key(_values(op, Poll)).items():
                if (op.process, key) in polled:
                    pair = (key, polled[op.process, key], values[0])
                    _step("poll-skip", "nonmonotonic-poll", pair, at, order, found)
                polled[op.process, key] = values[-1]
            for key, values in _by_key(_values(op, Send)).items():
                if (op.process, key) in sent:
                    _step("", "nonmonotonic-send", (key, sent[op.process, key], values[0]), at, order, found)
                sent[op.process, key] = values[-1]


# -- transactions in circles --------------------------------------------------------------------------


def _circles(history: Sequence[Op], order: _Order, found: Found) -> None:
    writers = {
        (part.key, part.value): at
        for at, op in enumerate(history)
        if op.outcome != "fail"
        for part in op.parts
        if isinstance(part, Send)
    }
    writes: dict[int, set[int]] = defaultdict(set)
    for key, values in order.values.items():
        by = [writers[key, value] for value in values if (key, value) in writers]
        for first, second in pairwise(by):
            if first != second:
                writes[first].add(second)
    reads: dict[int, set[int]] = defaultdict(set)
    for at, op in enumerate(history):
        for place in _values(op, Poll):
            writer = writers.get(place)
            if writer is not None and writer != at and op.outcome != "fail":
                reads[writer].add(at)
    found_at = (("G0", writes), ("G1c", reads))
    for kind, edges in found_at:
        for component in cycles(edges):
            found[kind].append(f"operations {component}")
