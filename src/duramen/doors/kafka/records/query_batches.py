"""Requests of Spark's sink to the coordinator of its query: BeginBatch and DecideBatch, which are Duramen's own."""

from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.coordinators.transaction.batch_decisions import DecisionRequest, Won
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import group_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.transactions.batch_decisions import AttemptWinner
from duramen.transactions.values import ProducerIdentity

__all__ = ["handle_begin_batch", "handle_decide_batch"]

_LONGEST_RUN: Final = 256
_LONGEST_DIGEST: Final = 64


def handle_begin_batch(context: Context, exchange: Exchange) -> None:
    """A task is about to write for a batch: the number of its run, and whether the batch is decided already."""
    request = exchange.message()
    broker = context.broker

    def reply(run: int, decided: bool, error: DuramenError | None) -> None:
        message = None if error is None else str(error)
        exchange.reply(
            {"error_code": group_error_code(error), "error_message": message, "run": run, "decided": decided}
        )

    def ready(error: DuramenError | None) -> None:
        if error is not None:
            reply(-1, False, error)
        else:
            broker.transactions.decisions.begin(request["query_id"], request["run_id"], request["batch_id"], reply)

    if not 0 < len(request["run_id"]) <= _LONGEST_RUN or request["batch_id"] < 0:
        reply(-1, False, RequestInvalid(f"a run's id has 1 to {_LONGEST_RUN} characters, and batches count from 0"))
    else:
        # As InitProducerId: the stream may not be there yet.
        broker.internal_streams.ensure_transactions(ready)


def handle_decide_batch(context: Context, exchange: Exchange) -> None:
    """A driver decides or abandons a batch; the response comes once the decision is stored and being executed."""
    request = exchange.message()
    decisions = context.broker.transactions.decisions

    def reply(error: DuramenError | None) -> None:
        message = None if error is None else str(error)
        exchange.reply({"error_code": group_error_code(error), "error_message": message})

    query, run, batch = request["query_id"], request["run"], request["batch_id"]
    won = tuple(
        Won(
            AttemptWinner(one["partition"], one["attempt"]), ProducerIdentity(one["producer_id"], one["producer_epoch"])
        )
        for one in request["winners"]
    )
    numbers = [run, batch, *(number for one in won for number in one.winner)]
    if min(numbers) < 0 or len({one.winner.partition for one in won}) < len(won):
        reply(RequestInvalid("numbers of runs, batches and attempts count from 0, and a partition has one winner"))
    elif len(request["digest"]) > _LONGEST_DIGEST:
        reply(RequestInvalid(f"a digest has at most {_LONGEST_DIGEST} bytes"))
    elif request["commit"]:
        decisions.decide(DecisionRequest(query, run, batch, request["digest"], won), reply)
    else:
        decisions.abandon(query, run, batch, reply)
