"""Moves of many topics in one request."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec

from duramen.codec.bulk_names import Rows, rows_of_lines
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.moves import TopicMove
from duramen.doors.http.bulk import failed_names, lacking_names, list_failed, rows_of_body
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.serving.rows import NDJSON, BodyRows, RowFormats, json_rows
from duramen.doors.http.types.inventory import MovedInfo, TopicChange, TopicMoveRequest
from duramen.inventory.names import NamedProblem, TopicPath

__all__ = ["MOVE_ROWS", "move_all", "path_after"]

_MOVES_AT_ONCE: Final = 1_000
_NO_MOVE: Final = "is no move"
_DECODER: Final = msgspec.json.Decoder(TopicMoveRequest)

_Piece = tuple[Sequence[TopicMoveRequest], Sequence[int]]


def _moves_of_lines(content: bytes, before: int) -> Rows[TopicMoveRequest]:
    return rows_of_lines(content, before, _DECODER.decode, _NO_MOVE)


MOVE_ROWS: Final[RowFormats] = {NDJSON: partial(json_rows, _moves_of_lines, _NO_MOVE)}
"""Rows that are moves."""


def path_after(path: TopicPath, change: TopicChange) -> TopicPath:
    """The path of a topic after a change."""
    return TopicPath(
        path.tenant if change.tenant is None else change.tenant,
        path.namespace if change.namespace is None else change.namespace,
        path.topic if change.name is None else change.name,
    )  # fmt: skip


async def move_all(
    call: Call, account: str, where: tuple[str, str], body: Sequence[TopicMoveRequest] | BodyRows[TopicMoveRequest]
) -> MovedInfo:
    """Move topics of a namespace, a thousand at a time; those of the same name one after the other."""
    info, inventory = MovedInfo(0, [], 0, ""), call.broker.inventory
    async with aclosing(rows_of_body(call, body)) as found:
        async for rows in found:
            failed = lacking_names(call, rows.problems)
            for some, numbers in _pieces(rows):
                problems = await call_back(partial(_move_some, inventory, account, where, some))
                info.moved += len(some) - len(problems)
                failed += failed_names(call, [move.name for move in some], numbers, problems)
            list_failed(info, failed, all_=not isinstance(body, BodyRows))
    info.position = inventory.position
    return info


def _move_some(
    inventory: Inventory, account: str, where: tuple[str, str], some: Sequence[TopicMoveRequest],
    done: Callable[[list[NamedProblem]], None],
) -> None:  # fmt: skip
    # The caller does not keep these objects while it waits: the garbage collector would visit them.
    paths = [TopicPath(*where, move.name) for move in some]
    moves = [
        TopicMove(path, path_after(path, move.to), move.to.keep_alias) for path, move in zip(paths, some, strict=True)
    ]
    inventory.move_topics(account, moves, done)


def _pieces(rows: Rows[TopicMoveRequest]) -> Iterator[_Piece]:
    """Rows in pieces without two of the same name: the failures of a piece are told by names."""
    first, names = 0, set[str]()
    for at, move in enumerate(rows.found):
        if move.name in names or len(names) == _MOVES_AT_ONCE:
            yield rows.found[first:at], rows.numbers[first:at]
            first, names = at, set()
        names.add(move.name)
    if first < len(rows.found):
        yield rows.found[first:], rows.numbers[first:]
