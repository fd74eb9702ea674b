"""The HTTP API for both clients: generators that yield requests and receive responses, independent of I/O. Pure.

A program is a generator that yields requests; it receives the JSON of the response, or the error is raised in it. Its
return value is the result.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode

from duramen.base.errors import DuramenError, NotCoordinator
from duramen.client.api.arguments import INT32_MAX, checked_names, flag, text, whole
from duramen.client.api.values import GroupDetails, GroupInfo, NodeInfo, OffsetChange, value_of
from duramen.client.http import HttpExchange, RequestBody, path_of

__all__ = [
    "Config",
    "Program",
    "Question",
    "answered",
    "delete_group",
    "describe_group",
    "doors",
    "list_groups",
    "listed",
    "node",
    "nodes",
    "reset_group",
]

_T = TypeVar("_T")

Config: TypeAlias = Mapping[str, str | int | float | bool]
"""Configs of a stream by their dotted names."""


class Question(NamedTuple):
    """An HTTP request to the node at `server`; empty: the client's own node.

    With `accept`, a media type, the response is bytes instead of JSON; with a `header` also that header's value.
    """

    method: str
    path: str
    document: Mapping[str, object] | RequestBody | None = None
    server: str = ""
    accept: str = ""
    header: str = ""

    def answer_of(self, exchange: HttpExchange) -> Any:
        """The content of the response. Raises the node's error."""
        if self.header:
            return exchange.content(), exchange.header(self.header)
        return exchange.content() if self.accept else exchange.answer()


Program: TypeAlias = Generator[Question, Any, _T]


def answered(program: Program[_T], ask: Callable[[Question], Any]) -> _T:
    """The result of a program whose requests `ask` executes one after the other."""
    try:
        question = next(program)
        while True:
            try:
                answer = ask(question)
            except DuramenError as error:
                question = program.throw(error)
            else:
                question = program.send(answer)
    except StopIteration as end:
        result: _T = end.value
        return result


def listed(collection: str, server: str = "", **query: str) -> Program[list[dict[str, Any]]]:
    """All items of a paged collection."""
    found: list[dict[str, Any]] = []
    path = f"/v1/{collection}"
    asked = dict(query)
    while True:
        page = yield Question("GET", f"{path}?{urlencode(asked)}" if asked else path, server=server)
        found += value_of(value_of(page, dict[str, Any]).get(collection, []), list[dict[str, Any]])
        after = page.get("next")
        if after is None:
            return found
        asked["after"] = after


def nodes() -> Program[list[dict[str, Any]]]:
    """The nodes of the cluster; empty for a standalone node."""
    answer = value_of((yield Question("GET", "/v1/cluster/nodes")), dict[str, Any])
    return value_of(answer.get("nodes", []), list[dict[str, Any]])


def doors(wanted: Collection[int] | None = None) -> Program[list[str]]:
    """The HTTP addresses of all nodes that are not known to be down, or of the given ones."""
    return [
        one["endpoints"]["http"]
        for one in (yield from nodes())
        if one["state"] != "fenced" and "http" in one["endpoints"] and (wanted is None or one["id"] in wanted)
    ]


def node() -> Program[NodeInfo]:
    """The node that answers."""
    return value_of((yield Question("GET", "/v1/node")), NodeInfo)


def list_groups() -> Program[list[GroupInfo]]:
    """Every consumer group."""
    return value_of((yield from listed("groups")), list[GroupInfo])


def describe_group(group: str) -> Program[GroupDetails]:
    """A consumer group."""
    return value_of((yield from _coordinated(Question("GET", path_of("groups", text("group", group))))), GroupDetails)


def _coordinated(question: Question) -> Program[Any]:
    """Send a request about a group to the node, or to the group's coordinator if that is another node."""
    try:
        return (yield question)
    except NotCoordinator as error:
        elsewhere = error
    for door in (yield from doors()):
        with suppress(NotCoordinator):
            return (yield question._replace(server=door))
    raise elsewhere


def reset_group(
    group: str, to: str, streams: Sequence[str] | None, partition: int | None, *, dry_run: bool
) -> Program[list[OffsetChange]]:
    """Set a group's offsets."""
    body: dict[str, object] = {"to": to, "dry_run": flag("dry_run", dry_run)}
    if streams is not None:
        body["streams"] = checked_names("streams", streams)
    if partition is not None:
        body["partition"] = whole("partition", partition, 0, INT32_MAX)
    answer = yield from _coordinated(Question("POST", path_of("groups", text("group", group)) + "/offsets", body))
    return value_of(value_of(answer, dict[str, Any]).get("offsets"), list[OffsetChange])


def delete_group(group: str) -> Program[None]:
    """Remove a consumer group."""
    yield from _coordinated(Question("DELETE", path_of("groups", text("group", group))))
