"""Offsets on three brokers that lead, are cut off, lose their power and come back as a seed draws.

The model knows, of every commit, whether it was answered. Who coordinates a group tells what was acknowledged last, or
something newer that was sent; and what one coordinator has told, no other takes back.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.broker.several import Several

from duramen.base.errors import DuramenError
from duramen.codec.batch import header
from duramen.codec.markers import encode_marker
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.groups.records import CommittedOffset, OffsetKey, partition_for
from duramen.metadata.decisions import Definition
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult

__all__ = ["CoordinatedWorld"]

GROUPS = ["g", "h", "k"]
WRITER = "w"
"""A group whose offsets are committed in transactions, one after the other."""
PRODUCER = 9
ANYBODY = CommitMember("", None, -1)


class Sent(NamedTuple):
    """A commit, and what is answered."""

    offset: int
    broker: Broker
    answer: CallbackResult[list[DuramenError | None]]

    @property
    def said(self) -> str:
        """`acknowledged`, `nothing yet`, or the error."""
        if not self.answer.there:
            return "nothing yet"
        result = self.answer.calls[0][0]
        error = result[0] if isinstance(result, list) else result
        return "acknowledged" if error is None else type(error).__name__


class Transaction:
    """One that commits an offset; `ends` says whether it is to be committed, once that is decided."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.held: CallbackResult[None] | None = None
        self.ends: bool | None = None
        self.marked: CallbackResult[int] | None = None
        self.broker: Broker | None = None  # whom was asked last


