"""Transactional clients: several partitions, offsets of a group, ended or left open.

They use the Kafka door. After a crash each restarts with its transactional id, like real clients: an open transaction
is aborted then, and one that was ending is either committed or aborted.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from duramen.broker.partition import Partition
from duramen.codec.batch import TRANSACTIONAL
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.groups.records import OffsetKey
from duramen.sim.checkers.batches import new_batch
from duramen.sim.checkers.checker import CommittedModel
from duramen.sim.checkers.compacted import CompactedHistory
from duramen.sim.checkers.history import LogHistory, SentRecords
from duramen.sim.checkers.keyed import KeyedHistory
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.clients.door import AtTheDoor
from duramen.sim.clients.shared import Clients
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Transactors"]

_IDS: Final = ("t0", "t1", "t2")
_GROUP: Final = "transactional"
_TIMEOUT_MS: Final = 900_000
_EAGER: Final = 0.8
_END_VERSIONS: Final = (4, 5)  # the producer's epoch stays, or grows with every end


class _Transactor:
    def __init__(self, id_: str) -> None:
        self.id = id_
        self.begin()
        self.left: list[SimulatedTransaction] = []  # of which this one does not know how they ended

    def begin(self) -> None:
        """A process has started."""
        self.producer_id = -1
        self.epoch = -1
        self.busy = False
        self.sequences: dict[LogHistory, int] = {}
        self.transaction: SimulatedTransaction | None = None
        self.histories: list[LogHistory] = []
        self.offsets: list[tuple[CommittedModel, int]] = []
        self.has_group = False


class Transactors:
    """All of them."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._all = [_Transactor(id_) for id_ in _IDS]
        self._door: AtTheDoor | None = None

    def begin(self) -> None:
        """A process has started."""
        access = self._clients.access
        self._door = access if isinstance(access, AtTheDoor) else None
        for one in self._all:
            if one.transaction is not None:
                one.left.append(one.transaction)
            one.begin()

    def act(self) -> None:
        """The next step of one of them."""
        chance = self._clients.chance
        self._go_on(chance.choice(self._all))

    def _go_on(self, one: _Transactor) -> None:
        if self._door is None or one.busy:
            return
        if one.producer_id < 0:
            self._initialise(one)
        elif one.transaction is None:
            self._add_partitions(one)
        else:
            steps = [self._produce] * 6 + [self._commit_offset] + [self._end] * 3
            self._clients.chance.choice(steps)(one)

    def _answered(self, one: _Transactor) -> None:
        """A step was answered: where streams are keyed, the next one follows at once as a rule."""
        if self._clients.keyed and self._clients.chance.random() < _EAGER:
            self._go_on(one)

    # -- steps --------------------------------------------------------------------------------------

    def _ask(
        self, one: _Transactor, api: ApiKey, version: int, message: Mapping[str, Any], done: Callable[[Message], None]
    ) -> None:
        if self._door is None:
            raise AssertionError("transactions need the door")
        one.busy = True

        def answered(answer: Message) -> None:
            one.busy = False
            done(answer)
            self._answered(one)

        self._door.ask(api, version, message, self._clients.answer(answered))

    def _failed(self, one: _Transactor, what: str, code: int) -> bool:
        """Whether a step failed; then nothing more is known, and it begins again. Raises BrokenPromise."""
        if code == ErrorCode.NONE:
            return False
        self._clients.trace("%s: %s: %s", one.id, what, ErrorCode(code).name)
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            gone = any(self._clients.partition(history) is None for history in one.histories)
            if not (gone or self._clients.faults.failed or (self._door is not None and self._door.is_stopping)):
                raise BrokenPromise(f"{one.id}: {what} is refused with {ErrorCode(code).name}, and nothing explains it")
        for model, offset in one.offsets:
            model.failed(offset)
        if one.transaction is not None:
            one.left.append(one.transaction)
        one.begin()
        return True

    def _identity(self, one: _Transactor) -> dict[str, Any]:
        return {"transactional_id": one.id, "producer_id": one.producer_id, "producer_epoch": one.epoch}

    def _initialise(self, one: _Transactor) -> None:
        message = {"transactional_id": one.id, "transaction_timeout_ms": _TIMEOUT_MS}
        self._ask(one, ApiKey.INIT_PRODUCER_ID, 4, message, partial(self._initialised, one))

    def _initialised(self, one: _Transactor, answer: Message) -> None:
        if self._failed(one, "beginning", answer["error_code"]):
            return
        for transaction in one.left:
            if transaction.fate == "open":
                transaction.fate = "aborted"
        one.left.clear()
        one.producer_id, one.epoch = answer["producer_id"], answer["producer_epoch"]
        self._clients.trace("%s: producer %d, epoch %d", one.id, one.producer_id, one.epoch)

    def _add_partitions(self, one: _Transactor) -> None:
        clients = self._clients
        found = [history for history, partition in clients.histories() if _fits(history, partition)]
        if not found:
            return
        one.histories = clients.chance.sample(found, min(len(found), clients.chance.choice((1, 2, 3))))
        one.transaction = SimulatedTransaction(clients.number())
        topics: dict[str, list[int]] = {}
        for history in one.histories:
            history.transactional = True
            topics.setdefault(history.name, []).append(history.partition)
        message = {
            "v3_and_below_transactional_id": one.id,
            "v3_and_below_producer_id": one.producer_id,
            "v3_and_below_producer_epoch": one.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        }
        clients.trace("%s: transaction %d over %s", one.id, one.transaction.number, ", ".join(map(str, one.histories)))
        self._ask(one, ApiKey.ADD_PARTITIONS_TO_TXN, 3, message, partial(self._added, one))

    def _added(self, one: _Transactor, answer: Message) -> None:
        results = [part for topic in answer["results_by_topic_v3_and_below"] for part in topic["results_by_partition"]]
        code = next((part["partition_error_code"] for part in results if part["partition_error_code"]), 0)
        self._failed(one, "adding partitions", code)

    def _produce(self, one: _Transactor) -> None:
        clients = self._clients
        history = clients.chance.choice(one.histories)
        partition = clients.partition(history)
        if partition is None or not clients.is_there(history) or self._door is None:
            return
        sequence = one.sequences.get(history, 0)
        batch = new_batch(
            clients.chance, clients.number(), clients.clock.wall_ms(), clients.size(),
            producer=(one.producer_id, one.epoch, sequence), attributes=TRANSACTIONAL,
            tombstones=isinstance(history, KeyedHistory),
        )  # fmt: skip
        batch.transaction = one.transaction
        one.sequences[history] = sequence + batch.records
        clients.trace("%s: batch %d is sent in %s, %d records", history, batch.number, one.id, batch.records)
        history.send(batch, clients.checker.boot)
        one.busy = True
        done = clients.answer(partial(self._produced, one, history, batch, partition))
        self._door.produce_in(one.id, partition, batch.data, done)

    def _produced(
        self,
        one: _Transactor,
        history: LogHistory,
        batch: SentRecords,
        partition: Partition,
        base_offset: int,
        code: int,
    ) -> None:
        one.busy = False
        batch.under_way -= 1
        if not self._failed(one, f"batch {batch.number} to {history}", code):
            self._clients.trace("%s: batch %d is at %d", history, batch.number, base_offset)
            history.acknowledged(batch, base_offset, partition.log.durability)
        self._answered(one)

    def _commit_offset(self, one: _Transactor) -> None:
        history = self._clients.chance.choice(one.histories)
        if not self._clients.is_there(history):
            return
        if not one.has_group:
            message = {**self._identity(one), "group_id": _GROUP}
            self._ask(one, ApiKey.ADD_OFFSETS_TO_TXN, 3, message, partial(self._group_added, one))
            return
        offset = self._clients.number()
        model = self._clients.checker.commits(OffsetKey(_GROUP, history.name, history.partition))
        model.ask(offset)
        one.offsets.append((model, offset))
        place = {"partition_index": history.partition, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": history.name, "partitions": [place]}]
        message = {
            **self._identity(one), "group_id": _GROUP, "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": topics,
        }  # fmt: skip
        self._ask(one, ApiKey.TXN_OFFSET_COMMIT, 3, message, partial(self._offset_added, one))

    def _group_added(self, one: _Transactor, answer: Message) -> None:
        one.has_group = not self._failed(one, "adding a group", answer["error_code"])

    def _offset_added(self, one: _Transactor, answer: Message) -> None:
        self._failed(one, "committing an offset", answer["topics"][0]["partitions"][0]["error_code"])

    def _end(self, one: _Transactor) -> None:
        commit = self._clients.chance.random() < 0.7
        if one.transaction is not None and commit:
            one.transaction.fate = "ending"
        version = self._clients.chance.choice(_END_VERSIONS)
        self._clients.trace("%s: the transaction is to be %s", one.id, "committed" if commit else "aborted")
        message = {**self._identity(one), "committed": commit}
        self._ask(one, ApiKey.END_TXN, version, message, partial(self._ended, one, commit=commit))

    def _ended(self, one: _Transactor, answer: Message, *, commit: bool) -> None:
        transaction = one.transaction
        if transaction is None or self._failed(one, "ending", answer["error_code"]):
            return
        if transaction.fate != "aborted" or not commit:
            transaction.fate = "committed" if commit else "aborted"
        else:
            raise BrokenPromise(f"{one.id}: transaction {transaction.number} was aborted, and is said to be committed")
        self._clients.trace("%s: transaction %d is %s", one.id, transaction.number, transaction.fate)
        for model, offset in one.offsets:
            if commit:
                model.committed(offset)
            else:
                model.refused(offset)
        one.transaction, one.offsets, one.has_group, one.histories = None, [], False, []
        if answer["producer_epoch"] >= 0:
            one.producer_id, one.epoch = answer["producer_id"], answer["producer_epoch"]
            one.sequences = {}


def _fits(history: LogHistory, partition: Partition) -> bool:
    """Whether a loss of power takes nothing from the partition that is in a transaction."""
    log = partition.log
    compacted = isinstance(history, CompactedHistory) and not isinstance(history, KeyedHistory)
    if compacted or history.cutting or history.damaged or history.spoiled:
        return False
    return log.durability == log.config.durability == "sync" and not history.in_memory
