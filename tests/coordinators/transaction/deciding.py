"""What Spark's sink does, to a broker on doubles: a run of a query, its tasks, and the driver that decides."""

from typing import Any

from tests.coordinators.transaction.transacting import Writer

from duramen.codec.attempts import TaskAttempt
from duramen.coordinators.transaction.batch_decisions import DecisionRequest, Won
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.transactions.batch_decisions import AttemptWinner

__all__ = ["Run"]


class Run:
    """A driver's run of a query: `begin` is what each of its tasks does first."""

    def __init__(self, hand: ManualBroker, query: str, name: str) -> None:
        self.hand = hand
        self.query = query
        self.name = name
        self.number = -1

    def _settled(self, answer: CallbackResult[Any]) -> Any:
        self.hand.settle()
        return answer.value

    def begin(self, batch: int) -> bool:
        """Whether the batch is decided already. Raises what the coordinator says."""
        answer: CallbackResult[Any] = CallbackResult()
        self.hand.broker.transactions.decisions.begin(self.query, self.name, batch, answer)
        self._settled(answer)
        self.number, decided, _ = answer.calls[0]
        return bool(decided)

    def task(self, batch: int, partition: int, attempt: int) -> Writer:
        """An attempt that may write."""
        return Writer(self.hand, TaskAttempt(self.query, self.number, batch, partition, attempt).id, 2)

    def write(self, batch: int, partition: int, attempt: int, *values: bytes) -> Won:
        """An attempt that writes to that partition of the stream `a`, and leaves it open."""
        writer = self.task(batch, partition, attempt)
        answer = writer.write("a", partition, *values)
        self._settled(answer)
        return Won(AttemptWinner(partition, attempt), writer.identity)

    def ask(self, batch: int, *won: Won, digest: bytes = b"") -> CallbackResult[None]:
        """Ask for a decision; nothing is settled."""
        answer: CallbackResult[None] = CallbackResult()
        wish = DecisionRequest(self.query, self.number, batch, digest, won)
        self.hand.broker.transactions.decisions.decide(wish, answer)
        return answer

    def decide(self, batch: int, *won: Won, digest: bytes = b"") -> None:
        """Decide. Raises what the coordinator says."""
        self._settled(self.ask(batch, *won, digest=digest))

    def abandon(self, batch: int) -> None:
        """Give the batch up."""
        answer: CallbackResult[None] = CallbackResult()
        self.hand.broker.transactions.decisions.abandon(self.query, self.number, batch, answer)
        self._settled(answer)
