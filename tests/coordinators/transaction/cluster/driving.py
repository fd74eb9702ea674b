"""A driver of Spark among scripted nodes: it looks for whom to ask, and asks again."""

from tests.coordinators.transaction.cluster.world import Node, World
from tests.coordinators.transaction.cluster.writing import Asking, Writer

from duramen.base.errors import DuramenError
from duramen.broker.partition import Partition
from duramen.codec.attempts import TaskAttempt, query_name
from duramen.coordinators.transaction.batch_decisions import DecisionRequest, Won
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.sim.broker import CallbackResult
from duramen.transactions.batch_decisions import AttemptWinner


class Run(Asking):
    """A run of the query `q`."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.place = TRANSACTIONS_STREAM, transaction_partition(query_name("q"), 2)
        self.number = -1

    def begin(self, batch: int) -> bool:
        """Whether the batch is decided already."""
        found: list[bool] = []

        def attempt(node: Node, _: Partition, answer: CallbackResult[int]) -> None:
            def begun(number: int, decided: bool, error: DuramenError | None) -> None:
                found[:] = [decided]
                answer(number, error)

            node.broker.transactions.decisions.begin("q", self.name, batch, begun)

        self.number = self.until(self.place, attempt)
        return found[0]

    def write(self, batch: int, partition: int, attempt: int, value: bytes) -> Won:
        """An attempt that writes one record to that partition of the stream `a`."""
        writer = Writer(self.world, TaskAttempt("q", self.number, batch, partition, attempt).id, 2)
        writer.write("a", partition, value)
        return Won(AttemptWinner(partition, attempt), writer.identity)

    def decide(self, batch: int, *won: Won) -> None:
        wish = DecisionRequest("q", self.number, batch, b"", won)
        self.until(self.place, lambda node, _, answer: node.broker.transactions.decisions.decide(wish, answer))
