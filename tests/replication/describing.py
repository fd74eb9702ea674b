"""Messages and effects as text, for transcripts and traces: `Fetch epoch=1 end=1:5 synced=5`."""

from tests.replication.controller import Heartbeat, PartitionUpdate, Register

from duramen.base.ids import Position
from duramen.replication.effects import (
    AdvanceHighWatermark,
    AppendRecords,
    Effect,
    ProposeInSyncSet,
    Release,
    Restart,
    SendReplicaMessage,
    ServeReplicaFetch,
    Settle,
    Show,
    StartAt,
    TransferLeadership,
    TruncateRecords,
)
from duramen.replication.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    Permit,
    ReplicaBatch,
    ReplicaFetch,
    ReplicaFetchAnswer,
)
from duramen.replication.partition import ReplicatedPartition


def end_text(end: Position) -> str:
    """Epoch and offset."""
    return f"{end.leader_epoch}:{end.offset}"


def batch_text(batch: ReplicaBatch) -> str:
    """Epoch and offsets, and what it holds."""
    last = batch.first_offset + batch.records - 1
    return f"{batch.epoch}:{batch.first_offset}" + (f"-{last}" if batch.records > 1 else "")


def nodes_text(nodes: frozenset[int] | tuple[int, ...]) -> str:
    """Node ids in order."""
    return "{" + " ".join(map(str, sorted(nodes))) + "}"


def state_text(state: ReplicatedPartition) -> str:
    """What the controller says."""
    leader = "nobody leads" if state.leader_id is None else f"{state.leader_id} leads"
    epochs = f"epoch {state.leader_epoch}, partition epoch {state.partition_epoch}"
    return f"{leader}, {epochs}, in sync {nodes_text(state.in_sync)}"


def _permit_text(permit: Permit) -> str:
    return f"below {permit.offset} on {nodes_text(permit.nodes)} for {nodes_text(permit.members)}"


def _fetch_text(fetch: ReplicaFetch) -> str:
    own, *others = fetch.reaches
    name = "Report" if fetch.reports else "Fetch"
    below = "".join(f" covered[{reach.node_id}]={reach.covered}" for reach in others)
    return f"{name} epoch={fetch.leader_epoch} end={end_text(fetch.end)} covered={own.covered}{below}"


def _answer_text(answer: ReplicaFetchAnswer) -> str:
    parts = [f"FetchAnswer epoch={answer.leader_epoch}"]
    if answer.refusal is not None:
        starts = f" start={answer.start_offset}" if answer.start_offset else ""
        return f"{parts[0]} {answer.refusal.name}{starts}"
    parts.append(f"high_watermark={answer.high_watermark}")
    if answer.permit is not None:
        parts.append(f"permit=({_permit_text(answer.permit)})")
    if answer.diverging is not None:
        parts.append(f"diverging={end_text(answer.diverging)}")
    if answer.batches:
        parts.append("batches=[" + ", ".join(map(batch_text, answer.batches)) + "]")
    return " ".join(parts)


def message_text(message: object) -> str:
    """Its name and what is in it, without what is empty."""
    match message:
        case ReplicaFetch():
            return _fetch_text(message)
        case ReplicaFetchAnswer():
            return _answer_text(message)
        case AlterPartition():
            members = tuple(member.node_id for member in message.in_sync)
            return f"AlterPartition partition_epoch={message.partition_epoch} in_sync={nodes_text(members)}"
        case AlterPartitionAnswer(_, None, refusal):
            return f"AlterPartitionAnswer {refusal.name if refusal is not None else ''}"
        case AlterPartitionAnswer(_, ReplicatedPartition() as state, _):
            return f"AlterPartitionAnswer {state_text(state)}"
        case PartitionUpdate():
            return f"PartitionUpdate {state_text(message.state)}, live {nodes_text(message.live)}"
        case Register() | Heartbeat():
            return type(message).__name__
        case _:
            return str(message)


def effect_text(effect: Effect) -> str:
    """What is done."""
    match effect:
        case TransferLeadership():
            return "-> controller another replica should lead"
        case Settle(waiter, outcome):
            return f"answers {waiter}: {outcome.value}"
        case _:
            return _log_text(effect)


def _log_text(effect: Effect) -> str:
    match effect:
        case AppendRecords(batch, _):
            return f"appends {batch_text(batch)}"
        case TruncateRecords(end_offset):
            return f"cuts its log to {end_offset}"
        case Restart(start_offset):
            return f"begins its log anew at {start_offset}"
        case StartAt(start_offset):
            return f"lets go of what is below {start_offset}"
        case AdvanceHighWatermark(high_watermark):
            return f"high watermark {high_watermark}"
        case Show(offset):
            return f"shows what is below {offset}"
        case Release(waiter, refusal):
            what = batch_text(waiter) if isinstance(waiter, ReplicaBatch) else waiter
            return f"acknowledges {what}" if refusal is None else f"fails {what}: {refusal.name}"
        case ProposeInSyncSet(proposal):
            return f"-> controller {message_text(proposal)}"
        case SendReplicaMessage(node_id, message):
            return f"-> {node_id} {message_text(message)}"
        case ServeReplicaFetch(node_id, answer):
            return f"-> {node_id} {message_text(answer)}"
        case _:
            raise AssertionError(effect)