class CoordinatedWorld:
    """Each group commits one offset after the other of one partition."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"{seed}/coordinated")
        self.several = several = Several(3)
        several.require_in_sync(self.random.choice((1, 2)))
        self.sent: dict[str, list[Sent]] = {group: [] for group in GROUPS}
        self.last: dict[str, int] = dict.fromkeys([*GROUPS, WRITER], 0)  # the least that may be told
        self.open: list[tuple[str, Sent]] = []
        self.count = 0
        self.writing = Transaction(1)
        several.ensure_offsets()
        created: CallbackResult[None] = CallbackResult()
        several.broker(1).create_stream(Definition("a", 1), created)
        several.settle()
        self._actions: list[Callable[[], None]] = []
        for weight, action in (
            (40, self._commit), (30, self._transact), (25, self._step), (15, self._turn), (8, several.settle),
            (3, self._time), (6, self._elect), (3, self._cut), (4, self._heal), (2, self._restart), (1, self._flush),
        ):  # fmt: skip
            self._actions += [action] * weight

    def run(self, steps: int) -> Counter[str]:
        """Do so much, bring all to an end, and tell what was said to commits."""
        for _ in range(steps):
            self.random.choice(self._actions)()
            self.check()
        self._end()
        return Counter(sent.said for sent in [one for many in self.sent.values() for one in many])

    def _node(self) -> int:
        return self.random.choice(list(self.several.hands))

    # -- what happens -------------------------------------------------------------------------------

    def _commit(self) -> None:
        group = self.random.choice(GROUPS)
        able = [node for node in self.several.hands if self._coordinates(node, group)]
        node = self.random.choice(able or list(self.several.hands))
        self.count += 1
        sent = Sent(self.count, self.several.broker(node), CallbackResult())
        self.sent[group].append(sent)
        self.open.append((group, sent))
        wanted = [(OffsetKey(group, "a", 0), CommittedOffset(sent.offset, 1, "", 0))]
        self.several.broker(node).groups.commit(group, ANYBODY, wanted, sent.answer)

    def _transact(self) -> None:
        """The producer goes on: an offset, then its end, said again until it is heard; then the next transaction."""
        one = self.writing
        able = [node for node in self.several.hands if self._coordinates(node, WRITER)]
        broker = self.several.broker(self.random.choice(able or list(self.several.hands)))
        lost = one.broker is not None and one.broker not in map(self.several.broker, self.several.hands)
        waits = [answer for answer in (one.held, one.marked) if answer is not None and not answer.there]
        if waits and not lost:
            return
        one.broker = broker
        if one.held is None:
            one.held = CallbackResult()
            wanted = [(OffsetKey(WRITER, "a", 0), CommittedOffset(one.offset, 1, "", 0))]
            broker.offsets.hold(WRITER, PRODUCER, 0, wanted, one.held)
        elif one.marked is not None and one.marked.there and one.marked.error is None:
            if able and broker.groups.unstable(OffsetKey(WRITER, "a", 0)):
                return  # the marker is committed, and its coordinator is about to read it
            if one.ends:
                self.last[WRITER] = one.offset
            self.writing = Transaction(one.offset + 1)
        else:
            if one.ends is None:
                one.ends = one.held.there and one.held.error is None and self.random.random() < 0.7
            one.marked = CallbackResult()
            marker = encode_marker(PRODUCER, 0, commit=one.ends, coordinator_epoch=0, now_ms=0)
            index = partition_for(WRITER, 2)
            broker.streams.get(OFFSETS_STREAM).partition(index).store(marker, header(marker), one.marked)

    def _step(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.several.step()

    def _turn(self) -> None:
        self.several.hands[self._node()].settle()

    def _time(self) -> None:
        self.several.advance(*self.random.choice(((100, 50), (1000, 500), (40_000, 5000))))

    def _elect(self) -> None:
        place = self.several.place(OFFSETS_STREAM, self.random.randrange(2))
        able = [one for one in self.several.partitions[place].isr if one not in self.several.cut]
        self.several.elect(place, self.random.choice(able) if able else None)

    def _cut(self) -> None:
        self.several.cut.add(self._node())

    def _heal(self) -> None:
        self.several.heal(self._node())

    def _restart(self) -> None:
        node = self._node()
        if node not in self.several.cut:
            crash = self.random.randrange(1 << 30)
            self.several.restart(node, crash=crash if crash % 3 else None)

    def _flush(self) -> None:
        self.several.broker(self._node()).coordinators.states.flush(lambda: None)

    def _end(self) -> None:
        several = self.several
        for node in several.hands:
            several.heal(node)
        several.advance(2000, 500)
        for place, state in several.partitions.items():
            if state.leader is None:
                several.elect(place, state.isr[0])
        several.advance(60_000, 5000)
        self.check()
        alive = [several.broker(node) for node in several.hands]
        for group in GROUPS:
            assert sum(self._coordinates(node, group) for node in several.hands) == 1
            for sent in self.sent[group]:
                assert sent.answer.there or sent.broker not in alive, f"commit {sent.offset} of {group} is not answered"

    # -- what must be so ----------------------------------------------------------------------------

    def _coordinates(self, node: int, group: str) -> bool:
        try:
            self.several.broker(node).groups.check_coordinated(group)
        except DuramenError:
            return False
        return True

    def check(self) -> None:
        """Look at what those tell who are not cut off: these may be behind, as long as they do not know."""
        for group, sent in [one for one in self.open if one[1].answer.there]:
            self.open.remove((group, sent))
            if sent.said == "acknowledged":
                self.last[group] = max(self.last[group], sent.offset)
        for group in GROUPS:
            for node in self.several.hands:
                if node not in self.several.cut and self._coordinates(node, group):
                    found = self.several.broker(node).groups.committed(OffsetKey(group, "a", 0))
                    offset = 0 if found is None else found.offset
                    assert offset == 0 or offset in {sent.offset for sent in self.sent[group]}
                    assert offset >= self.last[group], f"node {node} tells {offset} of group {group}"
                    self.last[group] = offset
        for node in self.several.hands:
            if node not in self.several.cut and self._coordinates(node, WRITER):
                found = self.several.broker(node).groups.committed(OffsetKey(WRITER, "a", 0))
                offset = 0 if found is None else found.offset
                assert offset in {self.last[WRITER], self.writing.offset if self.writing.ends else 0}
                self.last[WRITER] = offset
