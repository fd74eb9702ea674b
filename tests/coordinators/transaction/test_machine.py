"""Several transactional producers at once, of both protocols, with crashes and timeouts in between, against a model."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.coordinators.transaction.transacting import Writer, broker_for, committed_values
from tests.examples import examples

from duramen.base.errors import ProducerFenced, TransactionStateInvalid
from duramen.codec.batch import BatchInput, encode
from duramen.groups.records import OffsetKey
from duramen.sim.broker import CallbackResult, ManualBroker

PLACES = [("a", 0), ("a", 1), ("b", 0)]
WRITERS = st.integers(0, 2)
VERSIONS = (0, 2, 2)


class Written(NamedTuple):
    """A value at its offset; `writer` is -1 outside of transactions, `turn` the number of the writer's transaction."""

    value: bytes
    writer: int
    turn: int


class Transacting(RuleBasedStateMachine):
    """Everything is settled after each step, but for what a crash interrupts."""

    @initialize()
    def begin(self) -> None:
        self.hand: ManualBroker = broker_for()
        self.hand.create("a", partitions=2)
        self.hand.create("b")
        self.writers = [Writer(self.hand, f"writer-{at}", version) for at, version in enumerate(VERSIONS)]
        self.turns = [0] * len(self.writers)
        self.open = [False] * len(self.writers)
        self.ended: dict[tuple[int, int], bool] = {}
        self.logs: dict[tuple[str, int], list[Written | None]] = {place: [] for place in PLACES}  # None: a marker
        self.taking: list[set[tuple[str, int]]] = [set() for _ in self.writers]
        self.offsets: list[tuple[int, int, int]] = []  # (writer, turn, offset), in the order of the log
        self.number = 0

    def value(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    # -- steps --------------------------------------------------------------------------------------

    @rule(at=WRITERS, place=st.sampled_from(PLACES))
    def write(self, at: int, place: tuple[str, int]) -> None:
        writer, value = self.writers[at], self.value()
        added = writer.add(place)
        self.hand.settle()
        assert added.error is None
        answer = writer.write(*place, value)
        self.hand.settle()
        assert answer.value == len(self.logs[place])
        self.logs[place].append(Written(value, at, self.turns[at]))
        self.taking[at].add(place)
        self.open[at] = True

    @rule(place=st.sampled_from(PLACES))
    def write_plainly(self, place: tuple[str, int]) -> None:
        value, answer = self.value(), CallbackResult[int]()
        batch = encode([BatchInput(self.hand.clock.wall_ms(), None, value)])
        self.hand.broker.streams.get(place[0]).partition(place[1]).append(batch, answer)
        self.hand.settle()
        assert answer.value == len(self.logs[place])
        self.logs[place].append(Written(value, -1, 0))

    @rule(at=WRITERS)
    def commit_offset(self, at: int) -> None:
        self.number += 1
        answer = self.writers[at].commit_offset("g", "a", self.number)
        self.hand.settle()
        assert answer.value == [None]
        self.offsets.append((at, self.turns[at], self.number))
        self.open[at] = True

    @rule(at=WRITERS, commit=st.booleans())
    def end(self, at: int, commit: bool) -> None:
        writer = self.writers[at]
        if not self.open[at]:
            answer = writer.end(commit=commit)
            self.hand.settle()
            if answer.error is None:
                writer.take_over(answer.value)
            return
        writer.settle_end(commit=commit)
        self.over(at, commit=commit)

    def over(self, at: int, *, commit: bool) -> None:
        self.ended[at, self.turns[at]] = commit
        for place in self.taking[at]:
            self.logs[place].append(None)
        self.taking[at].clear()
        self.turns[at] += 1
        self.open[at] = False

    @rule(at=WRITERS, commit=st.booleans(), steps=st.integers(0, 4), seed=st.none() | st.integers(0, 99))
    def end_in_a_crash(self, at: int, commit: bool, steps: int, seed: int | None) -> None:
        writer, was_open = self.writers[at], self.open[at]
        before = writer.identity
        answer = writer.end(commit=commit)
        for step in range(steps):
            if step % 2 == 0:
                self.hand.worker.run_soon()
            else:
                self.hand.worker.step("sync")
        self.hand.crash(seed)
        # Whoever asks again, as a client does whose connection was cut, gets to the end that it wanted.
        retried = writer.end(commit=commit)
        self.hand.settle()
        if was_open:
            writer.identity = before
            writer.take_over(retried.value)
            self.over(at, commit=commit)
        elif retried.error is None:
            writer.take_over(retried.value)
        elif answer.there and answer.error is None:
            writer.take_over(answer.value)

    @rule(seed=st.none() | st.integers(0, 99))
    def crash(self, seed: int | None) -> None:
        self.hand.crash(seed)

    @rule()
    def restart(self) -> None:
        self.hand.restart()

    @rule(at=WRITERS)
    def another_takes_its_place(self, at: int) -> None:
        zombie = self.writers[at]
        was_open = self.open[at]
        self.writers[at] = Writer(self.hand, zombie.name, VERSIONS[at])
        if was_open:
            self.over(at, commit=False)
        else:
            self.turns[at] += 1
        ended = zombie.end(commit=True)
        self.hand.settle()
        assert isinstance(ended.error, ProducerFenced)

    @rule()
    def time_runs_out(self) -> None:
        self.hand.advance(71_000)
        for at, writer in enumerate(self.writers):
            if self.open[at]:
                self.over(at, commit=False)
                late = writer.end(commit=True)
                self.hand.settle()
                assert isinstance(late.error, ProducerFenced | TransactionStateInvalid)
                writer.initialise(writer.identity)

    # -- what must hold -----------------------------------------------------------------------------

    @invariant()
    def readers_see_what_is_committed_up_to_what_is_open(self) -> None:
        for place, log in self.logs.items():
            expected = []
            stable = len(log)
            for offset, one in enumerate(log):
                if one is not None and one.writer >= 0 and (one.writer, one.turn) not in self.ended:
                    stable = offset
                    break
                if one is not None and (one.writer < 0 or self.ended[one.writer, one.turn]):
                    expected.append(one.value)
            partition = self.hand.broker.streams.get(place[0]).partition(place[1])
            assert partition.log.high_watermark == len(log), "each marker is there, once"
            assert partition.last_stable_offset == stable
            assert committed_values(self.hand, *place) == expected

    @invariant()
    def the_group_has_what_is_committed_furthest_on(self) -> None:
        counting = [offset for at, turn, offset in self.offsets if self.ended.get((at, turn))]
        found = self.hand.broker.groups.committed(OffsetKey("g", "a", 0))
        assert (-1 if found is None else found.offset) == (counting[-1] if counting else -1)
        last = self.offsets.index(next(one for one in self.offsets if one[2] == counting[-1])) if counting else -1
        held = [one for one in self.offsets[last + 1 :] if (one[0], one[1]) not in self.ended]
        assert self.hand.broker.groups.unstable(OffsetKey("g", "a", 0)) == bool(held)


TestTransacting = Transacting.TestCase
TestTransacting.settings = settings(max_examples=examples(20), stateful_step_count=25)
