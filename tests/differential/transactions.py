"""Steps about idempotent and transactional producers."""

from typing import Any, Final

from tests.differential.batches import Stamped, batch, produce_step
from tests.differential.committing import offsets
from tests.differential.drawing import TRANSACTIONS, Drawing, Making, Step
from tests.differential.peer import Peer, Symbol

from duramen.codec.kafka.versions import ApiKey

__all__ = ["Transactions"]

_STATES: Final = (
    ["Ongoing"], ["Empty", "CompleteCommit"], ["CompleteAbort"], ["ongoing"], ["nonsense"],
    ["Ongoing", "nonsense", "x"],
)  # fmt: skip

_LONG_MS: Final = 900_000
"""No transaction is to run out while a sequence runs."""


class Transactions:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw
        self._sequences: dict[tuple[str, str, int], int] = {}

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [
            (8, self._idempotent), (5, self._init_producer), (4, self._add_partitions), (3, self._add_offsets),
            (4, self._end), (3, self._commit_in_transaction), (8, self._produce_in_transaction),
            (3, self._describe), (3, self._list),
        ]  # fmt: skip

    def _idempotent(self) -> Step:
        """The next sequence, one again, or one that is out of order."""
        name, partition = self._draw.name(), self._draw.partition()
        place = ("", name, partition)
        sequence = self._sequences.get(place, 0)
        count = self._draw.number(1, 4)
        if self._draw.often():
            self._sequences[place] = sequence + count
        else:
            sequence += self._draw.one(-1, -2, 1, 5) if sequence > 1 else 5
        epoch = 0 if self._draw.often() else 1
        return produce_step(self._draw, name, partition, Stamped(batch(self._draw, count), "", epoch, sequence))

    def init(self, transaction: str, version: int, timeout_ms: int = _LONG_MS) -> Step:
        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if answer.get("error_code") == 0:
                peer.learn(Symbol("producer_id", transaction), answer["producer_id"])
                peer.learn(Symbol("epoch", transaction), answer["producer_epoch"])
                self._sequences = {place: at for place, at in self._sequences.items() if place[0] != transaction}

        wish = {"transactional_id": transaction or None, "transaction_timeout_ms": timeout_ms}
        return Step(ApiKey.INIT_PRODUCER_ID, version, wish, learn)

    def _init_producer(self) -> Step:
        timeout = _LONG_MS if self._draw.often() else self._draw.one(0, -1, 1 << 30)
        return self.init(self._draw.one(*TRANSACTIONS), self._draw.version(ApiKey.INIT_PRODUCER_ID), timeout)

    def _producer(self) -> tuple[str, dict[str, Any]]:
        name = self._draw.one(*TRANSACTIONS)
        epoch: Any = Symbol("epoch", name) if self._draw.often() else self._draw.one(0, 1, 500)
        ident: Any = Symbol("producer_id", name) if self._draw.often() else 424_242
        return name, {"transactional_id": name, "producer_id": ident, "producer_epoch": epoch}

    def _add_partitions(self) -> Step:
        _, who = self._producer()
        topics = [{"name": self._draw.name(), "partitions": [self._draw.partition()]}]
        wish = {f"v3_and_below_{key}": value for key, value in (who | {"topics": topics}).items()}
        return Step(ApiKey.ADD_PARTITIONS_TO_TXN, self._draw.version(ApiKey.ADD_PARTITIONS_TO_TXN), wish)

    def _add_offsets(self) -> Step:
        _, who = self._producer()
        wish = who | {"group_id": self._draw.one(*self._draw.groups)}
        return Step(ApiKey.ADD_OFFSETS_TO_TXN, self._draw.version(ApiKey.ADD_OFFSETS_TO_TXN), wish)

    def _end(self) -> Step:
        name, who = self._producer()

        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if answer.get("error_code") == 0 and answer.get("producer_epoch", -1) >= 0:
                peer.learn(Symbol("producer_id", name), answer["producer_id"])
                peer.learn(Symbol("epoch", name), answer["producer_epoch"])
            if answer.get("error_code") == 0:
                self._sequences = {place: at for place, at in self._sequences.items() if place[0] != name}

        wish = who | {"committed": self._draw.sometimes(0.6)}
        return Step(ApiKey.END_TXN, self._draw.version(ApiKey.END_TXN), wish, learn)

    def _commit_in_transaction(self) -> Step:
        _, who = self._producer()
        group = self._draw.group()
        member: dict[str, Any] = {"generation_id": -1, "member_id": ""}
        if self._draw.sometimes(0.4):
            generation = Symbol("generation", group) if self._draw.often() else 99
            member = {"generation_id": generation, "member_id": Symbol("member_id", group)}
        wish = who | member | {"group_id": group, "topics": offsets(self._draw)}
        return Step(ApiKey.TXN_OFFSET_COMMIT, self._draw.version(ApiKey.TXN_OFFSET_COMMIT), wish)

    def _produce_in_transaction(self) -> Step:
        transaction = self._draw.one(*TRANSACTIONS)
        name, partition = self._draw.name(), self._draw.partition()
        place = (transaction, name, partition)
        sequence = self._sequences.get(place, 0)
        count = self._draw.number(1, 3)
        self._sequences[place] = sequence + count
        stamped = Stamped(batch(self._draw, count, transactional=True), transaction, None, sequence)
        return produce_step(self._draw, name, partition, stamped, transaction=transaction)

    def _describe(self) -> Step:
        names = [self._draw.one(*TRANSACTIONS) if self._draw.often() else self._draw.one("t3", "")]
        if self._draw.sometimes(0.3):
            names.append("t4")
        version = self._draw.version(ApiKey.DESCRIBE_TRANSACTIONS)
        return Step(ApiKey.DESCRIBE_TRANSACTIONS, version, {"transactional_ids": names})

    def _list(self) -> Step:
        producers: list[Any] = (
            [Symbol("producer_id", self._draw.one(*TRANSACTIONS))] if self._draw.sometimes(0.3) else []
        )
        if not self._draw.often():
            producers.append(424_242)
        wish = {
            "state_filters": self._draw.one([], [], *_STATES), "producer_id_filters": producers,
            "duration_filter": self._draw.one(-1, -1, 1 << 40, -2),
        }  # fmt: skip
        return Step(ApiKey.LIST_TRANSACTIONS, self._draw.version(ApiKey.LIST_TRANSACTIONS), wish)
