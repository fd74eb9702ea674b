"""A share group on three brokers that lead, are cut off, hear and are heard late, lose their power and come back.

The model knows, of every record, whether somebody was told that its acknowledgement is stored, and how often it had
been delivered when somebody was told that it was given back. Only what reaches a consumer of the leader that the
controller means counts: who is cut off may deliver again what it does not know to be over, and stores nothing.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.coordinators.share.test_cluster import LIMITS, Shares

from duramen.coordinators.share.fetch import ShareFetched
from duramen.coordinators.share.partition import ACCEPT, RELEASE, Acknowledged
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult

__all__ = ["SharedWorld"]

OWNERS = ["m", "n"]
_MOST_DELIVERIES = 5


class Fetch(NamedTuple):
    """One under way."""

    node: int
    broker: Broker
    epoch: int
    owner: str
    over: frozenset[int]  # what was known to be over when it was sent
    least: dict[int, int]  # deliveries that were known to be stored then
    answer: CallbackResult[list[ShareFetched]]


class Said(NamedTuple):
    """An acknowledgement under way."""

    broker: Broker
    offsets: tuple[int, ...]
    type: int
    answer: CallbackResult[None]


class SharedWorld:
    """Records are written, delivered and answered for, while who leads what changes."""

    def __init__(self, seed: int, make: Callable[[], Shares] = Shares) -> None:
        self.random = random.Random(f"{seed}/shared")
        self.shares = shares = make()
        self.several = shares.several
        shares.reset(0)
        first = shares.write(*[b"%d" % index for index in range(12)])
        self.written = {*range(first, first + 12)}
        self.over: set[int] = set()
        self.maybe_over: set[int] = set()  # the same, told or not, and what was delivered as often as may be
        self.least: dict[int, int] = {}
        self.held: dict[tuple[int, str], dict[int, int]] = {}  # by node and owner: offsets, and which delivery it is
        self.fetches: list[Fetch] = []
        self.said: list[Said] = []
        self._released: dict[int, dict[int, int]] = {}  # by what was said, which deliveries were given back
        self.counts: Counter[str] = Counter()
        self._actions: list[Callable[[], None]] = []
        for weight, action in (
            (25, self._fetch), (25, self._say), (25, self._step), (12, self._turn), (8, self.several.settle),
            (4, self._time), (5, self._elect), (2, self._cut), (4, self._heal), (2, self._restart), (3, self._write),
            (1, self._tidy), (2, self._slow), (3, self._arrive), (2, self._fence), (4, self._hear),
        ):  # fmt: skip
            self._actions += [action] * weight

    def run(self, steps: int) -> Counter[str]:
        """Do so much, deliver all that is left, and tell what consumers were told."""
        for _ in range(steps):
            self.random.choice(self._actions)()
            self._look()
        self._end()
        return self.counts

    def _node(self) -> int:
        return self.random.choice(list(self.several.hands))

    # -- what consumers do --------------------------------------------------------------------------

    def _fetch(self) -> None:
        leader = self.shares.leaders[0]
        node = self._node() if leader is None or self.random.random() < 0.2 else leader
        owner, answer = self.random.choice(OWNERS), CallbackResult[list[ShareFetched]]()
        limits = LIMITS._replace(max_records=self.random.randrange(1, 6), strict=True)
        broker = self.several.broker(node)
        epoch = self.several.partitions[self.shares.owners[0]].leader_epoch
        broker.sharing.fetch([self.shares.key], owner, limits, answer)
        self.fetches.append(Fetch(node, broker, epoch, owner, frozenset(self.over), dict(self.least), answer))

    def _say(self) -> None:
        holding = [(place, held) for place, held in self.held.items() if held]
        if not holding:
            return
        (node, owner), held = self.random.choice(holding)
        offsets = tuple(sorted(self.random.sample(sorted(held), self.random.randrange(1, min(4, len(held)) + 1))))
        type_ = self.random.choice((ACCEPT, ACCEPT, RELEASE))
        answer: CallbackResult[None] = CallbackResult()
        spoken = [Acknowledged(offset, offset, [type_]) for offset in offsets]
        deliveries = {offset: held.pop(offset) for offset in offsets}
        self.several.broker(node).sharing.acknowledge(self.shares.key, owner, spoken, answer)
        self.said.append(Said(self.several.broker(node), offsets, type_, answer))
        if type_ == ACCEPT:
            self.maybe_over.update(offsets)
        else:
            self._released[id(answer)] = deliveries

    # -- what happens -------------------------------------------------------------------------------

    def _write(self) -> None:
        answer: CallbackResult[int] = CallbackResult()
        leader = self.shares.leaders[0]
        if leader is not None and leader not in self.several.cut:
            self.shares.append(answer, b"x", b"y")
            self.several.advance(1000)
            if answer.there and answer.error is None:
                self.written |= {answer.value, answer.value + 1}

    def _step(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.several.step()

    def _turn(self) -> None:
        self.several.hands[self._node()].settle()

    def _time(self) -> None:
        self.several.advance(*self.random.choice(((100, 50), (1000, 500), (31_000, 1000))))

    def _elect(self) -> None:
        place = self.random.choice(self.shares.owners)
        able = [one for one in self.several.partitions[place].isr if one not in self.several.unheard]
        self.several.elect(place, self.random.choice(able) if able else None)

    def _cut(self) -> None:
        if not self.several.cut:
            self.several.cut.add(self._node())

    def _heal(self) -> None:
        self.several.heal(self._node())

    def _fence(self) -> None:
        if not self.several.unheard:
            self.several.fence(self._node())

    def _hear(self) -> None:
        self.several.hear(self._node())

    def _slow(self) -> None:
        asker, asked = self.random.sample(sorted(self.several.hands), 2)
        self.several.slow.add((asker, asked))

    def _arrive(self) -> None:
        self.several.slow.clear()
        self.several.arrive()

    def _restart(self) -> None:
        node = self._node()
        if node not in self.several.unheard:
            crash = self.random.randrange(1 << 30)
            if crash % 5 == 0:
                self.several.hands[node].rows.damage(checkpoints=crash % 2)  # they are made of the log again
            self.several.restart(node, crash=crash if crash % 3 else None)
            self.shares.restarted(node)
            self.held = {place: held for place, held in self.held.items() if place[0] != node}

    def _tidy(self) -> None:
        self.several.broker(self._node()).share_nodes.tidy()

    # -- what must be so ----------------------------------------------------------------------------

    def _look(self) -> None:
        for said in [one for one in self.said if one.answer.there]:
            self.said.remove(said)
            error = said.answer.calls[0][0]
            deliveries = self._released.pop(id(said.answer), {})
            self.counts["stored" if error is None else type(error).__name__] += 1
            if error is None and said.type == ACCEPT:
                self.over.update(said.offsets)
            elif error is None:
                self.least.update(deliveries)
        for fetch in [one for one in self.fetches if one.answer.there]:
            self.fetches.remove(fetch)
            self._given(fetch)

    def _given(self, fetch: Fetch) -> None:
        (found,) = fetch.answer.value
        if found.error is not None:
            self.counts[type(found.error).__name__] += 1
        if found.taken is None or fetch.broker is not self.several.broker(fetch.node):
            return
        meant = self.several.partitions[self.shares.owners[0]]
        unheard = fetch.node in self.several.unheard
        counts = meant.leader == fetch.node and meant.leader_epoch == fetch.epoch and not unheard
        held = self.held.setdefault((fetch.node, fetch.owner), {})
        for first, last, deliveries in found.taken.acquired:
            for offset in range(first, last + 1):
                held[offset] = deliveries
                if deliveries >= _MOST_DELIVERIES:
                    self.maybe_over.add(offset)
                if counts:
                    assert offset not in fetch.over, f"{offset} comes again"
                    assert deliveries > fetch.least.get(offset, 0), f"{offset} comes in delivery {deliveries}"
                    self.counts["delivered"] += 1

    def _end(self) -> None:
        several = self.several
        self._arrive()
        for node in several.hands:
            several.heal(node)
            several.hear(node)
        several.advance(2000, 500)
        for place, state in several.partitions.items():
            if state.leader is None:
                several.elect(place, state.isr[0])
        several.advance(60_000, 2000)
        self._look()
        alive = [several.broker(node) for node in several.hands]
        assert not [said for said in self.said if said.broker in alive]
        got: set[int] = set()
        for _ in range(5):
            answer = self.shares.begin("z")
            several.advance(2000, 500)
            (found,) = answer.value
            assert found.error is None
            if found.taken is not None:
                got |= {at for first, last, _ in found.taken.acquired for at in range(first, last + 1)}
        assert not got & self.over, f"{sorted(got & self.over)} come again"
        missing = self.written - got - self.over - self.maybe_over
        assert not missing, f"{sorted(missing)} do not come"
