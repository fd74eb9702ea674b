"""Names for shell completion: streams and groups, from the node if it responds quickly."""

import os
from typing import Any, ClassVar, Final
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from duramen.base.errors import DuramenError
from duramen.cli.server import DEFAULT_SERVER, NodeAddress

__all__ = ["GroupName", "StreamName"]

_QUICK_S: Final = 0.5


class _Name(click.ParamType[str]):
    """A text; completing it must not hold the shell up, so of a long list the first page will do."""

    path: ClassVar[str]
    key: ClassVar[str]
    field: ClassVar[str]

    def convert(self, value: object, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        return str(value)

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        return [CompletionItem(name) for name in self._names(ctx, incomplete) if name.startswith(incomplete)]

    def _names(self, ctx: click.Context, incomplete: str) -> list[str]:
        given = ctx.params.get("server")
        try:
            server = (
                given
                if isinstance(given, NodeAddress)
                else NodeAddress(os.environ.get("DURAMEN_SERVER") or DEFAULT_SERVER)
            )
            members = server.get(self.path.format(prefix=quote(incomplete, safe="")), _QUICK_S)[self.key]
            names = [str(member[self.field]) for member in members if not member.get("internal")]
        except (DuramenError, KeyError, TypeError, AttributeError):
            return []
        return [name for name in names if name.isprintable() and " " not in name]


class StreamName(_Name):
    """The name of a stream."""

    name = "stream"
    path = "/v1/streams?prefix={prefix}"
    key = "streams"
    field = "name"


class GroupName(_Name):
    """The id of a consumer group."""

    name = "group"
    path = "/v1/groups"
    key = "groups"
    field = "id"
