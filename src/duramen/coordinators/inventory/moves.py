"""Moves many topics at once on a standalone node: each step runs for all topics, in one command per shard."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, InventoryNameInvalid, NamespaceNotFound, TenantNotFound
from duramen.coordinators.inventory.changing import Change, Changes, Ended, busy, is_open, records_behind, unknown
from duramen.coordinators.inventory.quotas import InventoryQuotas
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.events import PendingChange
from duramen.inventory.names import NamedProblem, TopicPath, check_topic_name, shard_of
from duramen.inventory.rows import ALIAS, ARRIVED, NameRow, Place
from duramen.inventory.steps import BeginChange, BindName, ChangeStep, EndChange, MoveWithin, PlaceTopic

__all__ = ["TopicMove", "TopicMoves"]

_AllEnded = Callable[[Sequence[DuramenError | None]], None]
_Begun = list[BeginChange | DuramenError]
_Step = tuple[int, int, ChangeStep]
"""The shard of the step, the number of the move, and the step."""


class TopicMove(NamedTuple):
    """A topic that gets another path; with `keep_alias` its old path becomes an alias."""

    path: TopicPath
    to: TopicPath
    keep_alias: bool = False


class TopicMoves:
    """Moves topics of an account within their quotas."""

    def __init__(self, shards: InventoryShards, changes: Changes, quotas: InventoryQuotas, account: str) -> None:
        self._shards = shards
        self._changes = changes
        self._quotas = quotas
        self._account = account

    def move(self, move: TopicMove, done: Ended) -> None:
        """Move one topic."""

        def found(answer: _Begun | DuramenError) -> None:
            begin = answer if isinstance(answer, DuramenError) else answer[0]
            if isinstance(begin, DuramenError):
                done(begin)
            else:
                self._move(begin, done)

        self._shards.read(partial(self._begin, [move]), found)

    def move_all(self, moves: Sequence[TopicMove], done: Callable[[list[NamedProblem]], None]) -> None:
        """Move topics independently and concurrently; `done` gets the failed ones."""
        names = [move.path.topic for move in moves]  # the moves themselves are not kept for the garbage collector

        def found(answer: _Begun | DuramenError) -> None:
            begun = [answer] * len(names) if isinstance(answer, DuramenError) else answer
            problems: list[DuramenError | None] = [one if isinstance(one, DuramenError) else None for one in begun]

            def ended() -> None:
                pairs = zip(names, problems, strict=True)
                done([NamedProblem(name, problem) for name, problem in pairs if problem is not None])

            self._move_all({at: one for at, one in enumerate(begun) if isinstance(one, BeginChange)}, problems, ended)

        self._shards.read(partial(self._begin, moves), found)

    def _begin(self, moves: Sequence[TopicMove]) -> _Begun:
        """A query: the first command of each move, or the reason why it is refused. Raises CoordinatorLoading."""
        directory, numbers = self._shards.directory(), dict[tuple[str, str], int]()

        def number_of(path: TopicPath) -> int:
            place = path.tenant, path.namespace
            if place not in numbers:
                numbers[place] = directory.namespace(self._account, *place).id
            return numbers[place]

        found = list[BeginChange | DuramenError]()
        for path, to, keep_alias in moves:
            try:
                name, new = path.topic.encode(errors="replace"), check_topic_name(to.topic)
                found.append(BeginChange(number_of(path), name, "move", number_of(to), new, keep_alias))
            except (InventoryNameInvalid, NamespaceNotFound, TenantNotFound) as error:
                found.append(error)
        return found

    def _move_all(
        self, begun: Mapping[int, BeginChange], problems: list[DuramenError | None], done: Callable[[], None]
    ) -> None:
        """Move topics by their numbers in `problems`, which gets the error of each failed move."""
        parts = Countdown(done)

        def ended(numbers: Sequence[int], answers: Sequence[DuramenError | None]) -> None:
            for number, answer in zip(numbers, answers, strict=True):
                problems[number] = answer
            parts.count_down()

        def one_ended(number: int, error: DuramenError | None) -> None:
            ended((number,), (error,))

        together, names = dict[tuple[int, int], list[int]](), set[tuple[int, bytes]]()
        for number, one in begun.items():
            origin, target = (one.namespace, one.name), (one.to_namespace, one.to_name)
            if origin in names or target in names or origin == target:
                parts.add()
                self._move(one, partial(one_ended, number))
            else:
                names.update((origin, target))
                together.setdefault((one.namespace, one.to_namespace), []).append(number)
        for numbers in together.values():
            parts.add()
            self._move_together([begun[number] for number in numbers], partial(ended, numbers))
        parts.count_down()

    def _move_together(self, moves: Sequence[BeginChange], done: _AllEnded) -> None:
        """Move topics of a namespace to another one; one by one if a quota has no room for all of them."""

        def go(told: _AllEnded) -> None:
            _MovesTogether(self._shards, self._changes, moves, told).run()

        def ended(answers: Sequence[DuramenError | None] | DuramenError) -> None:
            if not isinstance(answers, DuramenError):
                done(answers)
            elif len(moves) == 1:
                done([answers])
            else:
                self._one_by_one(moves, done)

        self._quotas.move(moves[0].namespace, moves[0].to_namespace, go, ended, len(moves))

    def _one_by_one(self, moves: Sequence[BeginChange], done: _AllEnded) -> None:
        answers: list[DuramenError | None] = [None] * len(moves)
        parts = Countdown(partial(done, answers), len(moves))

        def ended(number: int, error: DuramenError | None) -> None:
            answers[number] = error
            parts.count_down()

        for number, one in enumerate(moves):
            self._move(one, partial(ended, number))

    def _move(self, begin: BeginChange, done: Ended) -> None:
        def go(told: Ended) -> None:
            _MovesTogether(self._shards, self._changes, [begin], lambda answers: told(answers[0])).run()

        alone = self._shards.alone
        self._quotas.move(
            begin.namespace, begin.to_namespace, go if alone else partial(self._changes.begin, begin), done
        )


class _MovesTogether:
    """Moves with distinct names: no move starts or ends at a name of another.

    All move from one namespace to the same other one. `done` gets the error of each move, or None. The steps are those
    of `Change`, which rolls back refused moves.
    """

    def __init__(
        self, shards: InventoryShards, changes: Changes, moves: Sequence[BeginChange], done: _AllEnded
    ) -> None:  # fmt: skip
        self._shards = shards
        self._changes = changes
        self._done = done
        self._origins = [Place(one.namespace, one.name) for one in moves]
        self._targets = [Place(one.to_namespace, one.to_name) for one in moves]
        self._moves = moves
        self._leave_namespace = moves[0].namespace != moves[0].to_namespace
        count = shards.count
        self._origin_shards = [shard_of(*place, count) for place in self._origins]
        self._target_shards = [shard_of(*place, count) for place in self._targets]
        self._arrived: dict[int, NameRow] = {}
        self._arrivals: dict[int, PendingChange] = {}
        self._problems: list[DuramenError | None] = [None] * len(moves)
        self._left = len(moves)
        self._begun: dict[int, tuple[NameRow, PendingChange]] = {}

    def run(self) -> None:
        """Run the steps."""
        entered = list[int]()
        for number, place in enumerate(self._origins):
            if self._changes.enter(place):
                entered.append(number)
            else:
                self._problems[number] = busy(place)
        self._left = len(entered)
        if not entered:
            self._done(self._problems)
            return
        self._step(map(self._begin_step, entered), self._bind, self._ended)

    def _step(
        self, steps: Iterable[_Step], then: Callable[[dict[int, Any]], None],
        refused: Callable[[int, DuramenError], None],
    ) -> None:  # fmt: skip
        """Submit a step of each move; `then` gets the responses of the successful ones."""
        responses = dict[int, Any]()

        def answered(number: int, answer: Any) -> None:
            if not isinstance(answer, DuramenError):
                responses[number] = answer
            elif is_open(answer):
                self._ended(number, unknown(answer))
            else:
                refused(number, answer)

        def all_answered() -> None:
            if responses:
                then(responses)

        self._take(steps, answered, all_answered)

    def _take(
        self, steps: Iterable[_Step], answered: Callable[[int, Any], None], then: Callable[[], None]
    ) -> None:  # fmt: skip
        by_shard: dict[int, tuple[list[int], list[ChangeStep]]] = {}
        for shard, number, step in steps:
            numbers, of_shard = by_shard.setdefault(shard, ([], []))
            numbers.append(number)
            of_shard.append(step)
        parts = Countdown(then, len(by_shard))

        def taken(numbers: Sequence[int], answers: Sequence[Any]) -> None:
            for number, answer in zip(numbers, answers, strict=True):
                answered(number, answer)
            parts.count_down()

        for shard, (numbers, of_shard) in by_shard.items():
            self._shards.submit_steps(shard, of_shard, partial(taken, numbers))

    def _ended(self, number: int, error: DuramenError | None) -> None:
        self._changes.leave(self._origins[number])
        self._problems[number] = error
        self._left -= 1
        if not self._left:
            self._done(self._problems)

    # -- steps --------------------------------------------------------------------------------------

    def _begin_step(self, number: int) -> _Step:
        shard, move = self._origin_shards[number], self._moves[number]
        if shard == self._target_shards[number] and not self._leave_namespace:
            within = MoveWithin(move.namespace, move.name, move.to_namespace, move.to_name, move.keep_alias)
            return shard, number, within
        return shard, number, move

    def _bind(self, begun: dict[int, Any]) -> None:
        for number in [number for number, response in begun.items() if response is None]:
            del begun[number]
            self._ended(number, None)
        self._begun = begun
        self._arrived = {number: NameRow(ARRIVED, row.key) for number, (row, _) in begun.items()}
        self._arrivals = {
            number: PendingChange("arrive", row.key.shard, row.key.sequence, *self._origins[number])
            for number, (row, _) in begun.items()
        }
        if begun:
            self._step(map(self._bind_step, begun), self._place, self._not_bound)

    def _bind_step(self, number: int) -> _Step:
        bind = BindName(*self._targets[number], self._arrived[number], self._arrivals[number])
        return self._target_shards[number], number, bind

    def _change(self, number: int) -> Change:
        return Change(self._shards, self._origins[number], *self._begun[number], partial(self._ended, number))

    def _not_bound(self, number: int, error: DuramenError) -> None:
        self._change(number).back(error)

    def _place(self, bound: dict[int, Any]) -> None:
        then = self._own if self._leave_namespace else self._end
        self._step(map(self._place_step, bound), then, self._not_placed)

    def _place_step(self, number: int) -> _Step:
        home, sequence = self._begun[number][0].key
        ends = self._origin_shards[number] == home and not self._leave_namespace
        keep_alias = self._moves[number].keep_alias
        return home, number, PlaceTopic(sequence, self._origins[number], self._targets[number], keep_alias, ends)

    def _not_placed(self, number: int, error: DuramenError) -> None:
        self._change(number).unbind(error)

    def _own(self, placed: dict[int, Any]) -> None:
        """Assign the records to the new namespace; the old names still show a change in progress."""
        numbers, told = [*placed], dict[int, Any]()

        def all_answered() -> None:
            if told:
                self._end(told)

        parts = Countdown(all_answered, len(placed))

        def answered(at: int, answer: object) -> None:
            number = numbers[at]
            if isinstance(answer, DuramenError):
                self._ended(number, records_behind(answer))
            else:
                told[number] = answer
            parts.count_down()

        keys = [self._begun[number][0].key for number in numbers]
        self._shards.own_all(keys, self._targets[numbers[0]].namespace, answered)

    def _end(self, placed: dict[int, Any]) -> None:
        """If the old name is in the shard that created the topic, that step has ended the change already."""
        steps, problems = list[_Step](), dict[int, DuramenError]()
        for number in placed:
            row, pending = self._begun[number]
            end = EndChange(*self._targets[number], self._arrived[number], self._arrivals[number])
            steps.append((self._target_shards[number], number, end))
            if self._leave_namespace or self._origin_shards[number] != row.key.shard:
                kept = NameRow(ALIAS, row.key) if self._moves[number].keep_alias else None
                steps.append((self._origin_shards[number], number, EndChange(*self._origins[number], kept, pending)))

        def answered(number: int, answer: Any) -> None:
            if isinstance(answer, DuramenError):
                problems[number] = unknown(answer)

        def ended() -> None:
            for number in placed:
                self._ended(number, problems.get(number))

        self._take(steps, answered, ended)
