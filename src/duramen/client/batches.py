"""Requests to the coordinator of a Spark query: whether a batch may be written, its attempts, and the decision."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from duramen.base.errors import AttemptLost, BatchDiffers, DuramenError, QueryFenced, ServerUnreachable
from duramen.client.answers import PASSING, failure
from duramen.client.cluster import BrokerCluster, RetryPatience
from duramen.client.coordinator import TRANSACTIONS, GroupCoordinatorClient
from duramen.client.producer import OpenTransaction
from duramen.codec.attempts import query_name
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["Batches", "Begun", "CommittedAttempt", "are_offered"]

_AGAIN: Final = PASSING | {ErrorCode.CONCURRENT_TRANSACTIONS}
_REFUSALS: Final[Mapping[int, type[DuramenError]]] = MappingProxyType(
    {
        ErrorCode.PRODUCER_FENCED: QueryFenced,
        ErrorCode.INVALID_TXN_STATE: BatchDiffers,
        ErrorCode.TRANSACTION_ABORTABLE: AttemptLost,
    }
)


class Begun(NamedTuple):
    """The number of a run, and whether the batch that was asked about is decided already."""

    run: int
    decided: bool


class CommittedAttempt(NamedTuple):
    """The attempt of a partition to commit, and its producer."""

    partition: int
    attempt: int
    producer_id: int
    producer_epoch: int


def are_offered(cluster: BrokerCluster) -> bool:
    """Whether the brokers decide about batches, as Duramen's do. Raises ServerUnreachable."""
    return cluster.anyone().offers(ApiKey.DECIDE_BATCH)


class Batches:
    """The batches of one query. Every call asks until it is answered, or raises when the timeout is over.

    They raise QueryFenced where a newer run writes or nothing more is to be written, and ServerUnreachable.
    """

    def __init__(self, cluster: BrokerCluster, query: str) -> None:
        """Raises RequestInvalid for what cannot be a query's id."""
        self._cluster = cluster
        self._query = query
        self._coordinator = GroupCoordinatorClient(cluster, query_name(query), kind=TRANSACTIONS)

    def begin(self, run: str, batch: int) -> Begun:
        """A task of this run is about to write for a batch. Raises BatchDiffers for a batch of the past too."""
        asked: Message = {"query_id": self._query, "run_id": run, "batch_id": batch}
        answer = self._ask(ApiKey.BEGIN_BATCH, asked, _refusal)
        return Begun(answer["run"], answer["decided"])

    def open(self, id_: str, timeout_ms: int) -> OpenTransaction:
        """An attempt's transaction. Raises TransactionTimeoutInvalid too."""
        asked: Message = {"transactional_id": id_, "transaction_timeout_ms": timeout_ms}
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, asked, self._not_opened)
        return OpenTransaction(id_, answer["producer_id"], answer["producer_epoch"])

    def abort(self, transaction: OpenTransaction) -> None:
        """Abort an attempt; its records never become visible."""
        asked: Message = {
            "transactional_id": transaction.id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "committed": False,
        }
        self._ask(ApiKey.END_TXN, asked, self._not_opened)

    def decide(self, run: int, batch: int, digest: bytes, winners: Sequence[CommittedAttempt]) -> None:
        """Commit these attempts and abort the batch's others; completes an earlier decision of the batch.

        Raises BatchDiffers if it was decided with another digest, AttemptLost if a winner is no longer open.
        """
        self._decide(run, batch, digest, winners, commit=True)

    def abandon(self, run: int, batch: int) -> None:
        """Abort what this run has open of a batch that is not decided."""
        self._decide(run, batch, b"", (), commit=False)

    def _decide(
        self, run: int, batch: int, digest: bytes, winners: Sequence[CommittedAttempt], *, commit: bool
    ) -> None:
        asked: Message = {
            "query_id": self._query,
            "run": run,
            "batch_id": batch,
            "commit": commit,
            "digest": digest,
            "winners": [winner._asdict() for winner in winners],
        }
        self._ask(ApiKey.DECIDE_BATCH, asked, _refusal)

    def _not_opened(self, answer: Message) -> DuramenError:
        code = answer["error_code"]
        if code == ErrorCode.PRODUCER_FENCED:
            return QueryFenced(f"query {self._query}: another run writes now, or the batch is decided")
        return failure(code, f"a transaction of query {self._query}")

    def _ask(self, api: ApiKey, message: Message, refusal: Callable[[Message], DuramenError]) -> Message:
        patience = RetryPatience(self._cluster.timeout_s)
        while True:
            try:
                answer = self._coordinator.ask(api, message)
            except ServerUnreachable as lost:
                patience.pause(lost)
                continue
            code = answer["error_code"]
            if code == ErrorCode.NONE:
                return answer
            error = refusal(answer)
            if code not in _AGAIN:
                raise error
            self._coordinator.forget()
            patience.pause(error)


def _refusal(answer: Message) -> DuramenError:
    message: str = answer["error_message"] or ""
    refused = _REFUSALS.get(answer["error_code"])
    return failure(answer["error_code"], "a batch", message) if refused is None else refused(message)
