"""The process of a node that runs counters whose state is rows. Commands and answers are lines of JSON."""

import asyncio
import json
import sys
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.base.settings import Settings
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, RowKind, ShardAnswer, ShardKind
from duramen.node.node import NodeAssembly

STREAM: Final = "counts"


class Counts:
    """Adds one to a counter, and answers with what it is then."""

    def keys_of(self, command: str) -> Collection[Hashable]:
        return (command,)

    def decide(self, command: str, rows: StateRows, now_ms: int) -> Decision:
        del now_ms
        key = command.encode()
        return Decision([(key, None)], int(rows.get(key) or b"0") + 1)

    def apply(self, record: DecodedRecord) -> None:
        raise AssertionError(record)

    def loaded(self, rows: StateRows) -> Iterator[None]:
        del rows
        return iter(())

    def next_ms(self) -> int | None:
        return None

    def due(self, now_ms: int) -> Iterable[object]:
        del now_ms
        return ()


def _changes(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    counts = dict[bytes, int]()
    for record in found:
        key = record.key or b""
        counts[key] = (counts[key] if key in counts else int(rows.get(key) or b"0")) + 1
    return {key: b"%d" % count for key, count in counts.items()}


def _make(_: int) -> CoordinatorShard[str]:
    return Counts()


def _say(document: Mapping[str, object]) -> None:
    print(json.dumps(document), flush=True)


def _answered(value: object) -> None:
    if isinstance(value, DuramenError):
        _say({"error": value.id, "message": str(value)})
    else:
        _say({"value": value.response if isinstance(value, ShardAnswer) else value})


def _take(node: NodeAssembly, order: Mapping[str, Any]) -> None:
    if "add" in order:
        node.coordinators.submit(STREAM, 0, order["add"], _answered)
    else:
        key = str(order["get"]).encode()
        node.coordinators.read(STREAM, 0, lambda _, rows: int(rows.get(key) or b"0"), _answered)


async def _run(given: Mapping[str, object]) -> None:
    kind = ShardKind(STREAM, _make, RowKind(_changes, checkpoint_records=20))
    node = NodeAssembly(Settings(BROKER, options=given), kinds=(kind,))
    await node.start()
    _say(node.addresses)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        _take(node, json.loads(line))
    await node.stop()


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1])))
