"""Record batches as `duramen log dump` shows them."""

from typing import Final

import click

from duramen.codec.batch import APPEND_TIME, CODEC_MASK, CONTROL, TRANSACTIONAL, Header, records
from duramen.codec.compression import CODECS
from duramen.codec.jsonbytes import json_of

__all__ = ["batch_document", "batch_line", "print_records"]

_SHOWN_BYTES: Final = 200


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
                "value": json_of(record.value),
                "headers": [[name.decode(errors="replace"), json_of(value)] for name, value in record.headers],
            }
            for record in records(content)
        ]
    return document


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
    for record in records(batch):
        headers = " ".join(f"{name.decode(errors='replace')}={_text(value)}" for name, value in record.headers)
        click.echo(
            f"  offset {record.offset} timestamp {record.timestamp} key {_text(record.key)} value {_text(record.value)}"
            + (f" headers {headers}" if headers else "")
        )


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    shown = repr(content[:_SHOWN_BYTES])[1:]
    return f"{shown}… ({len(content)} bytes)" if len(content) > _SHOWN_BYTES else shown
