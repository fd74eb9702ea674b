"""Messages and effects as text, for transcripts and traces: `Vote epoch=1 voter=2/a end=0:0`."""

from duramen.raft.effects import Append, Became, Commit, Cut, Effect, Install, Persist, Send, Serve, ServeSnapshot
from duramen.raft.messages import EntryBatch, Message
from duramen.raft.roles import RaftRole
from duramen.raft.voter_changes import VoterAddition, VoterRemoval, VoterUpdate


def batch_text(batch: EntryBatch) -> str:
    """Epoch and offsets, and what it holds."""
    last = batch.first + batch.entries - 1
    place = f"{batch.epoch}:{batch.first}" + (f"-{last}" if batch.entries > 1 else "")
    held = [] if batch.voters is None else [f"voters={batch.voters}"]
    return " ".join([place, *held] if batch.payload is None else [place, str(batch.payload), *held])


def _value_text(value: object) -> str:
    match value:
        case EntryBatch():
            return batch_text(value)
        case VoterAddition(voter) | VoterUpdate(voter):
            return f"{type(value).__name__}({voter.id})"
        case VoterRemoval(replica):
            return f"VoterRemoval({replica})"
        case tuple() if type(value) is tuple:
            return "[" + ", ".join(map(_value_text, value)) + "]"
        case _:
            return str(value)


def message_text(message: Message) -> str:
    """Its name and what is in it, without the sender, and without what is empty."""
    parts = [type(message).__name__]
    for name, value in message._asdict().items():
        if value is True:
            parts.append(name)
        elif name not in ("sender", "asked", "number") and value is not None and value is not False and value != ():
            parts.append(f"{name}={_value_text(value)}")
    return " ".join(parts)


def effect_text(effect: Effect) -> str:
    """What is done."""
    match effect:
        case Persist(ballot):
            return f"writes its ballot: epoch {ballot.epoch}, voted {ballot.voted or 'for nobody'}"
        case Became(role, epoch, leader):
            known = f", whose leader is {leader}" if role is RaftRole.FOLLOWER else ""
            return f"is {role.value} in epoch {epoch}{known}"
        case Append(batch):
            return f"appends {batch_text(batch)}"
        case Cut(end_offset):
            return f"cuts its log to {end_offset}"
        case Install(snapshot, _, _):
            return f"begins anew with the snapshot {snapshot}"
        case Commit(high_watermark):
            return f"knows what is below {high_watermark} to be committed"
        case Send(node_id, message):
            return f"-> {node_id} {message_text(message)}"
        case Serve(node_id, answer):
            return f"-> {node_id} {message_text(answer)}"
        case ServeSnapshot(node_id, snapshot_answer):
            return f"-> {node_id} {message_text(snapshot_answer)}"
