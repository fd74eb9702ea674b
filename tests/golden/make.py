"""Write a golden data directory and what is in it: `python -m tests.golden.make DIRECTORY` makes both for today's code.

`v1/` was made by the code at commit 5bcc85b and is never made again: a release that cannot read it any more has broken
a promise. A change of the storage format brings a directory of its own beside it.
"""

import base64
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

from duramen.codec.batch import BatchInput, DecodedRecord, encode
from duramen.coordinators.group.coordinator import CommitMember
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.wal.frames import FRAME_HEADER_BYTES

ARCHIVE = "directory.tar.gz"
CONTENT = "content.json"
GROUP = "golden-group"


_SHOWN_BYTES = 1000


def text(data: bytes | None) -> str | None:
    """Bytes as the content's JSON has them: long ones as their hash."""
    if data is None:
        return None
    return hashlib.sha256(data).hexdigest() if len(data) > _SHOWN_BYTES else base64.b64encode(data).decode()


def document(record: DecodedRecord) -> list[Any]:
    """A record as the content's JSON has it."""
    key, value = text(record.key), text(record.value)
    headers = [[name.decode(), None if data is None else data.decode()] for name, data in record.headers]
    return [record.offset, record.timestamp, key, value, headers]


def produce(hand: ManualBroker, stream: str, partition: int, *values: bytes, **batch: Any) -> None:
    """Append a batch whose records have keys, headers and nulls, and have it acknowledged."""
    now_ms = hand.clock.wall_ms()
    new = [
        BatchInput(now_ms + at, b"key-%d" % at if at % 2 else None, value or None, [(b"h", b"v"), (b"none", None)][:at])
        for at, value in enumerate(values)
    ]
    answer: CallbackResult[int] = CallbackResult()
    hand.broker.streams.get(stream).partition(partition).append(encode(new, **batch), answer)
    hand.settle()
    if answer.value < 0:
        raise AssertionError(answer.calls)
    hand.clock.advance(7)


def commit(hand: ManualBroker, stream: str, partition: int, offset: int) -> None:
    """Commit an offset of the group."""
    made: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(made)
    hand.settle()
    committed = CommittedOffset(offset, 1, "golden", hand.clock.wall_ms())
    answer: CallbackResult[Any] = CallbackResult()
    hand.broker.groups.commit(
        GROUP, CommitMember("", None, -1), [(OffsetKey(GROUP, stream, partition), committed)], answer
    )
    hand.settle()
    if any(answer.value):
        raise AssertionError(answer.value)


def damage(hand: ManualBroker) -> None:
    """Kill the node, flip a bit of a frame that a later one vouches for, and start it again."""
    for value in (b"before", b"lost", b"after"):
        produce(hand, "damaged", 0, value * 20)
    hand.files.locks.clear()
    path = next(
        path
        for path in hand.files.paths()
        if path.startswith("wal/") and b"lost" * 20 in (file := hand.files.open(path)).read(0, file.size())
    )
    file = hand.files.open(path)
    hand.files.corrupt(path, bytes(file.read(0, file.size())).index(b"lost" * 20) - FRAME_HEADER_BYTES)
    hand.start()


def fill(hand: ManualBroker) -> None:
    """Make a directory in which everything occurs that the format has."""
    hand.create("plain", partitions=2, segment_bytes=1024, retention_ms=-1)
    hand.create("fast", durability="os", segment_bytes=1024, retention_ms=-1)
    hand.create("memory", durability="memory")
    hand.create("idempotent", retention_ms=-1)
    hand.create("cut", segment_bytes=512, retention_ms=-1)
    hand.create("damaged", retention_ms=-1)
    hand.create("gone")
    for number in range(20):
        for stream in ("plain", "fast"):
            produce(hand, stream, 0, b"%d " % number * 8, b"", b"third", codec=number % 5)
        produce(hand, "cut", 0, b"cut %d " % number * 5)
    # More than one block of an index.
    produce(hand, "plain", 1, b"\x01" * 66_000)
    produce(hand, "plain", 1, b"second")
    produce(hand, "memory", 0, b"lost with the process")
    produce(hand, "gone", 0, b"gone")
    for sequence in (0, 2):
        produce(hand, "idempotent", 0, b"a", b"b", producer_id=4711, producer_epoch=3, base_sequence=sequence)
    commit(hand, "plain", 0, 17)
    hand.advance(61_000)
    hand.delete("gone")
    hand.store.move_start(hand.broker.streams.get("plain").partition(0).log, 31)
    cut: CallbackResult[None] = CallbackResult()
    hand.store.truncate(hand.broker.streams.get("cut").partition(0).log, 13, hand.store.node_epoch, cut)
    hand.settle()
    if cut.error is not None:
        raise cut.error
    produce(hand, "cut", 0, b"after the cut")
    hand.restart()
    damage(hand)
    produce(hand, "plain", 1, b"third")
    hand.advance(61_000)
    # What comes now is in the write-ahead log alone, and the node is killed.
    produce(hand, "plain", 0, b"tail")
    produce(hand, "fast", 0, b"tail")
    produce(hand, "idempotent", 0, b"c", producer_id=4711, producer_epoch=3, base_sequence=4)
    commit(hand, "plain", 1, 1)


def content(hand: ManualBroker) -> dict[str, Any]:
    """What a consumer sees of each partition, and what is known to be lost."""
    partitions: dict[str, Any] = {}
    for stream in hand.broker.streams:
        for partition in stream.partitions:
            log = partition.log
            records: list[list[Any]] = []
            at = log.start_offset
            while log.durability != "memory":
                at = next((last + 1 for first, last in log.damage if first <= at <= last), at)
                if at >= log.high_watermark:
                    break
                answer, _ = hand.fetch((stream.name, partition.index, at))
                hand.settle()
                found = [record for record in hand.read(answer.value[0].slice) if record.offset >= at]
                records += map(document, found)
                at = found[-1].offset + 1
            partitions[f"{stream.name}/{partition.index}"] = {
                "log_id": log.id if log.written else None,  # before its first record a log has none for good
                "start_offset": log.start_offset,
                "end_offset": log.end_offset,
                "damage": [list(lost) for lost in log.damage],
                "takeovers": [list(row) for row in log.takeovers.rows()],
                "records": records,
            }
    groups = hand.broker.groups.all_committed(GROUP)
    committed = {f"{key.topic}/{key.partition}": found.offset for key, found in groups}
    return {"partitions": partitions, "committed": {GROUP: committed}}


def main(directory: Path) -> None:
    """Make both files."""
    hand = ManualBroker({"offsets.topic.num.partitions": 2})
    fill(hand)
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(directory / ARCHIVE, "w:gz", compresslevel=9) as archive:
        for path in hand.files.paths():
            file = hand.files.open(path)
            data = bytes(file.read(0, file.size()))
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with (directory / CONTENT).open("w") as out:
        json.dump(content(hand), out)
        out.write("\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
