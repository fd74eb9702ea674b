"""Record batches as `duramen log dump` shows them."""

import re
from typing import Final

import click

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import APPEND_TIME, CODEC_MASK, CONTROL, TRANSACTIONAL, Header, header, records
from duramen.codec.compression import CODECS
from duramen.codec.jsonbytes import json_of
from duramen.codec.quorum import LeaderChange, SnapshotGap, VoterRow, VotersSet, decode_control

__all__ = ["batch_document", "batch_line", "print_records"]

_SHOWN_BYTES: Final = 200
_SECRET: Final = re.compile(rb'(?<="secret":")[0-9a-f]+(?=")')


def _codec(batch: Header) -> str:
    number = batch.attributes & CODEC_MASK
    return CODECS[number] if number < len(CODECS) else "?"


def batch_document(batch: Header, position: int, content: memoryview | None) -> dict[str, object]:
    """A batch as JSON, with the records in `content`; times are ms since 1970, records are as everywhere."""
    document: dict[str, object] = {
        "position": position,
        "size_bytes": batch.size,
        "base_offset": batch.base_offset,
        "last_offset": batch.next_offset - 1,
        "record_count": batch.records,
        "leader_epoch": batch.leader_epoch,
        "crc": batch.crc,
        "codec": _codec(batch),
        "timestamp_type": "LogAppendTime" if batch.attributes & APPEND_TIME else "CreateTime",
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "transactional": bool(batch.attributes & TRANSACTIONAL),
        "control": bool(batch.attributes & CONTROL),
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
    }
    if content is not None:
        document["records"] = [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": json_of(record.key),
                "value": json_of(_without_secret(record.value)),
                "headers": [[name.decode(errors="replace"), json_of(value)] for name, value in record.headers],
            }
            for record in records(content)
        ]
        said = _said(content)
        if said is not None:
            document["quorum"] = said
    return document


def _without_secret(value: bytes | None) -> bytes | None:
    """A record's value; if it is an event of the metadata log, without the secret of a queue space."""
    if value is None or b'"event":"stream-created"' not in value:
        return value
    return _SECRET.sub(b"(hidden)", value)


def _said(batch: memoryview) -> dict[str, object] | None:
    """The content of a control batch of the metadata log; None for any other batch."""
    found = header(batch)
    if not found.attributes & CONTROL or found.producer_id >= 0:
        return None
    try:
        control = decode_control(batch)
    except BatchCorrupt:
        return None
    match control:
        case LeaderChange(leader_id, voters):
            return {"type": "leader-change", "leader_id": leader_id, "voters": list(map(_voter, voters))}
        case VotersSet(voters, leader_id):
            return {"type": "voters", "leader_id": leader_id, "voters": list(map(_voter, voters))}
        case SnapshotGap(offsets):
            return {"type": "snapshot-gap", "offsets": offsets}


def _voter(voter: VoterRow) -> dict[str, object]:
    return {"node_id": voter.node_id, "directory_id": str(voter.directory_id), "endpoint": voter.endpoint}


def batch_line(batch: Header, position: int) -> str:
    """A batch for people."""
    marks = [
        _codec(batch),
        "LogAppendTime" if batch.attributes & APPEND_TIME else "CreateTime",
    ]
    marks += ["transactional"] if batch.attributes & TRANSACTIONAL else []
    marks += ["control"] if batch.attributes & CONTROL else []
    producer = (
        f" producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        if batch.producer_id >= 0
        else ""
    )
    return (
        f"offsets {batch.base_offset}-{batch.next_offset - 1} position {position} size {batch.size}"
        f" records {batch.records} leader-epoch {batch.leader_epoch} crc {batch.crc:08x}"
        f" timestamps {batch.base_timestamp}-{batch.max_timestamp} {' '.join(marks)}{producer}"
    )


def print_records(batch: memoryview) -> None:
    """The records of a batch for people, a line each."""
    said = _said(batch)
    if said is not None:
        click.echo(f"  offset {header(batch).base_offset} " + " ".join(map(_part, said.items())))
        return
    for record in records(batch):
        headers = " ".join(f"{name.decode(errors='replace')}={_text(value)}" for name, value in record.headers)
        value = _text(_without_secret(record.value))
        click.echo(
            f"  offset {record.offset} timestamp {record.timestamp} key {_text(record.key)} value {value}"
            + (f" headers {headers}" if headers else "")
        )


def _part(item: tuple[str, object]) -> str:
    name, value = item
    if isinstance(value, list):
        value = " ".join(f"{voter['node_id']}/{voter['directory_id']} {voter['endpoint']}".rstrip() for voter in value)
    return str(value) if name == "type" else f"{name.replace('_', '-')} {value}"


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    shown = repr(content[:_SHOWN_BYTES])[1:]
    return f"{shown}… ({len(content)} bytes)" if len(content) > _SHOWN_BYTES else shown
