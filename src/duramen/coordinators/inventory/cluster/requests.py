"""Requests between nodes about shards of the inventory, and the encoding of commands and responses."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from duramen.base.errors import OutcomeUnknown, RequestInvalid
from duramen.codec.exports import SYNC
from duramen.coordinators.inventory.shard import ShardCommand
from duramen.inventory import directory, machine
from duramen.inventory.directory_history import DirectoryPage, DirectoryState
from duramen.inventory.events import NamespacePut, PendingChange, Policies, TenantPut
from duramen.inventory.feed import FeedScope, InventoryChange
from duramen.inventory.ids import TopicKey
from duramen.inventory.machine import (
    BeginChange,
    BindName,
    Created,
    CreateTopics,
    Fenced,
    SetTopicPolicies,
    SweepNamespace,
)
from duramen.inventory.names import TopicPath
from duramen.inventory.rows import NameRow
from duramen.rpc.errors import Refused
from duramen.rpc.methods import UNREADABLE, Method

__all__ = [
    "CHANGE_INVENTORY",
    "CHANGE_TOPICS",
    "FOLLOW_INVENTORY",
    "READ_CHANGES",
    "READ_INVENTORY",
    "WATCH_CHANGES",
    "ChangeInventory",
    "ChangeTopics",
    "Changed",
    "ChangesRead",
    "ChangesWatched",
    "FollowInventory",
    "Followed",
    "ReadChanges",
    "ReadInventory",
    "RowsRead",
    "TopicChange",
    "TopicsChanged",
    "WatchChanges",
    "changed",
    "decode_command",
    "encode_command",
    "may_be_repeated",
    "read_response",
]

_DEADLINE_MS: Final = 10_000

# -- reading ----------------------------------------------------------------------------------------


class ReadInventory(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of a shard to read rows, once it has applied the log below `at_least`, written in `epoch`.

    `scans` are first keys, ends, and the maximum numbers of rows. `directory` is the known state of the directory;
    None: not requested.
    """

    shard: int
    epoch: int
    at_least: int
    keys: list[bytes]
    scans: list[tuple[bytes, bytes, int]]
    directory: DirectoryState | None = None


class RowsRead(msgspec.Struct, frozen=True, array_like=True):
    """Values in the order of the requested keys; rows of each scan, and whether more follow."""

    epoch: int
    offset: int
    values: list[bytes | None]
    scans: list[tuple[list[tuple[bytes, bytes]], bool]]
    directory: DirectoryPage | None = None


# -- changing ---------------------------------------------------------------------------------------


class ChangeInventory(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of a shard to execute a command."""

    shard: int
    command: bytes


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """The response to a command, and its position in the shard.

    `aliases` are those of `Created`: nodes of older versions ignore a field here, but refuse one in the response.
    """

    epoch: int
    offset: int
    response: bytes
    aliases: list[bytes] = []


class TopicChange(NamedTuple):
    """Move a topic to another path, delete it, or give it an alias, whose path comes first."""

    kind: Literal["move", "delete", "alias"]
    path: TopicPath
    to: TopicPath = TopicPath("", "", "")
    keep_alias: bool = False


class ChangeTopics(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of the directory to run changes of topics, each independently."""

    account: str
    changes: list[TopicChange]


class TopicsChanged(msgspec.Struct, frozen=True, array_like=True):
    """For each change, None or the error."""

    problems: list[Refused | None]


READ_INVENTORY: Final = Method("read-inventory", ReadInventory, RowsRead, idempotent=True, deadline_ms=_DEADLINE_MS)
CHANGE_INVENTORY: Final = Method(
    "change-inventory", ChangeInventory, Changed, idempotent=False, deadline_ms=_DEADLINE_MS
)
CHANGE_TOPICS: Final = Method(
    "change-topics", ChangeTopics, TopicsChanged, idempotent=False, deadline_ms=3 * _DEADLINE_MS
)


class FollowInventory(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node to confirm that it has applied a shard up to an offset, written in `epoch`."""

    shard: int
    epoch: int
    offset: int


class Followed(msgspec.Struct, frozen=True, array_like=True):
    """The confirmation."""


FOLLOW_INVENTORY: Final = Method(
    "follow-inventory", FollowInventory, Followed, idempotent=True, deadline_ms=_DEADLINE_MS
)

# -- following changes ------------------------------------------------------------------------------


class ReadChanges(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of a shard for changes in a scope from an offset on, in `epoch`; -1: from the end."""

    shard: int
    epoch: int
    offset: int
    scope: FeedScope
    limit: int


class ChangesRead(msgspec.Struct, frozen=True, array_like=True):
    """Changes with the offsets after them, the next offset to read, and whether more follow."""

    epoch: int
    next: int
    changes: list[tuple[int, InventoryChange]]
    more: bool


class WatchChanges(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader of a shard to respond once a change from an offset on has one of these keys.

    This replaces the previous watch of the same node in the shard.
    """

    node: int
    shard: int
    epoch: int
    offset: int
    keys: list[tuple[str, str | int | TopicKey]]
    wait_ms: int


class ChangesWatched(msgspec.Struct, frozen=True, array_like=True):
    """The keys of the changes, and the next offset to read."""

    epoch: int
    next: int
    keys: list[tuple[str, str | int | TopicKey]]


READ_CHANGES: Final = Method("read-changes", ReadChanges, ChangesRead, idempotent=True, deadline_ms=_DEADLINE_MS)
WATCH_CHANGES: Final = Method("watch-changes", WatchChanges, ChangesWatched, idempotent=True, deadline_ms=_DEADLINE_MS)

# -- commands as bytes ------------------------------------------------------------------------------

_STEPS: Final[tuple[type[Any], ...]] = (
    machine.BeginChange, machine.BindName, machine.EndChange, machine.PlaceTopic, machine.RemoveTopic, machine.AddAlias,
    machine.RemoveAlias,
)  # fmt: skip
_COMMANDS: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        *_STEPS, machine.CreateTopics, machine.DropNamespace, machine.SweepNamespace, machine.Fence,
        machine.SetTopicPolicies, directory.SetPolicies,
        directory.CreateTenant, directory.UpdateTenant, directory.DeleteTenant, directory.CreateNamespace,
        directory.UpdateNamespace, directory.DeleteNamespace, directory.NamespaceIsSwept,
    )
}  # fmt: skip
_RESPONSES: Final[Mapping[type[Any], Any]] = {
    CreateTopics: Created,
    BeginChange: tuple[NameRow, PendingChange],
    SweepNamespace: bool,
    directory.CreateTenant: tuple[TenantPut, bool],
    directory.UpdateTenant: TenantPut,
    directory.CreateNamespace: tuple[NamespacePut, bool],
    directory.UpdateNamespace: NamespacePut,
    directory.SetPolicies: Policies,
    SetTopicPolicies: Policies,
}
_NOT_FENCED: Final = -1


def may_be_repeated(command: ShardCommand) -> bool:
    """Whether a command without a response may be sent again: a late step of a change could do harm."""
    return not isinstance(command, Fenced | BeginChange | BindName)


def encode_command(command: ShardCommand) -> bytes:
    """The encoded command for another node."""
    token, step = (command.token, command.step) if isinstance(command, Fenced) else (_NOT_FENCED, command)
    if isinstance(step, CreateTopics) and step.durability == SYNC:
        content: object = step[:-1]  # as nodes of older versions know it
    else:
        content = step
    return msgspec.msgpack.encode((token, type(step).__name__, content))


def decode_command(content: bytes) -> ShardCommand:
    """The command from another node. Raises RequestInvalid."""
    try:
        token, name, command = msgspec.msgpack.decode(content, type=tuple[int, str, msgspec.Raw])
        kind = _COMMANDS.get(name)
        if kind is None:
            raise RequestInvalid(f"a command {name[:40]!r} of the inventory is not known here")
        step: Any = msgspec.msgpack.decode(command, type=kind)
    except UNREADABLE as error:
        raise RequestInvalid(f"a command of the inventory cannot be read: {error}") from None
    return step if token == _NOT_FENCED else Fenced(token, step)


def changed(epoch: int, offset: int, response: object) -> Changed:
    """The response for another node."""
    if isinstance(response, Created):
        return Changed(epoch, offset, msgspec.msgpack.encode(response[:-1]), list(response.aliases))
    return Changed(epoch, offset, msgspec.msgpack.encode(response))


def read_response(command: ShardCommand, answer: Changed) -> Any:
    """The response to a command. Raises OutcomeUnknown."""
    kind = type(command.step) if isinstance(command, Fenced) else type(command)
    try:
        response = msgspec.msgpack.decode(answer.response, type=_RESPONSES.get(kind, None | bool))
    except UNREADABLE as error:
        raise OutcomeUnknown(f"the leader of a shard has answered what cannot be read: {error}") from None
    return response._replace(aliases=answer.aliases) if isinstance(response, Created) else response
